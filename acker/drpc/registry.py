"""The functions of a store: names are unique in a store, and each function belongs to one topology.

Terms: a section is the steps of a line between two gathers.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from itertools import zip_longest
from typing import Annotated

from acker.drpc import scripts
from acker.errors import AckerError, FunctionConflict, UnknownFunction, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name
from acker.store import function_keys, keys
from acker.store.operation import Operation, Request, abreast, command
from acker.store.records import Bounds, Count, Name, Record
from acker.store.replies import pairs
from acker.streams.log import kinds
from acker.streams.log.gathers import TASKS

MOST = 256
"""Most functions of a store."""
_REMOVED = 2
"""The reply of lua/drpc/set_version.lua for a version that was removed meanwhile."""


@dataclass(frozen=True, slots=True)
class Step:
    """A stored step.

    Attributes:
        gathers: True if it gathers: in `tasks` tasks, divided by the columns `by`.
        columns: Names and types, as text, of the columns that it emits; None for the last step.
        spark: True if a Spark job carries it out.
    """

    name: Name
    gathers: bool = False
    tasks: Annotated[int, Bounds(1, TASKS)] = 1
    by: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] | None = None
    spark: bool = False


@dataclass(frozen=True, slots=True)
class Description(Record, label="a function"):
    """A stored function. timeout, keep: seconds; see `acker.drpc.linear_drpc.LinearDRPC`."""

    name: Name
    topology: Name
    steps: Annotated[tuple[Step, ...], Bounds(1, 1 << 10)]
    idempotent: bool
    attempts: Count
    timeout: Annotated[float, Bounds(0, 1 << 53)]
    keep: Annotated[float, Bounds(0, 1 << 53)]
    max_pending: Annotated[int, Bounds(1, 10**9)]

    @property
    def version(self) -> str:
        """The digest of the description, which differs from every other function of that name."""
        return hashlib.sha1(self.dump().encode(), usedforsecurity=False).hexdigest()[:16]

    def stream(self, step: int) -> str:
        """Returns the stream that a step reads."""
        return f"{self.name}.{self.steps[step].name}"

    def sections(self) -> list[list[str]]:
        """Returns the names of the steps of each section; a gathering step begins a section."""
        sections: list[list[str]] = [[]]
        for step in self.steps:
            if step.gathers:
                sections.append([])
            sections[-1].append(step.name)
        return sections


def check(function: Description) -> Operation[None]:
    """Checks that a function can be registered; raises FunctionConflict if it is registered otherwise."""
    [stored, topology] = yield [
        command("HGET", keys.FUNCTIONS, function.name),
        command("HLEN", keys.FUNCTIONS),
    ]
    if stored is None:
        if topology >= MOST:
            raise ValidationError(f"function: the store has {topology}, its most: remove one")
        return
    registered = Description.load(stored)
    if registered != function:
        raise FunctionConflict(
            f"function {function.name!r} is registered otherwise, in topology {registered.topology!r}: "
            f"{_differences(registered, function)}. Take another name, or remove it when its calls are "
            "answered"
        )


def _differences(registered: Description, asked: Description) -> str:
    """Returns the differences of two functions of a name, as `<stored>, asked for <given>`."""
    said = [
        f"{name} {getattr(registered, name)!r}, asked for {getattr(asked, name)!r}"
        for name in (attribute.name for attribute in fields(Description))
        if name != "steps" and getattr(registered, name) != getattr(asked, name)
    ]
    for place, (step, other) in enumerate(zip_longest(registered.steps, asked.steps), 1):
        if step != other:
            said.append(f"as step {place} {_step(step)}, asked for {_step(other)}")
    return "; ".join(said)


def _step(step: Step | None) -> str:
    """Returns a step as text for people."""
    if step is None:
        return "none"
    columns = ", ".join(f"{name} {kind}" for name, kind in step.columns or ()) or "no columns"
    tasks = f" by {', '.join(step.by)}" if step.by else ""
    gathers = f", gathers for {step.tasks} tasks{tasks}" if step.gathers else ""
    return f"{step.name!r} ({columns}{gathers}{', Spark' if step.spark else ''})"


def register(function: Description) -> Operation[None]:
    """Registers a function. An equal registration changes nothing; another raises FunctionConflict."""
    yield from check(function)
    yield from _list(function.name, function.dump(), lambda: is_free(function.name))
    yield from check(function)


def is_free(name: str) -> Operation[bool]:
    """Returns True if no function of that name is registered."""
    [stored] = yield [command("HEXISTS", keys.FUNCTIONS, name)]
    return not stored


def _list(name: str, description: str, wanted: Callable[[], Operation[bool]]) -> Operation[None]:
    """Lists a function, or takes it off the list, unless that is not `wanted` at that moment.

    A late copy of the call is refused. So it is sent again where others did the same at that moment.
    """
    for _ in range(topologies.ATTEMPTS):
        [seen] = yield from topologies.read_marks([function_keys.LISTED + name.encode()])
        if not (yield from wanted()):
            return
        [reply] = yield [scripts.list_function(name, description, seen, topologies.REMEMBERED)]
        if not topologies.is_late(reply):
            return
    raise AckerError(f"function {name!r} was registered or removed {topologies.ATTEMPTS} times meanwhile")


def mark(core: Core, function: Description, *, new: bool = False) -> Operation[bool]:
    """Records the version of a registered function with the streams of its steps; False if one was removed.

    The streams then refuse rows and claims of processes that have another version. new: True if the function
    may be about to be registered. Raises FunctionConflict if it was registered otherwise since.
    """
    streams = _streams(core, function)
    versions = yield [command("HGET", stream.subscriptions, "version") for stream in streams]
    [stored] = yield [command("HGET", keys.FUNCTIONS, function.name)]  # second: the versions above are older
    if stored is None and not new:
        return True
    noted = [0]
    if stored is None or Description.load(stored) == function:
        operations = [
            kinds.make(stream, partial(scripts.set_version, stream, function.version, before or b""))
            for stream, before in zip(streams, versions, strict=True)
        ]
        noted = yield from abreast(operations)
    if not all(noted):
        raise FunctionConflict(
            f"another process registers function {function.name!r} at this moment, with another definition"
        )
    return _REMOVED not in noted


def is_whole(core: Core, function: Description) -> Operation[bool]:
    """Returns True if the streams of a function's steps are there, with its version.

    No removal takes anything of them that has begun before their versions were recorded.
    """
    asked = list[Request]()
    for stream, step in zip(_streams(core, function), function.steps, strict=True):
        fields = "version", f"name:{step.name}", "gather"
        asked += [command("HMGET", stream.subscriptions, *fields), command("EXISTS", stream.schema)]
    replies = yield asked
    return all(
        version == function.version.encode() and named is not None and schema and (gather or not step.gathers)
        for step, (version, named, gather), schema in zip(
            function.steps, replies[::2], replies[1::2], strict=True
        )
    )


def _streams(core: Core, function: Description) -> list[keys.Stream]:
    return [keys.Stream(core.config.name, function.stream(place)) for place in range(len(function.steps))]


def find(name: str) -> Operation[Description]:
    """Returns a function of the store. Raises UnknownFunction, UnreadableRecord and ValidationError."""
    check_name(name, "function")
    [stored] = yield [command("HGET", keys.FUNCTIONS, name)]
    if stored is None:
        [known] = yield [command("HKEYS", keys.FUNCTIONS)]
        names = ", ".join(sorted(one.decode("utf-8", "replace") for one in known)[:20]) or "none"
        raise UnknownFunction(f"the store has no function {name!r}; it has {names}")
    return Description.load(stored)


def functions() -> Operation[list[Description]]:
    """Returns all functions of the store, by name. Raises UnreadableRecord."""
    [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    return sorted(map(Description.load, pairs(stored).values()), key=lambda one: one.name)


def unlist(function: Description) -> Operation[None]:
    """Takes a function off the list of functions, unless it is registered otherwise by now."""

    def is_same() -> Operation[bool]:
        [stored] = yield [command("HGET", keys.FUNCTIONS, function.name)]
        return stored is not None and Description.load(stored) == function

    yield from _list(function.name, "", is_same)


def remove(function: Description) -> Operation[None]:
    """Deletes a function, and the counts of its calls, unless it is registered otherwise by now."""
    yield from unlist(function)
    own = function_keys.Function(function.topology, function.name)
    yield from topologies.forget_keys(own.removals, [own.counted], lambda: is_free(function.name))
