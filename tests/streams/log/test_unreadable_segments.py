"""Segments that cannot be read: passed over and counted; all who use their stream go on."""

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import UnreadableRecord
from acker.inspect.topology.totals import unreadable
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.streams import Stream, StreamReader, StreamWriter
from acker.streams.commits.contents import Commit
from acker.streams.log import subscriptions
from acker.streams.log.subscriptions import Range
from acker.streams.staging import acks, vectors
from tests.helpers.builders.streaming import commit, consume, emit, rows, slot_of, stage, take
from tests.helpers.faults.unreadable_segments import BROKEN, counted

pytestmark = pytest.mark.cluster(slow=True, first=True)

LINES = keys.Stream("t", "lines")


TOO_LARGE = struct.pack("<q", 1 << 60)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, message_timeout=600.0)


def spoil(ledger: Ledger, raw: Any, batch: Range, place: int, change: Callable[[bytes], bytes]) -> str:
    """Changes the rows of a segment of a batch; returns its id."""
    segment_id = ledger.run(subscriptions.delivered(ledger.core, batch))[place].segment.id
    raw.set(LINES.payload(segment_id), change(raw.get(LINES.payload(segment_id))))
    return segment_id


def read(ledger: Ledger, raw: Any, batch: Range) -> list[int]:
    """Reads a batch as its tasks do: the rows of each segment."""
    counts = []
    for piece in ledger.run(subscriptions.delivered(ledger.core, batch)):
        payload = raw.get(LINES.payload(piece.segment.id))
        if payload is not None:
            found = ledger.run(acks.rows(ledger.core, "lines", piece.segment, batch.slot, payload))
            counts.append(sum(part.num_rows for part in found))
    return counts


@pytest.mark.parametrize("how", BROKEN)
def test_rows_that_cannot_be_read_are_passed_over_and_their_trees_expire(
    ledger: Ledger, raw: Any, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    good, _ = emit(ledger, 300), emit(ledger, 200)
    batch = take(ledger, "lines")
    segment_id = spoil(ledger, raw, batch, 1, BROKEN[how])
    for _ in range(2):  # as often as the batch is evaluated
        assert read(ledger, raw, batch) == [300, 0]
    assert commit(ledger, 0, Commit((stage(ledger, good),), (batch,)))
    consume(ledger, "words")
    assert ledger.counters()["acked"] == 300
    assert counted(ledger) == {"tracked": 500, "acked": 300, "expired": 200}
    assert ledger.run(unreadable(ledger.core)) == 1
    assert f"segment {segment_id} of stream lines cannot be read" in caplog.text
    assert raw.xlen(LINES.entries) == 0


def test_rows_that_nobody_would_replay_are_an_error_and_stay(ledger: Ledger, raw: Any) -> None:
    StreamWriter(ledger, "lines").write(pa.table({"line": ["untracked"]}))
    batch = take(ledger, "lines")
    spoil(ledger, raw, batch, 0, BROKEN["cut"])
    with pytest.raises(UnreadableRecord, match="not the rows of a segment"):
        read(ledger, raw, batch)
    assert ledger.run(unreadable(ledger.core)) == 0


def test_rows_that_memory_did_not_suffice_for_are_an_error_and_stay(ledger: Ledger, raw: Any) -> None:
    emit(ledger, 1000)
    batch = take(ledger, "lines")
    segment_id = spoil(ledger, raw, batch, 0, lambda rows: rows.replace(struct.pack("<q", 8000), TOO_LARGE))
    with pytest.raises(UnreadableRecord, match="malloc"):
        read(ledger, raw, batch)
    assert ledger.run(unreadable(ledger.core)) == 0
    raw.set(
        LINES.payload(segment_id),
        raw.get(LINES.payload(segment_id)).replace(TOO_LARGE, struct.pack("<q", 8000)),
    )
    assert read(ledger, raw, batch) == [1000]
    assert commit(ledger, 0, Commit((), (batch,)))
    assert counted(ledger) == {"tracked": 1000, "acked": 1000}


def test_a_batch_that_fails_has_those_trees_failed_whose_rows_can_be_read(ledger: Ledger, raw: Any) -> None:
    for number in (30, 20):
        emit(ledger, number)
    batch = take(ledger, "lines")
    spoil(ledger, raw, batch, 1, BROKEN["torn"])
    assert commit(ledger, 0, Commit((), (batch,), "bad"))
    assert counted(ledger) == {"tracked": 50, "failed": 30, "expired": 20}
    assert ledger.run(unreadable(ledger.core)) == 1


def test_a_batch_that_fails_leaves_no_vectors_of_rows_that_are_gone(ledger: Ledger, raw: Any) -> None:
    emit(ledger, 30)
    batch = take(ledger, "lines")
    [piece] = ledger.run(subscriptions.delivered(ledger.core, batch))
    raw.delete(LINES.payload(piece.segment.id))
    assert commit(ledger, 0, Commit((), (batch,), "bad"))
    places = vectors.keys_of(ledger.core, piece.segment)
    assert places
    assert not any(raw.exists(key) for key, _ in places)
    assert counted(ledger) == {"tracked": 30, "expired": 30}


def test_a_subscription_is_dropped_with_rows_that_cannot_be_read(ledger: Ledger, raw: Any) -> None:
    for number in (30, 20):
        emit(ledger, number)
    spoil(ledger, raw, take(ledger, "lines"), 0, BROKEN["torn"])
    raw.xadd(LINES.entries, {"segment": "[1,2", "rows": 7, "slots": str(slot_of(ledger))})
    assert Stream(ledger, "lines").unsubscribe("default") == 2
    assert counted(ledger) == {"tracked": 50, "failed": 20, "expired": 30}
    assert ledger.run(unreadable(ledger.core)) == 1


def test_a_segment_whose_record_cannot_be_read_is_passed_over_by_readers(
    ledger: Ledger, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Stream(ledger, "lines").subscribe("default")
    emit(ledger, 30)
    entry = raw.xadd(LINES.entries, {"segment": "[1,2", "rows": 7, "slots": str(slot_of(ledger))})
    emit(ledger, 20)
    batch = take(ledger, "lines")
    assert batch.end == 3
    assert read(ledger, raw, batch) == [30, 20]
    assert commit(ledger, 0, Commit((), (batch,)))
    assert counted(ledger) == {"tracked": 50, "acked": 50}
    for _ in range(2):
        ledger.run(subscriptions.forget(ledger.core, batch))
    assert ledger.run(unreadable(ledger.core)) == 1
    assert f"segment {entry.decode()} of stream lines cannot be read" in caplog.text
    assert raw.xlen(LINES.delivered(batch.slot, batch.reader)) == 0
    with pytest.raises(UnreadableRecord, match="not a segment"):  # a mere look says so, and changes nothing
        rows(ledger, "lines")
    assert [one for one, _ in raw.xrange(LINES.entries)] == [entry]


def test_an_unreadable_record_keeps_no_writer_from_a_full_stream(ledger: Ledger, raw: Any) -> None:
    Stream(ledger, "lines").limit(max_bytes=1)
    raw.xadd(LINES.entries, {"segment": "[1,2", "rows": 7, "slots": "1"})
    raw.hincrby(LINES.subscriptions, "segments", 1)
    anchors = emit(ledger, 20, "others")
    for number in range(2):
        staged = stage(ledger, anchors, "lines")
        assert commit(ledger, number, Commit((staged,)))
    totals = Stream(ledger, "lines").totals()
    assert (totals.segments, totals.dropped) == (1, 2)
    assert StreamReader(ledger, "lines").count() == 1
