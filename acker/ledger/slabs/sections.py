"""Anchors of lines: a request has a tree for each section of its line, and their anchors are alike.

A line is a list of gathering streams (`acker.lines`); a section lies between two of them. The anchor of one
of a request's trees gives the anchors of the others, and the gate of each, which keeps it open.

Such an anchor is not negative: the tag 11, the line (5 bits), the section (3 bits), 40 random bits, the index
(12 bits), and a one. Requests that were tracked together are a group. The first anchor of a group, without
its section, names the group.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a gate is
an id that keeps a tree open until rows may come into it; a group is requests of a line that were tracked
together.
"""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.store.records import Codec, Count, Name, readable

LINE: Codec[tuple[tuple[str, int, tuple[str, ...]], ...]] = Codec(
    tuple[tuple[Name, Count, tuple[str, ...]], ...], "a line"
)
"""The gathering streams of a line, each with its tasks and their columns (`acker.lines.gather`)."""
LINES = 31
"""Most lines of a topology: their numbers are 1 to 31."""
SECTIONS = 8
"""Most sections of a line: one more than its gathering streams."""
SPOUT = "acker.sections"
"""The spout of all sections of lines, except the last section of each, which the line's spout has."""

_TAG = 3 << 61
_FIRST_BYTE = _TAG >> 56
_LINE_AT, _SECTION_AT = 56, 53
_LINE = 31 << _LINE_AT
_SECTION = 7 << _SECTION_AT
_RANDOM_BITS = 40
_RANDOM_AT = 13
_RANDOM = ((1 << _RANDOM_BITS) - 1) << _RANDOM_AT


def firsts(line: int, section: int, random: Ids) -> Ids:
    """The first anchors of groups, with random bits from `random`. section: from 1."""
    head = _TAG | line << _LINE_AT | (section - 1) << _SECTION_AT | 1
    found: Ids = (random & _RANDOM) | head
    return found


def lines(anchors: Ids) -> Ids:
    """The number of each anchor's line; 0 for an anchor without a line."""
    tagged = (anchors >= 0) & ((anchors & _TAG) == _TAG)
    return np.where(tagged, (anchors & _LINE) >> _LINE_AT, 0)


def sections(anchors: Ids) -> Ids:
    """The section of each anchor of a line, from 1."""
    found: Ids = ((anchors & _SECTION) >> _SECTION_AT) + 1
    return found


def within(anchors: Ids, section: int) -> Ids:
    """The anchors of the same requests in a section."""
    found: Ids = (anchors & ~_SECTION) | (section - 1) << _SECTION_AT
    return found


def everywhere(anchors: Ids, section_counts: Mapping[int, int] | None = None) -> Ids:
    """Anchors, and for each anchor of a line the anchors of its request in all sections.

    section_counts: number of sections of each line of the topology, by the line's number. An anchor of
    another line belongs to a slab whose name looks so by chance. None: any line may exist, with all sections.
    """
    numbers, section_of = lines(anchors), sections(anchors)
    if section_counts is None:
        section_counts = dict.fromkeys(range(1, LINES + 1), SECTIONS) if numbers.any() else {}
    others = [
        within(anchors[(numbers == number) & (section_of <= count)], section)
        for number, count in section_counts.items()
        for section in range(1, count + 1)
    ]
    result: Ids = np.unique(np.concatenate([anchors, *others])) if any(map(len, others)) else anchors
    return result


def counted(records: Iterable[bytes]) -> dict[int, int] | None:
    """Numbers of sections of stored lines, by the lines' numbers (lua/lines/declare_line.lua).

    An unreadable line has the most sections; None if not even its number can be read.
    """
    by_number = {}
    for record in records:
        number, _, gathers = record.partition(b" ")
        if not (number.isdigit() and 1 <= int(number) <= LINES):
            return None
        members = readable(LINE.load, gathers, f"line {int(number)}")
        by_number[int(number)] = SECTIONS if members is None else min(SECTIONS, len(members) + 1)
    return by_number


def group_of(slab: bytes) -> str:
    """The name of a slab's group: 16 hexadecimal digits."""
    return (int.from_bytes(slab, "big") & ~_SECTION).to_bytes(8, "big").hex()


def slab_of(group: str, section: int) -> bytes:
    """The slab of a group's trees in a section."""
    return (int(group, 16) | (section - 1) << _SECTION_AT).to_bytes(8, "big")


def groups(anchors: Ids) -> npt.NDArray[np.uint64]:
    """The groups of anchors, as numbers whose big-endian bytes are their names."""
    return ids.split(within(anchors, 1))[0]


def shards_of(group: str, ackers: int) -> set[int]:
    """The shards of a group's trees, in all possible sections."""
    first = int(group, 16)
    slabs = (first | section << _SECTION_AT for section in range(SECTIONS))
    return {ids.shard_of(slab.to_bytes(8, "big"), ackers) for slab in slabs}


def place_of(slab: bytes) -> tuple[int, int]:
    """The line and the section of a slab."""
    first = np.array([ids.anchor_at(slab, 0)], np.int64)
    return int(lines(first)[0]), int(sections(first)[0])


def of_line(slab: bytes) -> bool:
    """True if a slab's name is a name of a line's trees."""
    return _FIRST_BYTE <= slab[0] < _FIRST_BYTE + (1 << 5)


def mark_of(name: str, record: bytes) -> int:
    """The mark of a line: 64 bits of its name and its definition, which is stored without its number.

    A store that has lost its lines may give a line's number to another line. Their marks differ, and a line's
    mark opens only the gates of its own requests.
    """
    digest = hashlib.sha1(b"%b %b" % (name.encode(), record), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def gates(anchors: Ids, mark: int) -> Ids:
    """The gates of anchors, which keep their trees open until the section before is over; none is 0.

    mark: the mark of their line. A gate is the mix of SplitMix64, as in `acker.ledger.ids.seeded_ids`, so it
    follows from the anchor and its line.
    """
    z = (anchors ^ np.int64(mark)).view(np.uint64)
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    z[z == 0] = np.uint64(1)
    return z.view(np.int64)
