"""Anchors of lines: a request has a tree for each section of its line, and these have anchors alike.

A line is a list of streams that gather (`acker.lines`); between two of them lies a section. From the anchor
of any of a request's trees those of the others follow, and so does what keeps each open: its gate.

Such an anchor is not negative: the tag 11, the line (5 bits), the section (3 bits), 40 random bits, the index
(12 bits), and a one. The first anchor of a group, without its section, names the group: requests that were
tracked together.
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.store.records import Codec, Count, Name, readable

LINE: Codec[tuple[tuple[str, int, tuple[str, ...]], ...]] = Codec(
    tuple[tuple[Name, Count, tuple[str, ...]], ...], "a line"
)
"""The streams of a line that gather, each with its tasks and the columns of these (`acker.lines.gather`)."""
LINES = 31
"""Lines that a topology has at most: their numbers are 1 to 31."""
SECTIONS = 8
"""Sections that a line has at most: one more than it has streams that gather."""
SPOUT = "acker.sections"
"""The spout that owns all sections of all lines but the last of each, which the line's own spout has."""

_TAG = 3 << 61
_FIRST_BYTE = _TAG >> 56
_LINE_AT, _SECTION_AT = 56, 53
_LINE = 31 << _LINE_AT
_SECTION = 7 << _SECTION_AT
_RANDOM_BITS = 40
_RANDOM_AT = 13
_RANDOM = ((1 << _RANDOM_BITS) - 1) << _RANDOM_AT


def firsts(line: int, section: int, random: Ids) -> Ids:
    """The first anchors of groups, which have their random bits from `random`. section: from 1."""
    head = _TAG | line << _LINE_AT | (section - 1) << _SECTION_AT | 1
    found: Ids = (random & _RANDOM) | head
    return found


def new_first(line: int) -> int:
    """The first anchor of a new group, in its first section."""
    return int(firsts(line, 1, np.array([secrets.randbits(62)], np.int64))[0])


def lines(anchors: Ids) -> Ids:
    """The number of the line that each anchor is of; 0 for an anchor of none."""
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


def everywhere(anchors: Ids, known: Mapping[int, int] | None = None) -> Ids:
    """Anchors, and with those of lines the anchors of the same requests in all sections.

    known: how many sections each line of the topology has, by its number: an anchor of no such line is of a
    slab whose name looks so by chance. None: lines of any number may be there, with all sections.
    """
    numbers, own = lines(anchors), sections(anchors)
    if known is None:
        known = dict.fromkeys(range(1, LINES + 1), SECTIONS) if numbers.any() else {}
    others = [
        within(anchors[(numbers == number) & (own <= count)], section)
        for number, count in known.items()
        for section in range(1, count + 1)
    ]
    found: Ids = np.unique(np.concatenate([anchors, *others])) if any(map(len, others)) else anchors
    return found


def counted(records: Iterable[bytes]) -> dict[int, int] | None:
    """How many sections lines have, by their numbers, as they are stored (lua/lines/declare_line.lua).

    Of a line that cannot be read it is the most; None where not even its number can.
    """
    found = {}
    for record in records:
        number, _, gathers = record.partition(b" ")
        if not (number.isdigit() and 1 <= int(number) <= LINES):
            return None
        members = readable(LINE.load, gathers, f"line {int(number)}")
        found[int(number)] = SECTIONS if members is None else min(SECTIONS, len(members) + 1)
    return found


def group_of(slab: bytes) -> str:
    """The name of the group that a slab is of: 16 hexadecimal digits."""
    return (int.from_bytes(slab, "big") & ~_SECTION).to_bytes(8, "big").hex()


def slab_of(group: str, section: int) -> bytes:
    """The slab of a group's trees in a section."""
    return (int(group, 16) | (section - 1) << _SECTION_AT).to_bytes(8, "big")


def groups(anchors: Ids) -> npt.NDArray[np.uint64]:
    """The groups of anchors, as numbers whose big-endian bytes are their names."""
    return ids.split(within(anchors, 1))[0]


def shards_of(group: str, ackers: int) -> set[int]:
    """The shards of a group's trees, of all sections that there may be."""
    first = int(group, 16)
    slabs = (first | section << _SECTION_AT for section in range(SECTIONS))
    return {ids.shard_of(slab.to_bytes(8, "big"), ackers) for slab in slabs}


def place_of(slab: bytes) -> tuple[int, int]:
    """The line and the section of a slab."""
    first = np.array([ids.anchor_at(slab, 0)], np.int64)
    return int(lines(first)[0]), int(sections(first)[0])


def of_line(slab: bytes) -> bool:
    """Whether a slab is of trees of a line, by its name."""
    return _FIRST_BYTE <= slab[0] < _FIRST_BYTE + (1 << 5)


def mark_of(name: str, record: bytes) -> int:
    """The mark of a line: 64 bits of its name and its definition, as that is stored without its number.

    A store that has lost its lines may give the number of one to another. Their marks differ, and by its mark
    a line opens the gates of its own requests, and of no others.
    """
    digest = hashlib.sha1(b"%b %b" % (name.encode(), record), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def gates(anchors: Ids, mark: int) -> Ids:
    """What keeps the trees of anchors open until the section before is over; none is 0. mark: of their line.

    The mix of SplitMix64, as in `acker.ledger.ids.seeded_ids`: whoever knows an anchor and its line knows its
    gate.
    """
    z = (anchors ^ np.int64(mark)).view(np.uint64)
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    z[z == 0] = np.uint64(1)
    return z.view(np.int64)
