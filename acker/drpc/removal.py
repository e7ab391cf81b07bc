"""Removal of a function with its line and streams, so that another can have its name."""

from functools import partial

from acker.drpc import answers, calls, keeping, registry, scripts
from acker.drpc.registry import Description
from acker.errors import FunctionInUse
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.settings.topologies import ATTEMPTS, REMEMBERED, is_late, read_marks
from acker.lines.scripts import forget_names
from acker.store import function_keys, keys
from acker.store.operation import Operation, abreast, command
from acker.store.replies import pairs
from acker.streams.log import kinds
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
    version = function.version.encode()
    ledger.run(abreast([kinds.make(one, partial(scripts.set_version, one, "", version)) for one in streams]))
    ledger.run(registry.remove(function))
    ledger.run(_end_calls(ledger, function))
    answered = partial(answers.answer_outcomes, ledger, function)
    for _ in range(_ROUNDS):
        if not ledger.run(calls.in_flight(core, function)):
            break
        ledger.run(keeping.look_after(core, function))
        settler.settle(ledger, name, answered)
    if not alive:
        ledger.run(_forget_names(core, function, line=True))
        for place in range(len(function.steps)):
            ledger.run(remove_stream(core, function.stream(place), unused=True))
        ledger.run(_forget_names(core, function, line=False))


def _end_calls(ledger: Ledger, function: Description) -> Operation[None]:
    """Answers calls that no worker will answer."""
    keys_of_function = function_keys.Function(ledger.config.name, function.name)
    for _ in range(_ROUNDS * _PAGE):
        [begun] = yield [command("HRANDFIELD", keys_of_function.calls, _PAGE, "WITHVALUES")]
        if not begun:
            return
        why = "f its function was removed"
        yield [
            calls.answer(
                ledger.core, function, request.decode("utf-8", "replace"), why, record.removeprefix(b"-")
            )
            for request, record in pairs(begun).items()
        ]


def _forget_names(core: Core, function: Description, *, line: bool) -> Operation[None]:
    """Takes the line, or the streams that are not there, off the lists of the topology.

    Does nothing if the function is registered again; and a late copy of the call takes nothing that was named
    since.
    """
    topology, gone = core.config.name, list[str]()
    for _ in range(ATTEMPTS):
        [seen] = yield from read_marks([function_keys.named(topology)])
        if not (yield from registry.is_free(function.name)):
            return
        if not line:
            streams = [function.stream(place) for place in range(len(function.steps))]
            held = [keys.Stream(topology, stream) for stream in streams]
            there = yield [command("EXISTS", stream.schema, stream.subscriptions) for stream in held]
            gone = [stream for stream, left in zip(streams, there, strict=True) if not left]
        [reply] = yield [forget_names(topology, function.name if line else "", gone, seen, REMEMBERED)]
        if not is_late(reply):
            return
