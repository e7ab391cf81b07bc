"""Removing a function with all that it has in its topology, so that another may have its name and line."""

from functools import partial

from acker.drpc import answers, calls, keeping, registry
from acker.drpc.registry import Description
from acker.errors import FunctionInUse
from acker.ledger.client import Ledger
from acker.store import function_keys, keys
from acker.store.operation import Operation, command
from acker.streams.spouts import settler
from acker.streams.upkeep.removal import remove_stream

_PAGE = 500
_ROUNDS = 100


def retire(ledger: Ledger, what: Description, *, force: bool = False) -> None:
    """Removes a function, its line, and the streams of its steps. Cut short it can be run again.

    force: also with calls without answer, which fail, and with workers, which make the rest of it anew.
    Raises FunctionInUse; nothing has changed then.
    """
    core, name = ledger.core, what.name
    own = function_keys.Function(core.config.name, name)
    [waiting] = ledger.store.send([command("HLEN", own.calls)])
    if waiting and not force:
        raise FunctionInUse(
            f"function {name!r} has {waiting:,} calls without answer: wait for them, or --force"
        )
    alive = sum(ledger.run(calls.workers(core, what)))
    if alive and not force:
        raise FunctionInUse(f"function {name!r} has {alive:,} workers that are alive: stop them, or --force")
    # From now on no call is written: who has its answer may ask the next question before the end of this.
    streams = [keys.Stream(core.config.name, what.stream(place)) for place in range(len(what.steps))]
    ledger.store.send([command("HDEL", one.subscriptions, "version") for one in streams])
    ledger.run(registry.remove(what))
    ledger.run(_end_calls(ledger, what))
    answered = partial(answers.answer_outcomes, ledger, what)
    for _ in range(_ROUNDS):
        if not ledger.run(calls.in_flight(core, what)):
            break
        ledger.run(keeping.look_after(core, what))
        settler.settle(ledger, name, answered)
    if not alive:
        ledger.store.send([command("HDEL", keys.lines(core.config.name), name)])
        for place in range(len(what.steps)):
            ledger.run(_remove_stream(ledger, what.stream(place)))


def _end_calls(ledger: Ledger, what: Description) -> Operation[None]:
    """Answers calls that nobody will."""
    own = function_keys.Function(ledger.config.name, what.name)
    for _ in range(_ROUNDS * _PAGE):
        [found] = yield [command("HRANDFIELD", own.calls, _PAGE)]
        if not found:
            return
        yield [
            calls.answer(ledger.core, what, request.decode("utf-8", "replace"), "f its function was removed")
            for request in found
        ]


def _remove_stream(ledger: Ledger, name: str) -> Operation[None]:
    yield from remove_stream(ledger.core, name)
    yield [command("SREM", keys.streams(ledger.config.name), name)]
