"""Flights that go again, because a shard did not know what its process knows."""

from typing import Any

from acker.ledger import ids
from tests.helpers.builders.collectors import Make


def test_what_was_full_at_its_emit_is_acked_if_another_shard_has_refused_the_flight(make: Make) -> None:
    """A flight goes again where a shard tells of a spout: the shards before it have emitted by then."""
    made, step, last = make(ackers=2), make(), make()
    items = step.incoming("items", subscription="count")
    words, sink = step.outgoing("words"), last.incoming("words", subscription="sink")
    by_shard: dict[int, list[Any]] = {0: [], 1: []}
    spout, out, count = made.spout("s"), made.outgoing("items", segment_rows=1), 0
    while min(map(len, by_shard.values())) < 2:
        [tracked] = spout.emit(f"m{count}")
        shard, count = ids.shard_of_anchor(tracked.anchors[0], 2), count + 1
        by_shard[shard].append(out.stamp(tracked))
    made.flush()
    items.ack(items.read(by_shard[0][1:]))
    step.flush()  # it knows the spouts of one shard
    rows = items.read([by_shard[0][0], *by_shard[1]])
    texts = [words.stamp(row) for row in rows]
    items.ack(rows)
    sink.ack(sink.read(texts))
    last.flush()
    step.flush()
    assert made.counters()["acked"] == count
