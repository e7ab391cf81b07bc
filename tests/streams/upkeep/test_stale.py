"""Rows whose trees are over are not given to a reader: they are dropped and counted."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.store import keys
from acker.streams import Stream
from acker.streams.commits.contents import Commit
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import Range
from acker.streams.reader import payload_of
from acker.streams.staging import acks
from acker.streams.upkeep import stale
from tests.helpers.builders.line_job import new_first
from tests.helpers.builders.streaming import ack, commit, delivered, emit, stage, take, track
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster(slow=True)


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


def read(ledger: Ledger, batch: Range, everything: bool = False) -> list[Any]:
    """The anchors of the rows that a reader is given."""
    batches: list[Any] = []
    members: list[Segment] = [piece.segment for piece in delivered(ledger, batch)]
    plan = stale.plan(ledger.core, batch.stream, batch.slot, members, everything=everything)
    planned = ledger.run(plan)
    for segment in planned.members:
        [payload] = ledger.run(payload_of(ledger, batch.stream, [segment]))
        assert payload is not None
        own = stale.rows(ledger.core, batch.stream, segment, batch.slot, payload, planned.left)
        for rows in ledger.run(own):
            batches += rows.column(ANCHORS).to_pylist()
    return batches


def dropped(ledger: Ledger, stream: str = "lines") -> int:
    [one] = Stream(ledger, stream).totals().subscriptions
    return one.rows_stale


def test_rows_of_trees_that_have_expired_are_dropped_and_counted_once(ledger: Ledger) -> None:
    emit(ledger, 2500)
    batch = take(ledger, "lines")
    expire(ledger)
    for _ in range(3):
        assert read(ledger, batch) == []
        assert dropped(ledger) == 2500
    assert len(read(ledger, batch, everything=True)) == 2500
    with raw_client(ledger.store.url) as client:  # confirmed and forgotten
        for shard in ledger.core.shards:
            client.delete(shard.slabs.decode())
    assert read(ledger, batch) == []


def test_rows_of_ended_requests_are_dropped_also_where_others_came_late(ledger: Ledger) -> None:
    """A late message for a forgotten tree waits for its track; a line's track came before its rows."""
    for anchors, given in ((ids.anchors_from(new_first(1), 2), 0), (ids.new_anchors(2), 2)):
        name = f"rows-{given}"
        commit(ledger, given, Commit((stage(ledger, anchors, name),)))
        assert len(read(ledger, take(ledger, name))) == given
        assert dropped(ledger, name) == 2 - given


def test_rows_of_trees_that_somebody_failed_are_dropped_and_the_others_are_read(ledger: Ledger) -> None:
    anchors = emit(ledger, 2500)
    batch = take(ledger, "lines")
    ledger.fail(anchors[1::2])
    assert read(ledger, batch) == anchors[::2].tolist()
    assert dropped(ledger) == 1250
    ack(ledger, batch)
    assert ledger.counters()["acked"] == 1250


@pytest.mark.parametrize("slab", [1, 1000])
def test_a_row_of_several_trees_is_stale_when_all_of_them_are_over(ledger: Ledger, slab: int) -> None:
    anchors = track(ledger, values := ids.new_ids(6), slab=slab).tolist()
    a, b, c, d, e, f = anchors
    rows = [[a, b], [b], [c, d], [0], [], [e], [a, 0]]
    commit(
        ledger,
        0,
        Commit(
            (
                stage(
                    ledger,
                    rows,
                    "lines",
                ).as_said_unanchored(),
            )
        ),
    )
    ledger.update(np.array(anchors), values)
    batch = take(ledger, "lines")
    assert read(ledger, batch) == rows
    ledger.fail([a, c, d])
    assert read(ledger, batch) == [[a, b], [b], [0], [], [e]]
    ledger.fail([b, f])
    assert read(ledger, batch) == [[0], [], [e]]


def test_rows_without_trees_and_those_whose_track_has_still_to_come_are_read(ledger: Ledger) -> None:
    early = ids.new_anchors(3)
    commit(ledger, 0, Commit((stage(ledger, early.tolist(), "lines"),)))
    commit(ledger, 1, Commit((stage(ledger, [0, 0], "lines").as_said_unanchored(),)))
    assert read(ledger, take(ledger, "lines")) == [*early.tolist(), 0, 0]


def test_what_cannot_be_read_of_a_slab_is_not_over(ledger: Ledger) -> None:
    anchors = emit(ledger, 5)
    batch = take(ledger, "lines")
    slab = ids.slab_of(int(anchors[0]))
    [shard] = [ledger.core.shards[ids.shard_of(slab, 3)]]
    with raw_client(ledger.store.url) as client:
        header = client.hget(shard.slabs.decode(), slab)
        for bad in (b"\x09" + header[1:], header + b"more", b""):
            client.hset(shard.slabs.decode(), slab, bad)
            client.hset(shard.slabs.decode(), "x", bad)
            assert read(ledger, batch) == anchors.tolist()
        client.hdel(shard.slabs.decode(), "x")
        client.hset(shard.slabs.decode(), slab, header)


def test_what_was_acked_is_read_again_as_it_was(ledger: Ledger) -> None:
    anchors = emit(ledger, 5)
    batch = take(ledger, "lines")
    ack(ledger, batch)
    assert read(ledger, batch) == anchors.tolist()


def test_a_subscription_that_was_dropped_counts_nothing(ledger: Ledger) -> None:
    emit(ledger, 5)
    batch = take(ledger, "lines")
    [segment] = [piece.segment for piece in delivered(ledger, batch)]
    [payload] = ledger.run(payload_of(ledger, "lines", [segment]))
    assert payload is not None
    expire(ledger)
    with raw_client(ledger.store.url) as client:
        client.hdel(keys.Stream("t", "lines").subscriptions.decode(), f"slot:{batch.slot}")
        assert ledger.run(
            stale.rows(ledger.core, "lines", segment, batch.slot, payload, {segment.id: None})
        ) == [
            pa.RecordBatch.from_pylist([], schema=one.schema)
            for one in ledger.run(acks.rows(ledger.core, "lines", segment, batch.slot, payload))
        ]
        assert client.hget(keys.Stream("t", "lines").subscriptions.decode(), "stale:0") is None
