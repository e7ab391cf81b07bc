"""Triage: the topologies of a store by severity and age, the worst first, a page at a time."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias

from acker.errors import ValidationError, shown
from acker.inspect.topology.health import Health
from acker.inspect.topology.troubles import LEVELS, Level
from acker.inspect.topology.unreadable_topology import Damaged
from acker.ledger.fields import Count

Sort: TypeAlias = Literal["name", "triage"]
CURSOR_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
_CURSOR = re.compile(r"([0-9])\.([0-9]{1,15})\.([A-Za-z0-9._-]{1,64})\Z")
_UNKNOWN = 10**15 - 1
"""Stands for a begin that is not known: after all others."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The number of topologies of each severity."""

    critical: Count = 0
    look: Annotated[Count, "That need a look."] = 0
    muted: Count = 0
    well: Count = 0


class Standing(NamedTuple):
    """The severity of a topology. since: since when it has that, in Unix seconds."""

    topology: str
    level: Level
    since: float | None = None

    @property
    def key(self) -> tuple[int, int, str]:
        """The order of triage: by severity; ill ones by age, the oldest trouble first; then by name."""
        since = 0
        if self.level in ("critical", "look"):
            since = _UNKNOWN if self.since is None else int(self.since * 1000)
        return LEVELS.index(self.level), since, self.topology

    @property
    def cursor(self) -> str:
        """The cursor of a page in the order of triage that ends with it."""
        level, since, name = self.key
        return f"{level}.{since}.{name}"


def standing(topology: str, judged: Health | Damaged) -> Standing:
    """The standing of a topology; one that cannot be read is critical."""
    if isinstance(judged, Damaged):
        return Standing(topology, "critical")
    return Standing(topology, judged.severity, judged.since)


def count(standings: Iterable[Standing]) -> Levels:
    """Counts topologies by severity."""
    levels = [one.level for one in standings]
    return Levels(**{level: levels.count(level) for level in LEVELS})


def choose(
    standings: Iterable[Standing], *, states: Sequence[Level] = (), sort: Sort = "triage", cursor: str = ""
) -> list[Standing]:
    """Returns the topologies of some severities in order, after a cursor.

    Args:
        standings: All topologies.
        states: The severities; empty for all.
        sort: The order.
        cursor: The cursor of the page before; a name where `sort` is "name".

    Raises:
        ValidationError: The cursor is of another order.
    """
    after = _parse(cursor) if sort == "triage" and cursor else None
    kept = [candidate for candidate in standings if not states or candidate.level in states]
    if sort == "name":
        return sorted(
            (candidate for candidate in kept if candidate.topology > cursor),
            key=lambda candidate: candidate.topology,
        )
    return sorted(
        (candidate for candidate in kept if after is None or candidate.key > after),
        key=lambda candidate: candidate.key,
    )


def words(levels: Levels) -> str:
    """The counts in words, without zeros: "3 critical, 19 need a look, 183 well"."""
    look = "needs a look" if levels.look == 1 else "need a look"
    named = (
        (levels.critical, "critical"),
        (levels.look, look),
        (levels.muted, "muted"),
        (levels.well, "well"),
    )
    return ", ".join(f"{number:,} {word}" for number, word in named if number)


def _parse(cursor: str) -> tuple[int, int, str]:
    match = _CURSOR.match(cursor)
    if match is None:
        raise ValidationError(f"cursor: expected one of a page in the order of triage, got {shown(cursor)}")
    return int(match[1]), int(match[2]), match[3]
