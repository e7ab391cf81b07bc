"""The functions of a store: their names are unique in it, and each is of one topology."""

import hashlib
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Annotated

from acker.drpc import scripts
from acker.errors import FunctionConflict, UnknownFunction, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.store import function_keys, keys
from acker.store.operation import Operation, command
from acker.store.records import Bounds, Count, Name, Record
from acker.store.replies import pairs
from acker.streams.log.gathers import TASKS

MOST = 256
"""Functions that a store has at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it is stored. gathers: whether it gathers, with so many tasks, divided by columns `by`.

    columns: name -> type, as text, of the rows that it emits; None for the last one. spark: a Spark job works
    on it.
    """

    name: Name
    gathers: bool = False
    tasks: Annotated[int, Bounds(1, TASKS)] = 1
    by: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] | None = None
    spark: bool = False


@dataclass(frozen=True, slots=True)
class Description(Record, what="a function"):
    """A function as it is stored. timeout, keep: seconds; see `acker.drpc.linear_drpc.LinearDRPC`."""

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
        """What tells it from another of its name: a digest of all of it."""
        return hashlib.sha1(self.dump().encode(), usedforsecurity=False).hexdigest()[:16]

    def stream(self, step: int) -> str:
        """The stream that a step reads."""
        return f"{self.name}.{self.steps[step].name}"

    def sections(self) -> list[list[str]]:
        """The names of the steps of each section: a step that gathers begins one."""
        found: list[list[str]] = [[]]
        for one in self.steps:
            if one.gathers:
                found.append([])
            found[-1].append(one.name)
        return found


def check(what: Description) -> Operation[None]:
    """Whether a function can be registered: FunctionConflict where it is there otherwise."""
    [stored, known] = yield [
        command("HGET", keys.FUNCTIONS, what.name),
        command("HLEN", keys.FUNCTIONS),
    ]
    if stored is None:
        if known >= MOST:
            raise ValidationError(f"function: the store has {known}, its most: remove one")
        return
    found = Description.load(stored)
    if found != what:
        raise FunctionConflict(
            f"function {what.name!r} is registered otherwise, in topology {found.topology!r}: "
            f"{_differences(found, what)}. Take another name, or remove it when its calls are answered"
        )


def _differences(found: Description, asked: Description) -> str:
    """What two functions of a name do not share, as `what there is, asked for what`."""
    said = [
        f"{one.name} {getattr(found, one.name)!r}, asked for {getattr(asked, one.name)!r}"
        for one in fields(Description)
        if one.name != "steps" and getattr(found, one.name) != getattr(asked, one.name)
    ]
    for place, (one, other) in enumerate(zip_longest(found.steps, asked.steps), 1):
        if one != other:
            said.append(f"as step {place} {_step(one)}, asked for {_step(other)}")
    return "; ".join(said)


def _step(one: Step | None) -> str:
    """A step, for people."""
    if one is None:
        return "none"
    columns = ", ".join(f"{name} {kind}" for name, kind in one.columns or ()) or "no columns"
    tasks = f" by {', '.join(one.by)}" if one.by else ""
    gathers = f", gathers for {one.tasks} tasks{tasks}" if one.gathers else ""
    return f"{one.name!r} ({columns}{gathers}{', Spark' if one.spark else ''})"


def register(what: Description) -> Operation[None]:
    """Registers a function; the same again changes nothing. FunctionConflict where it is there otherwise."""
    yield from check(what)
    yield [command("HSETNX", keys.FUNCTIONS, what.name, what.dump())]
    yield from check(what)


def mark(core: Core, what: Description, *, new: bool = False) -> Operation[None]:
    """Notes the version of a function that is registered with the streams of its steps.

    Rows for these, and claims of them, are refused to who knows another version. new: it may be about to be
    registered. Raises FunctionConflict where it was registered otherwise since.
    """
    streams = [keys.Stream(core.config.name, what.stream(place)) for place in range(len(what.steps))]
    found = yield [command("HGET", one.subscriptions, "version") for one in streams]
    [stored] = yield [command("HGET", keys.FUNCTIONS, what.name)]  # after: what is noted by then is older
    if stored is None and not new:
        return
    noted = [False]
    if stored is None or Description.load(stored) == what:
        noted = yield [
            scripts.set_version(one, what.version, before or b"")
            for one, before in zip(streams, found, strict=True)
        ]
    if not all(noted):
        raise FunctionConflict(f"function {what.name!r} is being registered otherwise by somebody else")


def find(name: str) -> Operation[Description]:
    """A function of the store. Raises UnknownFunction, UnreadableRecord, and ValidationError for no name."""
    check_name(name, "function")
    [stored] = yield [command("HGET", keys.FUNCTIONS, name)]
    if stored is None:
        [known] = yield [command("HKEYS", keys.FUNCTIONS)]
        names = ", ".join(sorted(one.decode("utf-8", "replace") for one in known)[:20]) or "none"
        raise UnknownFunction(f"the store has no function {name!r}; it has {names}")
    return Description.load(stored)


def functions() -> Operation[list[Description]]:
    """All functions of the store, by name. Raises UnreadableRecord."""
    [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    return sorted(map(Description.load, pairs(stored).values()), key=lambda one: one.name)


def remove(what: Description) -> Operation[None]:
    """Forgets a function, and what became of its calls."""
    yield [
        command("HDEL", keys.FUNCTIONS, what.name),
        command("UNLINK", function_keys.Function(what.topology, what.name).counted),
    ]
