"""The search for the tuples of a tree: in commits that are under way, and in all streams, one by one.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a slot is the random number of a
subscription.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from acker.inspect.locate import tuples
from acker.inspect.locate.line_sections import gathering
from acker.inspect.locate.tuples import Found, Location
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.slabs import sections
from acker.ledger.steps.step_registry import Step
from acker.ledger.trees import cursors
from acker.ledger.trees.trees import Tree
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import Codec, Count, Matching
from acker.store.replies import pairs, whole
from acker.streams.log import gathers, segments

MOST_SEGMENTS = 10_000
"""Segments that one call looks at, about."""
MOST_PLACES = 1_000
"""Places that one call finds, about."""
MOST_SEEN = 200
"""Segments that were found before they were published, and that a cursor names, at most."""
_PAGE = 500
MOST_CURSOR = 16_384
_PLACE = Annotated[str, Matching("[0-9]{1,20}-[0-9]{1,20}")]
_CURSOR: Codec[tuple[int, int, str, str, int, int, frozenset[tuple[str, int]]]] = Codec(
    tuple[int, int, str, _PLACE, int, Count, frozenset[tuple[str, int]]], "a cursor", MOST_CURSOR
)
"""Characters of a cursor."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of a topology, in order: the names of their subscriptions by slot, and their contents."""

    named: Mapping[str, Mapping[int, str | None]]
    segments: int


def streams(core: Core) -> Operation[Streams]:
    """The streams that there are."""
    [stored] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    names = sorted(name.decode("utf-8", "replace") for name in stored)
    keys_of_streams = [keys.Stream(core.config.name, name) for name in names]
    replies = yield [command("HGETALL", stream_keys.subscriptions) for stream_keys in keys_of_streams]
    lengths = yield [command("XLEN", stream_keys.entries) for stream_keys in keys_of_streams]
    named: dict[str, Mapping[int, str | None]] = {}
    for name, reply in zip(names, replies, strict=True):
        fields = pairs(reply)
        slots: dict[int, str | None] = {
            whole(slot[5:], f"stream {name!r}, {slot!r}"): text.decode("utf-8", "replace")
            for slot, text in fields.items()
            if slot.startswith(b"slot:")
        }
        named[name] = slots or {whole(fields.get(b"next"), f"stream {name!r}, next"): None}
    return Streams(named, sum(lengths))


@dataclass(slots=True)
class SearchCursor:
    """The position of a search: its stream, the entry to go on after, and the XOR of the results.

    value: the tree's ack value at the beginning. seen: ids of segments that were read before they were
    published, with their slots.
    """

    value: int
    stream: str = ""
    entry: str = "0-0"
    xor: int = 0
    looked: int = 0
    seen: set[tuple[str, int]] = field(default_factory=set)

    def text(self, anchor: int) -> str:
        """The walk as a cursor: text that the caller hands back unread."""
        # Over so many, completeness is unknown: no pending tree has the value 0.
        seen, value = (frozenset(self.seen), self.value) if len(self.seen) <= MOST_SEEN else (frozenset(), 0)
        what = anchor, value, self.stream, self.entry, self.xor, self.looked, seen
        return cursors.as_text(_CURSOR.dump(what).encode())

    @classmethod
    def parse(cls, text: str, anchor: int) -> "SearchCursor":
        """Parses a cursor. Raises ValidationError for other text, and for another tree's cursor."""
        of, value, stream, entry, xor, looked, seen = cursors.read(_CURSOR, text, MOST_CURSOR)
        if of != anchor or max(map(int, entry.split("-"))) >= 1 << 64:
            raise cursors.malformed()
        return cls(value, stream, entry, xor, looked, set(seen))


def look(
    core: Core, tree: Tree, walk: SearchCursor, streams: Streams, at_work: Iterable[Step]
) -> Operation[tuple[list[Found], bool]]:
    """Finds tuples of a tree from a cursor on; returns True if there may be more."""
    slab = ids.slab_of(tree.anchor)
    wanted = {tree.shard: frozenset([slab])}
    located: list[Found] = []
    if not walk.stream:
        # Before the streams: segments that are published meanwhile are found twice, and count once.
        pending = yield from tuples.under_way(core, streams.named, at_work)
        located = _of((yield from tuples.look(core, pending, wanted)), tree, walk)
        walk.seen = {(one.location.segment.id, one.location.slot) for one in located}
    end = walk.looked + MOST_SEGMENTS
    for name in streams.named:
        if name < walk.stream:
            continue
        if name > walk.stream:
            walk.stream, walk.entry = name, "0-0"
            # Before its entries: segments that are released meanwhile are found twice, but then the tree has
            # gone on.
            there = yield from _gathering(core, name, slab)
            located += _of((yield from tuples.look(core, there, wanted)), tree, walk)
        while True:
            stream_keys = keys.Stream(core.config.name, name)
            [page] = yield [command("XRANGE", stream_keys.entries, f"({walk.entry}", "+", "COUNT", _PAGE)]
            if not page:
                break
            if walk.looked >= end or len(located) >= MOST_PLACES:
                return located, True
            there = [
                Location(name, slot, segment, entry.decode())
                for entry, values in page
                if tree.shard in (segment := segments.readable(pairs(values).get(b"segment", b""))).shards
                for slot in segment.slots
                if (segment.id, slot) not in walk.seen
            ]
            located += _of((yield from tuples.look(core, there, wanted)), tree, walk)
            walk.entry = page[-1][0].decode()
            walk.looked += len(page)
            if len(page) < _PAGE:
                break
    return located, False


def _gathering(core: Core, stream: str, slab: bytes) -> Operation[list[Location]]:
    """Returns the waiting segments of a slab's group in a stream that gathers."""
    how = yield from gathers.read_gathering(core, stream)
    if how is None or sections.place_of(slab)[0] != how.line:
        return []
    return (yield from gathering(core, stream, how, [sections.group_of(slab)]))


def _of(locations: Iterable[Found], tree: Tree, walk: SearchCursor) -> list[Found]:
    """Returns the tree's part of a slab, which the search counts."""
    parts = []
    for location in locations:
        word = location.of(tree.index)
        if word:
            walk.xor ^= word
            parts.append(location)
    return parts
