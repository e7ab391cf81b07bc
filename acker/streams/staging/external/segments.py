"""Segments on their way: rows that were stamped and are not emitted yet, and rows that were worked on.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a segment is the rows of an
external stream that one sender stamped together; a vector has a number for each tree, the XOR of tuple ids; a
delta is the XOR of the ids that a call adds to a tree; a slot is the random number of a subscription; a chunk
is a piece of a vector, applied by one call.
"""

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from acker.ledger import ids
from acker.ledger.calls import encoding
from acker.ledger.calls.core import Core
from acker.ledger.calls.encoding import UpdateCall
from acker.streams.log import segments
from acker.streams.log.segments import Segment
from acker.streams.staging.external import bits
from acker.streams.staging.external.rows.stamps import Head
from acker.streams.staging.external.scripts import Announced, Received

MOST_TREES = 1_000
"""Trees of a segment after which another one is begun: one script emits all that it has in a shard."""

MOST_RECENT, MOST_RECENT_ROWS = 1_000, 1_000_000
"""Segments, and rows of them, whose subscriptions a sender knows behind their flush."""

_HASH = 250
"""Bytes of a segment's hash in the store, beside its vectors."""


@dataclass(slots=True)
class Sent:
    """A segment of an external stream, and what was stamped of it so far.

    Attributes:
        token: Its name, 28 hexadecimal digits.
        seed: Of its tuple ids.
        begun: When it was begun by the store's clock, in Unix seconds.
        anchors: The first anchor of each row, by its position.
        several: The anchors of rows that have not just one, by position.
        unsent: Positions whose rows did not reach the transport, as far as that is known: its bit is set by
            the flush. With a cause the row's trees fail.
        slots: The subscriptions that it is for; None before it is announced.
        key: The number of the key that its stamps have; None for the one that new stamps have.
        head: The common part of its stamps, if its sender has them at hand.
        arrays: Its rows as arrays, as far as they were stamped when they were asked for.
    """

    token: str
    seed: int
    begun: int
    anchors: "array[int]" = field(default_factory=lambda: array("q"))
    several: dict[int, tuple[int, ...]] = field(default_factory=dict)
    unsent: dict[int, bytes] = field(default_factory=dict)
    slots: tuple[int, ...] | None = None
    key: int | None = None
    head: Head | None = None
    arrays: "Stamped | None" = None
    _trees: set[int] = field(default_factory=set)
    _counted: int = 0

    def add(self, anchors: Sequence[int]) -> int:
        """Adds a row with these anchors, and returns its position. An interrupt comes before or after."""
        position = len(self.anchors)
        if len(anchors) == 1:
            self.several.pop(position, None)  # of a call that was interrupted
        else:
            self._trees.update(anchors)
            self.several[position] = tuple(anchors)
        self.anchors.append(anchors[0] if anchors else 0)
        return position

    def add_many(self, anchors: ids.Ids) -> int:
        """Adds a row for each of these anchors, as `add` does, and returns the first position."""
        position = len(self.anchors)
        self.several.pop(position, None)
        self.anchors.frombytes(anchors.tobytes())
        return position

    def room(self) -> int:
        """The number of further trees that it takes at least."""
        if len(self.anchors) < MOST_TREES and not self._trees:
            return MOST_TREES - len(self.anchors)
        self._trees.update(self.anchors[self._counted :])
        self._counted = len(self.anchors)
        return MOST_TREES - len(self._trees)

    def anchors_of(self, position: int) -> tuple[int, ...]:
        """The anchors of a row."""
        several = self.several.get(position)
        return (self.anchors[position],) if several is None else several

    def lose(self, position: int, cause: bytes) -> None:
        """Notes that a row did not reach the transport. A flush may copy `unsent` at this moment."""
        self.unsent[position] = cause or self.unsent.get(position, b"")

    def announced(self, shards: Sequence[int]) -> Announced:
        """Returns its announcement."""
        own = Segment(self.token, len(self.anchors), self.seed, self.weight(), tuple(shards), ())
        return announced_of(own, self.begun)

    def weight(self) -> int:
        """Returns about the bytes of its vectors for one subscription."""
        return self._stamped().weight()

    def tuples(self) -> int:
        """Returns the number of its tuple ids: one for each anchor of each row."""
        return len(self._stamped().anchors)

    def shards(self, ackers: int) -> dict[int, "Here"]:
        """The shards of the segment, each with the rows that have anchors there."""
        return self._stamped().shards(ackers)

    def vectors(self, slot: int, ackers: int) -> dict[int, list[UpdateCall]]:
        """The XOR of its tuples' ids for a subscription, by shard, as chunks of one call."""
        return self._stamped().vectors(slot, ackers)

    def _stamped(self) -> "Stamped":
        if self.arrays is None or len(self.arrays.lengths) != len(self.anchors):
            lengths = np.ones(len(self.anchors), np.int64)
            anchors = np.frombuffer(self.anchors.tobytes(), np.int64)
            if self.several:
                rows = [self.anchors_of(position) for position in range(len(lengths))]
                lengths = np.fromiter(map(len, rows), np.int64)
                anchors = np.fromiter(chain.from_iterable(rows), np.int64)
            self.arrays = Stamped(self.token, self.seed, self.begun, lengths, anchors)
        return self.arrays


