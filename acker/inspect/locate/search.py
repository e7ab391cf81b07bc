"""The search for the tuples of a tree: in commits that are under way, and in all streams, one by one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from acker.inspect.locate import tuples
from acker.inspect.locate.line_sections import gathering
from acker.inspect.locate.tuples import Found, Lying
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
    """The streams of a topology, in order: the names of their subscriptions by slot, and what they hold."""

    named: Mapping[str, Mapping[int, str | None]]
    segments: int


def streams(core: Core) -> Operation[Streams]:
    """The streams that there are."""
    [stored] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    names = sorted(name.decode("utf-8", "replace") for name in stored)
    own = [keys.Stream(core.config.name, name) for name in names]
    found = yield [command("HGETALL", one.subscriptions) for one in own]
    lengths = yield [command("XLEN", one.entries) for one in own]
    named: dict[str, Mapping[int, str | None]] = {}
    for name, reply in zip(names, found, strict=True):
        fields = pairs(reply)
        slots: dict[int, str | None] = {
            whole(slot[5:], f"stream {name!r}, {slot!r}"): text.decode("utf-8", "replace")
            for slot, text in fields.items()
            if slot.startswith(b"slot:")
        }
        named[name] = slots or {whole(fields.get(b"next"), f"stream {name!r}, next"): None}
    return Streams(named, sum(lengths))


@dataclass(slots=True)
class Walk:
    """How far a look has come: the stream it is in, after which entry, and the XOR of what was found.

    value: the tree's ack value when it began. seen: tokens of segments that were found before they were
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
        # Over so many, whether all was found cannot be known: no tree that is pending has the value 0.
        seen, value = (frozenset(self.seen), self.value) if len(self.seen) <= MOST_SEEN else (frozenset(), 0)
        what = anchor, value, self.stream, self.entry, self.xor, self.looked, seen
        return cursors.as_text(_CURSOR.dump(what).encode())

    @classmethod
    def parse(cls, text: str, anchor: int) -> "Walk":
        """The inverse of `text`; ValidationError for anything else, and for a cursor of another tree."""
        of, value, stream, entry, xor, looked, seen = cursors.read(_CURSOR, text, MOST_CURSOR)
        if of != anchor or max(map(int, entry.split("-"))) >= 1 << 64:
            raise cursors.malformed()
        return cls(value, stream, entry, xor, looked, set(seen))


def look(
    core: Core, tree: Tree, walk: Walk, known: Streams, at_work: Iterable[Step]
) -> Operation[tuple[list[Found], bool]]:
    """Tuples of a tree from where a walk is; whether there is more."""
    slab = ids.slab_of(tree.anchor)
    wanted = {tree.shard: frozenset([slab])}
    found: list[Found] = []
    if not walk.stream:
        # Before the streams: what is published meanwhile is found twice, and counts once.
        pending = yield from tuples.under_way(core, known.named, at_work)
        found = _of((yield from tuples.look(core, pending, wanted)), tree, walk)
        walk.seen = {(one.lying.segment.token, one.lying.slot) for one in found}
    end = walk.looked + MOST_SEGMENTS
    for name in known.named:
        if name < walk.stream:
            continue
        if name > walk.stream:
            walk.stream, walk.entry = name, "0-0"
            # Before its entries: what is released meanwhile is found twice, but then the tree has gone on.
            there = yield from _gathering(core, name, slab)
            found += _of((yield from tuples.look(core, there, wanted)), tree, walk)
        while True:
            own = keys.Stream(core.config.name, name)
            [page] = yield [command("XRANGE", own.entries, f"({walk.entry}", "+", "COUNT", _PAGE)]
            if not page:
                break
            if walk.looked >= end or len(found) >= MOST_PLACES:
                return found, True
            there = [
                Lying(name, slot, segment, entry.decode())
                for entry, values in page
                if tree.shard in (segment := segments.readable(pairs(values).get(b"segment", b""))).shards
                for slot in segment.slots
                if (segment.token, slot) not in walk.seen
            ]
            found += _of((yield from tuples.look(core, there, wanted)), tree, walk)
            walk.entry = page[-1][0].decode()
            walk.looked += len(page)
            if len(page) < _PAGE:
                break
    return found, False


def _gathering(core: Core, stream: str, slab: bytes) -> Operation[list[Lying]]:
    """What waits in a stream that gathers, of the group that a slab is of."""
    how = yield from gathers.of(core, stream)
    if how is None or sections.place_of(slab)[0] != how.line:
        return []
    return (yield from gathering(core, stream, how, [sections.group_of(slab)]))


def _of(found: Iterable[Found], tree: Tree, walk: Walk) -> list[Found]:
    """What of a slab is the tree's, which the walk counts."""
    own = []
    for one in found:
        word = one.of(tree.index)
        if word:
            walk.xor ^= word
            own.append(one)
    return own
