"""The functions of a store: their names are unique in it, and each is of one topology."""

import hashlib
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest

from acker.drpc import scripts
from acker.errors import FunctionConflict, UnknownFunction, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.store import function_keys, keys, records
from acker.store.operation import Operation, command
from acker.store.replies import pairs

MOST = 256
"""Functions that a store has at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it is stored. gathers: whether it gathers, with so many tasks, divided by columns `by`.

    columns: name -> type, as text, of the rows that it emits; None for the last one. spark: a Spark job works
    on it.
    """

    name: str
    gathers: bool = False
    tasks: int = 1
    by: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] | None = None
    spark: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """A function as it is stored. timeout, keep: seconds; see `acker.drpc.linear_drpc.LinearDRPC`."""

    name: str
    topology: str
    steps: tuple[Step, ...]
    idempotent: bool
    attempts: int
    timeout: float
    keep: float
    max_pending: int

    def record(self) -> str:
        """As it is stored."""
        return records.dump(asdict(self))

    @classmethod
    def parse(cls, record: str | bytes) -> "Description":
        """The inverse of `record`; UnreadableRecord for anything else."""
        with records.reading(record, "a function") as stored:
            steps = []
            for one in stored.pop("steps"):
                columns = one.pop("columns")
                pieces = None if columns is None else tuple((str(name), str(kind)) for name, kind in columns)
                steps.append(Step(**{**one, "by": tuple(one["by"])}, columns=pieces))
            found = cls(**stored, steps=tuple(steps))
            check_number(found.max_pending, "max_pending", 1, 10**9, int)
            return found

    @property
    def version(self) -> str:
        """What tells it from another of its name: a digest of all of it."""
        return hashlib.sha1(self.record().encode(), usedforsecurity=False).hexdigest()[:16]

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
    found = Description.parse(stored)
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
    yield [command("HSETNX", keys.FUNCTIONS, what.name, what.record())]
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
    if stored is None or Description.parse(stored) == what:
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
    return Description.parse(stored)


def functions() -> Operation[list[Description]]:
    """All functions of the store, by name. Raises UnreadableRecord."""
    [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    return sorted(map(Description.parse, pairs(stored).values()), key=lambda one: one.name)


def remove(what: Description) -> Operation[None]:
    """Forgets a function, and what became of its calls."""
    yield [
        command("HDEL", keys.FUNCTIONS, what.name),
        command("UNLINK", function_keys.Function(what.topology, what.name).counted),
    ]