def latest(earlier: Mapping[str, Sent], later: Iterable[Sent]) -> dict[str, Sent]:
    """The latest segments by token, as many as there is room for."""
    recent = dict(earlier) | {segment.token: segment for segment in later}
    rows = sum(len(segment.anchors) for segment in recent.values())
    for token in list(recent):
        if len(recent) <= MOST_RECENT and rows <= MOST_RECENT_ROWS:
            break
        rows -= len(recent.pop(token).anchors)
    return recent


@dataclass(frozen=True, slots=True)
class Stamped:
    """A whole segment, its anchors as arrays.

    Attributes:
        token, seed, begun: As in `Sent`.
        lengths: The number of anchors of each row.
        anchors: The anchors of all rows, row by row.
    """

    token: str
    seed: int
    begun: int
    lengths: ids.Ids
    anchors: ids.Ids

    def weight(self) -> int:
        """Returns about the bytes of its vectors for one subscription."""
        return _weight(ids.distinct(self.anchors))

    def shards(self, ackers: int) -> dict[int, "Here"]:
        """The shards of the segment, each with the rows that have anchors there."""
        places = np.repeat(np.arange(len(self.lengths)), self.lengths)
        of = ids.shards_of(ids.split(self.anchors)[0], ackers)
        return {shard: Here(ids.distinct(places[of == shard])) for shard in ids.distinct(of).tolist()}

    def vectors(self, slot: int, ackers: int) -> dict[int, list[UpdateCall]]:
        """The XOR of its tuples' ids for a subscription, by shard, as chunks of one call."""
        edges = segments.edge_ids(self.seed, slot, np.arange(len(self.anchors)))
        return chunks_of(self.anchors, edges, ackers)


@dataclass(frozen=True, slots=True)
class Here:
    """The positions of a segment that have anchors in a shard."""

    positions: np.ndarray[tuple[int], np.dtype[np.int64]]

    def fields(self, rows: int, ttl: int) -> dict[str, bytes | str]:
        """Returns the fields of their hash in the shard (lua/streams/includes/external.lua).

        rows: The rows of the segment. ttl: Seconds for which it waits to be emitted.
        """
        here = len(self.positions)
        fields: dict[str, bytes | str] = {"rows": f"{here} {here} {ttl} {rows}"}
        if here < rows:
            flags = np.zeros(rows, dtype=np.uint8)
            flags[self.positions] = 1
            fields["mask"] = np.packbits(flags).tobytes()
        return fields


def _weight(trees: ids.Ids) -> int:
    """About the bytes of a vector of distinct trees."""
    slabs, places = ids.split(trees)
    order = np.argsort(slabs)
    starts = np.flatnonzero(np.diff(slabs[order], prepend=slabs[order[0]] ^ np.uint64(1)))
    counts = np.diff(starts, append=len(order))
    highest = np.maximum.reduceat(places[order], starts)
    # A slab's deltas are a vector up to the highest index, or pairs of an index and a delta.
    return _HASH + int(np.minimum(8 * (highest + 1), 10 * counts).sum() + 10 * len(starts))


