"""Removal of a function with its line and streams, so that another can have its name."""

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


def retire(ledger: Ledger, function: Description, *, force: bool = False) -> None:
    """Removes a function, its line, and the streams of its steps. If interrupted, it can be run again.

    force: True also removes a function that has workers, or calls without answer, which fail. Workers then
    recreate it. Raises FunctionInUse; nothing has changed then.
    """
    core, name = ledger.core, function.name
    keys_of_function = function_keys.Function(core.config.name, name)
    [waiting] = ledger.store.send([command("HLEN", keys_of_function.calls)])
    if waiting and not force:
        raise FunctionInUse(
            f"function {name!r} has {waiting:,} calls without answer: wait for them, or --force"
        )
    alive = sum(ledger.run(calls.workers(core, function)))
    if alive and not force:
        raise FunctionInUse(f"function {name!r} has {alive:,} workers that are alive: stop them, or --force")
    # From now on no call is written; a caller with an answer may call again before the end of this.
    streams = [keys.Stream(core.config.name, function.stream(place)) for place in range(len(function.steps))]
    ledger.store.send([command("HDEL", one.subscriptions, "version") for one in streams])
    ledger.run(registry.remove(function))
    ledger.run(_end_calls(ledger, function))
    answered = partial(answers.answer_outcomes, ledger, function)
    for _ in range(_ROUNDS):
        if not ledger.run(calls.in_flight(core, function)):
            break
        ledger.run(keeping.look_after(core, function))
        settler.settle(ledger, name, answered)
    if not alive:
        ledger.store.send([command("HDEL", keys.lines(core.config.name), name)])
        for place in range(len(function.steps)):
            ledger.run(_remove_stream(ledger, function.stream(place)))


def _end_calls(ledger: Ledger, function: Description) -> Operation[None]:
    """Answers calls that no worker will answer."""
    keys_of_function = function_keys.Function(ledger.config.name, function.name)
    for _ in range(_ROUNDS * _PAGE):
        [requests] = yield [command("HRANDFIELD", keys_of_function.calls, _PAGE)]
        if not requests:
            return
        yield [
            calls.answer(
                ledger.core, function, request.decode("utf-8", "replace"), "f its function was removed"
            )
            for request in requests
        ]


def _remove_stream(ledger: Ledger, name: str) -> Operation[None]:
    yield from remove_stream(ledger.core, name)
    yield [command("SREM", keys.streams(ledger.config.name), name)]
