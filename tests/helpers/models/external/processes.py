"""The processes of the model: a source, members of a group, a reader of its own, and a sink.

Each begins with nothing but committed offsets, and may die between any two steps.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.helpers.models.external.flush import Actor, Flush, Segment, Work, carry_out, edge
from tests.helpers.models.external.stream import Refused, Row
from tests.helpers.models.external.truth import Done

if TYPE_CHECKING:
    from tests.helpers.models.external.world import World

SEGMENT, BATCH = 2, 2
"""Rows of a segment, and records of a batch."""


class Unavailable(Exception):
    """A reply is lost: the process does not know what has taken effect, and flushes again."""


def source(world: "World") -> Actor:
    """Reads records from its committed offset, and sends rows of them."""
    key, spent = world.streams["items"].key, ""
    while (first := world.offsets["source"]) < world.scenario.records:
        sending = _Sending(world, "items", key, spent)
        batch = range(first, min(first + BATCH, world.scenario.records))
        anchors = world.new_trees(len(batch))
        sending.flush.taken_at = world.now
        for record, anchor in zip(batch, anchors, strict=True):
            value = edge("root", anchor)
            place = world.place(anchor), world.slab_of(anchor)
            sending.flush.tracks.setdefault(place, {})[anchor] = value
            sending.flush.taken[anchor] = value
            work = Done(None, 0, (anchor,))
            sending.works.append(work)
            world.truth.add(work)
            for number in range(edge("count", record) % 3):
                others = [other for other in anchors if other != anchor and edge(record, number) % 4 == 0]
                yield from sending.produce((anchor, *others), f"{record}.{number}", work)
        before = world.rotations
        if world.scenario.apart:
            world.running[world.new_name("spout")] = spout(world, sending.flush.tracks)
            sending.flush.tracks = {}
        yield from sending.send()
        spent = sending.flush.name
        for anchor in anchors:
            world.truth.completed[anchor] = world.rotations - before
        world.offsets["source"] = max(world.offsets["source"], batch.stop)


def spout(world: "World", tracks: dict[tuple[int, Any], dict[int, int]]) -> Actor:
    """Another process, which tracks the trees whose tuples the source has taken over."""
    for _ in range(world.chance.choice((1, 5, 30))):
        yield
    for (shard, slab), values in tracks.items():
        yield
        world.call_surely(shard, "track", slab, values)


def consumer(world: "World", group: str, stream: str, slot: int, to: str) -> Actor:
    """Reads rows from the group's committed offset, and makes a row of most of them."""
    key, rules = world.streams[stream].key, world.rules
    at, spent = world.offsets[group], ""
    known: dict[tuple[str, int], bool] = {}
    looked_at = world.now
    while at < len(world.transports[stream].rows):
        sending = _Sending(world, to, key, spent)
        end = min(at + world.chance.choice((1, 2, 3)), len(world.transports[stream].rows))
        reading = list[tuple[Row, Done, int]]()
        if world.now - looked_at > 2:
            known, looked_at = {}, world.now
        for place in range(at, end):
            if place in world.transports[stream].lost:
                continue
            row = world.transports[stream].rows[place]
            yield
            kept = world.look(row, stream, slot, key, known)
            work = Done(row, slot, kept)
            reading.append((row, work, place))
            sending.works.append(work)
            world.truth.add(work)
        if not rules.bits_after:
            early = _Sending(world, to, key, "")
            _ack(early.flush, world, stream, slot, reading)
            yield from early.send()
        for row, work, _ in reading:
            if world.is_garbled(group, row):
                work.failed = True
            elif to and edge(group, "child", row.content) % 4:
                yield from sending.produce(work.tracked, world.child(group, row.content), work, row)
        if rules.bits_after:
            _ack(sending.flush, world, stream, slot, reading)
        first = not rules.offsets_last or (world.scenario.offsets_first and world.chance.random() < 0.5)
        if first:
            if rules.offsets_last:
                world.truth.lost |= {row.token for row, *_ in reading}  # lost where the flush does not come
            world.offsets[group] = max(world.offsets[group], end)
            yield
        yield from sending.send()
        world.offsets[group] = max(world.offsets[group], end)
        at, spent = end, sending.flush.name


def _ack(flush: Flush, world: "World", stream: str, slot: int, reading: list[tuple[Row, Done, int]]) -> None:
    """Adds bits and fails of rows to a flush."""
    work = flush.received.setdefault((stream, slot), Work())
    for row, done, place in reading:
        anchors = done.tracked if world.rules.one_look else world.look(row, stream, slot, flush.key, {})
        shards = {world.place(anchor) for anchor in anchors}
        if shards:
            work.newest = max(work.newest, row.sent)
        for shard in shards if world.rules.own_shards else range(len(world.shards)) if shards else ():
            bits = work.bits.setdefault((row.token, shard), set())
            bits.add(world.bit(row.position, place))
            if world.scenario.rest and edge("rest", row.token) % 3 == 0 and world.rules.counts == "positions":
                bits |= {row.position + SEGMENT, row.position + 9}
            if done.failed:
                trees = tuple(anchor for anchor in anchors if world.place(anchor) == shard)
                work.fails.setdefault((row.token, shard), {})[row.position] = trees


class _Sending:
    """The rows that a process sends with its next flush."""

    def __init__(self, world: "World", stream: str, key: int, spent: str) -> None:
        self.world, self.stream, self.spent = world, stream, spent
        self.flush = Flush(world.new_name("flush"), key)
        self.works: list[Done] = []

    def produce(
        self, anchors: tuple[int, ...], content: str, work: Done, parent: Row | None = None
    ) -> Iterator[None]:
        """Stamps a row, and gives it to the transport."""
        world, name = self.world, self.stream
        key, life = self.flush.key, world.life
        if not anchors:
            yield
            world.append(name, Row("", 0, (), world.now, key, content, life))
            return
        segments = self.flush.out.setdefault(name, [])
        if not segments or len(segments[-1].rows) >= SEGMENT:
            segments.append(Segment(world.new_name("segment"), world.now))
        segment = segments[-1]
        row = Row(segment.token, len(segment.rows), anchors, segment.sent, key, content, life)
        segment.rows.append(row)
        yield
        if world.scenario.undelivered and world.odd(0.1):
            withdrawn = world.chance.random() < 0.3
            segment.unsent[row.position] = not withdrawn
            if withdrawn:
                return
            world.truth.undelivered |= set(anchors)
            work.made.append((name, row))
            if world.chance.random() < 0.6:
                return
        else:
            work.made.append((name, row))
        world.append(name, row)

    def send(self) -> Actor:
        """Flushes; again where a reply is lost. Raises Refused."""
        for work in self.works:
            work.flushed = True
        while True:
            try:
                yield from carry_out(self.world, self.flush, self.spent)
            except Unavailable:
                continue
            return


__all__ = ["Refused", "Unavailable", "consumer", "source"]