def chunks_of(anchors: ids.Ids, deltas: ids.Ids, ackers: int) -> dict[int, list[UpdateCall]]:
    """Deltas of trees by shard, as chunks that one call may apply together."""
    by_shard = _by_shard(encoding.update_calls(anchors, deltas, ackers))
    words = [
        sum(len(vector) for chunk in chunks for vector in chunk.vectors) // 8 for chunks in by_shard.values()
    ]
    if max(words, default=0) <= encoding.CALL_WORDS and max(map(len, by_shard.values()), default=0) <= 3:
        return by_shard
    return _by_shard(encoding.update_calls(anchors, deltas, ackers, pairs=True))


def _by_shard(calls: Iterable[UpdateCall]) -> dict[int, list[UpdateCall]]:
    by_shard: dict[int, list[UpdateCall]] = {}
    for call in calls:
        by_shard.setdefault(call.shard, []).append(call)
    return by_shard


def announced_of(segment: Segment, begun: int) -> Announced:
    """The announcement of a segment, whatever slots it was staged for.

    segment: Its `bytes` are about the bytes of its vectors for one subscription. begun: in Unix seconds.
    """
    before, after = _around_slots(replace(segment, slots=(), bytes=0).dump())
    return Announced(segment.id, begun, segment.rows, segment.bytes, before, after)


def _around_slots(record: str) -> tuple[str, str]:
    """The record of a segment without slots, before and after the place of them."""
    marker = ",[],"
    at = record.index(marker) + 2  # the shards before it are never empty
    return record[:at], record[at:]


@dataclass(slots=True)
class Worked:
    """Rows of a segment in a shard that a subscription has worked on, and their fails.

    Attributes:
        positions: Positions of rows that were worked on.
        more: Further ones, as arrays.
        fails: The trees of each failed row in the shard, and a cause, by position.
    """

    positions: set[int] = field(default_factory=set)
    more: list[ids.Ids] = field(default_factory=list)
    fails: dict[int, tuple[tuple[int, ...], bytes]] = field(default_factory=dict)

    def parts(self, staged: bytes, most_fails: int) -> Iterable[Received]:
        """Divides the rows into calls: each fails at most `most_fails` trees, or one row."""
        if not self.fails:
            worked = np.fromiter(self.positions, np.int64, len(self.positions))
            yield Received(staged, bits.pack(np.concatenate([worked, *self.more])), b"")
            return
        positions = self.positions.union(*(positions.tolist() for positions in self.more))
        part, trees = dict[int, tuple[tuple[int, ...], bytes]](), 0
        for position, (anchors, cause) in self.fails.items():
            if part and trees + len(anchors) > most_fails:
                yield Received(staged, bits.pack(part), packed(part))
                positions -= part.keys()
                part, trees = {}, 0
            part[position] = (anchors, cause)
            trees += len(anchors)
        yield Received(staged, bits.pack(positions), packed(part))


@dataclass(frozen=True, slots=True)
class WorkedBits:
    """The same, with the positions as a bitmap."""

    bitmap: bytes
    fails: dict[int, tuple[tuple[int, ...], bytes]]

    def parts(self, staged: bytes, most_fails: int) -> Iterable[Received]:
        """Divides the rows into calls, as `Worked.parts` does."""
        if not self.fails:
            return [Received(staged, self.bitmap.rstrip(b"\0"), b"")]
        return Worked(set(bits.unpack(self.bitmap)), fails=self.fails).parts(staged, most_fails)


def packed(fails: dict[int, tuple[tuple[int, ...], bytes]]) -> bytes:
    """Fails of rows as lua/streams/includes/external.lua has them."""
    pieces = []
    for position, (anchors, cause) in fails.items():
        trees = b"".join([ids.slab_of(one) + struct.pack("<H", ids.index_of(one)) for one in anchors])
        pieces.append(
            struct.pack("<HB", position, len(anchors)) + trees + struct.pack("<H", len(cause)) + cause
        )
    return b"".join(pieces)


def unsent_of(core: Core, sent: Sent, shard: int, rows: Mapping[int, bytes]) -> Worked:
    """Rows of a segment that did not reach the transport: their bits are set, and those with a cause fail."""
    ackers = core.config.ackers
    worked = Worked()
    for position, cause in rows.items():
        here = tuple(
            one for one in sent.anchors_of(position) if ids.shard_of(ids.slab_of(one), ackers) == shard
        )
        if here:
            worked.positions.add(position)
            if cause:
                worked.fails[position] = (here, cause)
    return worked
