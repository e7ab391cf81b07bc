"""The definition of a line: its gathering streams, in order, as declared and stored.

Terms: a section is the steps of a line between two gathers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

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
    """A stored line: its number, its gathering streams, and its mark (`sections.mark_of`)."""

    name: str
    number: int
    gathers: tuple[Gather, ...]
    mark: int

    def gathering(self, section: int) -> Gathering:
        """Returns the gathering of the stream at the end of a section."""
        one = self.gathers[section - 1]
        return Gathering(self.number, section, one.tasks, one.by)


def check(members: Sequence[Gather]) -> tuple[Gather, ...]:
    """Returns the checked streams of a line. Raises ValidationError."""
    for member in members:
        if not isinstance(member, Gather):
            raise ValidationError(f"gathers: expected Gather, got {shown(member)}")
    if not 1 <= len(members) < SECTIONS:
        raise ValidationError(f"gathers: expected 1 to {SECTIONS - 1}, got {len(members)}")
    names = [member.stream for member in members]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValidationError(f"gathers: expected each stream once, got {', '.join(sorted(twice))} twice")
    return tuple(members)


def declare(core: Core, name: str, members: tuple[Gather, ...]) -> Operation[Definition]:
    """Declares a line and its gathering streams. An equal declaration changes nothing.

    Raises LineConflict if the line, or one of its streams, is declared otherwise; ValidationError if the
    topology tracks nothing, or has 31 lines already; and UnreadableRecord.
    """
    if not core.config.ackers:
        raise ValidationError(
            f"ackers: a line needs 1 or more, but topology {core.config.name!r} has 0 and tracks nothing"
        )
    record = LINE.dump(tuple((member.stream, member.tasks, member.by) for member in members))
    # A store that has lost its lines may have their streams still, and trees of their numbers.
    used = yield from gathers.numbers(core)
    own = next((used[member.stream] for member in members if member.stream in used), 0)
    others = sorted({number for number in used.values() if number != own})
    call = partial(scripts.declare_line, core.config.name, name, record, LINES, own, others)
    [reply] = yield from core.make(call)
    if isinstance(reply, redis.ResponseError):
        said = str(reply).removeprefix("ACKER ")
        raise ValidationError(f"line {name!r} cannot be declared in topology {core.config.name!r}: {said}")
    definition = parse(name, reply)
    if definition.gathers != members:
        raise LineConflict(
            f"line {name!r} of topology {core.config.name!r} gathers otherwise: it has "
            f"{', '.join(map(str, definition.gathers))}, not {', '.join(map(str, members))}"
        )
    for section, member in enumerate(members, 1):
        yield from gathers.declare(core, member.stream, definition.gathering(section))
    return definition


@lru_cache(LINES)
def parse(name: str, stored: bytes) -> Definition:
    """Returns a line by its stored record. Raises UnreadableRecord."""
    number, _, record = stored.partition(b" ")
    try:
        members = check([Gather(*one) for one in LINE.load(record)])
    except ValidationError as error:
        raise UnreadableRecord(f"not line {name!r}: {error}") from error
    return Definition(name, whole(number, f"the number of line {name!r}"), members, mark_of(name, record))


def lines(core: Core) -> Operation[dict[int, Definition]]:
    """Returns the lines of a topology by number. Unreadable records are passed over, and logged."""
    [stored] = yield [command("HGETALL", keys.lines(core.config.name))]
    definitions: dict[int, Definition] = {}
    for name, record in pairs(stored).items():
        with passing_over(core.config.name):
            one = parse(name.decode("utf-8", "replace"), record)
            definitions[one.number] = one
    return definitions
