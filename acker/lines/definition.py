"""What a line is: its streams that gather, in order, as they are declared and stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import redis

from acker.errors import LineConflict, UnreadableRecord, ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.slabs.sections import LINE, LINES, SECTIONS, mark_of
from acker.lines import scripts
from acker.lines.gather import Gather
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.store.replies import pairs, whole
from acker.streams.log import gathers
from acker.streams.log.gathers import Gathering


@dataclass(frozen=True, slots=True)
class Definition:
    """A line as it is stored: its number, its streams that gather, and its mark (`sections.mark_of`)."""

    name: str
    number: int
    gathers: tuple[Gather, ...]
    mark: int

    def gathering(self, section: int) -> Gathering:
        """How the stream at the end of a section gathers."""
        one = self.gathers[section - 1]
        return Gathering(self.number, section, one.tasks, one.by)


def check(members: Sequence[Gather]) -> tuple[Gather, ...]:
    """The streams of a line. Raises ValidationError."""
    for one in members:
        if not isinstance(one, Gather):
            raise ValidationError(f"gathers: expected Gather, got {shown(one)}")
    if not 1 <= len(members) < SECTIONS:
        raise ValidationError(f"gathers: expected 1 to {SECTIONS - 1}, got {len(members)}")
    names = [one.stream for one in members]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValidationError(f"gathers: expected each stream once, got {', '.join(sorted(twice))} twice")
    return tuple(members)


def declare(core: Core, name: str, members: tuple[Gather, ...]) -> Operation[Definition]:
    """Declares a line, and its streams as ones that gather; the same again changes nothing.

    Raises LineConflict where it, or a stream of it, is there with other content, ValidationError where the
    topology tracks nothing, or has 31 lines already, and UnreadableRecord.
    """
    if not core.config.ackers:
        raise ValidationError(
            f"ackers: a line needs 1 or more, topology {core.config.name!r} has 0, so nothing is tracked"
        )
    record = LINE.dump(tuple((one.stream, one.tasks, one.by) for one in members))
    # A store that has lost its lines may have their streams still, and trees of their numbers.
    used = yield from gathers.numbers(core)
    own = next((used[one.stream] for one in members if one.stream in used), 0)
    others = sorted({number for number in used.values() if number != own})
    [reply] = yield [scripts.declare_line(core.config.name, name, record, LINES, own, others)]
    if isinstance(reply, redis.ResponseError):
        said = str(reply).removeprefix("ACKER ")
        raise ValidationError(f"line {name!r} cannot be declared in topology {core.config.name!r}: {said}")
    found = parse(name, reply)
    if found.gathers != members:
        raise LineConflict(
            f"line {name!r} of topology {core.config.name!r} gathers otherwise: it has "
            f"{', '.join(map(str, found.gathers))}, not {', '.join(map(str, members))}"
        )
    for section, one in enumerate(members, 1):
        yield from gathers.declare(core, one.stream, found.gathering(section))
    return found


@lru_cache(LINES)
def parse(name: str, stored: bytes) -> Definition:
    """A line as it is stored; UnreadableRecord for anything else."""
    number, _, record = stored.partition(b" ")
    try:
        members = check([Gather(*one) for one in LINE.load(record)])
    except ValidationError as error:
        raise UnreadableRecord(f"not line {name!r}: {error}") from error
    return Definition(name, whole(number, f"the number of line {name!r}"), members, mark_of(name, record))


def lines(core: Core) -> Operation[dict[int, Definition]]:
    """The lines of a topology by their numbers. One that cannot be read is passed over, and logged."""
    [stored] = yield [command("HGETALL", keys.lines(core.config.name))]
    found: dict[int, Definition] = {}
    for name, record in pairs(stored).items():
        with passing_over(core.config.name):
            one = parse(name.decode("utf-8", "replace"), record)
            found[one.number] = one
    return found
