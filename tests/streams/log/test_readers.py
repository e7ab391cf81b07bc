"""Several readers of one subscription: each segment is given to one, and again when that one is gone."""

from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import ReaderFenced, StoreError
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Request
from acker.streams import Stream, StreamReader, StreamWriter
from acker.streams import reader as stream_reader
from acker.streams.commits.contents import Commit
from acker.streams.log import fencing, subscriptions
from tests.helpers.builders.streaming import (
    ack,
    commit,
    consume,
    counters,
    delivered,
    emit,
    kept,
    record_requests,
    slot_of,
    take,
)
from tests.helpers.faults.set_backs import moment, set_back
from tests.helpers.faults.stepping import Stepping

pytestmark = pytest.mark.cluster(slow=True)


def test_each_segment_is_given_to_one_reader(ledger: Ledger) -> None:
    for _ in range(7):
        emit(ledger, 10)
    one = take(ledger, "lines", reader="one", segments=2)
    two = take(ledger, "lines", reader="two", rows=30)
    three = take(ledger, "lines", reader="one")
    assert (one.end, two.end, three.start, three.end) == (2, 3, 2, 4)
    segment_ids = [piece.segment.id for batch in (one, two, three) for piece in delivered(ledger, batch)]
    assert len(set(segment_ids)) == 7
    for batch in (two, three, one):
        ack(ledger, batch)
    assert counters(ledger) == {"tracked": 70, "acked": 70}


def test_a_segment_larger_than_the_limit_is_taken_alone(ledger: Ledger) -> None:
    emit(ledger, 100)
    emit(ledger, 1)
    assert take(ledger, "lines", rows=5).end == 1
    assert take(ledger, "lines", rows=5).end == 2


def test_what_was_taken_and_is_in_no_batch_is_given_again(ledger: Ledger) -> None:
    for _ in range(3):
        emit(ledger, 10)
    slot = take(ledger, "lines", segments=2).slot
    for _ in range(2):
        assert ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 0, name="default")) == 2
    assert ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 2, name="default")) == 3
    assert ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 3, name="default")) == 3


def test_entries_of_others_are_passed_over_whatever_their_number(ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "lines")
    row = pa.table({"line": ["x"]})
    Stream(ledger, "lines").subscribe("a")
    early = [writer.batch(row) for _ in range(1100)]
    Stream(ledger, "lines").subscribe("b")
    for batch in early:
        writer.publish(batch)
    writer.write(row)
    assert len(delivered(ledger, take(ledger, "lines", "b"))) == 1


def test_a_reader_that_is_gone_gives_back_what_it_did_not_ack(ledger: Ledger, url: str) -> None:
    stream = Stream(ledger, "lines")
    for _ in range(4):
        emit(ledger, 10)
    first = take(ledger, "lines", reader="gone", segments=2)
    ack(ledger, first)
    take(ledger, "lines", reader="gone")
    assert set(stream.readers()) == {"gone"}
    assert stream.give_back("gone") == 2
    assert stream.readers() == {}
    assert stream.totals().subscriptions[0].unread_age is not None
    ack(ledger, take(ledger, "lines", reader="other"))
    assert counters(ledger) == {"tracked": 40, "acked": 40}
    slow = subscriptions.claim(ledger.core, "lines", first.slot, "gone", first.end, name="default")
    with pytest.raises(ReaderFenced, match="reader gone of stream 'lines'"):
        ledger.run(slow)
    # Another one of its name (a job that runs again) goes on after what was given back.
    emit(ledger, 10)
    again = take(ledger, "lines", reader="gone")
    assert (again.start, again.end) == (4, 5)
    assert commit(ledger, 0, Commit(inputs=(again,)))
    assert counters(ledger) == {"tracked": 50, "acked": 50}
    assert not kept(url, b"delivered")


def test_a_reader_that_died_before_its_first_batch_was_logged_is_recovered(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit(ledger, 10)
    emit(ledger, 10)
    logged = take(ledger, "lines", reader="logged", segments=1)
    ledger.run(subscriptions.log(ledger.core, "lines", logged.slot, "logged"))
    take(ledger, "lines", reader="died")
    assert ledger.run(fencing.recover(ledger.core, "lines", logged.slot)) == 0
    monkeypatch.setattr(fencing, "UNLOGGED", -1.0)
    # The reader is taken for dead, and its batch is logged at that moment.
    slow = fencing.take_back(ledger.core, "lines", logged.slot, "logged", unlogged=True)
    assert ledger.run(slow) == (0, [])
    assert Stream(ledger, "lines").readers()["logged"] < 60
    assert ledger.run(fencing.recover(ledger.core, "lines", logged.slot)) == 1
    assert consume(ledger, "lines") == 1
    ack(ledger, logged)
    assert counters(ledger) == {"tracked": 20, "acked": 20}


def test_readers_that_were_silent_for_long_are_forgotten(
    ledger: Ledger, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(ledger, "lines")
    emit(ledger, 10)
    batch = take(ledger, "lines")
    ledger.run(subscriptions.log(ledger.core, "lines", batch.slot, "reader"))
    ack(ledger, batch)
    monkeypatch.setattr(fencing, "HOLD_TTL", -1.0)
    raw.delete(keys.Stream("t", "lines").delivered(batch.slot, "reader"))  # its time is over, too
    assert ledger.run(fencing.recover(ledger.core, "lines", batch.slot)) == 0
    assert stream.readers() == {}


def test_a_late_copy_of_a_claim_loses_nothing_that_was_given_back(ledger: Ledger) -> None:
    for _ in range(3):
        emit(ledger, 10)
    sent: list[Request] = []
    first = record_requests(ledger, lambda: take(ledger, "lines", segments=1), sent)
    take(ledger, "lines", reader="gone", segments=1)
    ack(ledger, first)
    ledger.run(subscriptions.forget(ledger.core, first))
    assert Stream(ledger, "lines").give_back("gone") == 1
    with pytest.raises(StoreError, match="equal or smaller"):
        ledger.store.send(sent)
    assert consume(ledger, "lines") == 2
    assert counters(ledger) == {"tracked": 30, "acked": 30}


def test_a_reader_in_python_leaves_what_others_have_taken(ledger: Ledger) -> None:
    for _ in range(3):
        emit(ledger, 10)
    other = take(ledger, "lines", segments=1)
    reader = StreamReader(ledger, "lines")
    assert len(next(reader.tables())) == len(next(reader.tables())) == 10
    assert reader.ack() == 1
    assert reader.ack_all() == 1
    assert counters(ledger) == {"tracked": 30, "acked": 20}
    ack(ledger, other)
    assert counters(ledger) == {"tracked": 30, "acked": 30}


# Entries below the position of a reader


def stamped(raw: Any, entry: str) -> None:
    """Gives the only entry of a stream another id, as of a server whose clock is behind."""
    key = keys.Stream("t", "lines").entries
    [(_, fields)] = raw.xrange(key)
    raw.delete(key)
    raw.xadd(key, fields, entry)


def test_a_reader_acks_and_passes_over_nothing_of_a_store_that_took_the_place_of_another(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    reader = StreamReader(ledger, "lines")
    emit(ledger, 2)
    assert len(list(reader.rows())) == 2
    valkey_raw.flushall()
    emit(ledger, 3)
    stamped(valkey_raw, f"{int(reader.offset.split('-')[0]) - 3_600_000}-0")
    assert reader.ack() == 0
    assert ledger.counters()["acked"] == 0
    assert len(list(reader.rows())) == 3
    emit(ledger, 4)
    assert reader.ack() == 1
    assert ledger.counters()["acked"] == 3
    assert [table.num_rows for table in reader.tables()] == [4]
    assert list(reader.tables()) == []
    assert reader.ack() == 1


def test_a_reader_gives_rows_below_its_position(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """Rows that it has read and the store still has are not read again; they are acked with the rest."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    Stream(ledger, "lines").subscribe("other")
    reader = StreamReader(ledger, "lines", "other")
    emit(ledger, 1)
    assert [table.num_rows for table in reader.tables()] == [1]
    assert reader.ack_all() == 1
    next_id = f"{reader.offset}1"  # a server whose clock is behind gives the ids after its last one
    Stream(ledger, "lines").subscribe("slow")
    before = moment(valkey_raw)
    emit(ledger, 2)
    assert [table.num_rows for table in reader.tables()] == [2]
    set_back(valkey_raw, before)
    emit(ledger, 3)
    stamped(valkey_raw, next_id)
    assert [table.num_rows for table in reader.tables()] == [3]
    assert reader.ack() == 1
    assert ledger.counters()["acked"] == 1, "the other subscription has it still"
    assert list(reader.tables()) == []


@pytest.mark.parametrize("more", [0, 1])
def test_a_reader_acks_again_after_a_loss(valkey_url: str, valkey_raw: "redis.Redis", more: int) -> None:
    """It gives the rows to nobody again, so nobody else would: their trees would wait for the downtime."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    reader = StreamReader(ledger, "lines")
    emit(ledger, 1)
    assert len(list(reader.rows())) == 1
    assert reader.ack() == 1
    emit(ledger, 2)
    assert len(list(reader.rows())) == 2
    before = moment(valkey_raw)
    assert reader.ack() == 1
    set_back(valkey_raw, before)
    assert ledger.counters()["acked"] == 1
    for _ in range(more):
        emit(ledger, 4)
    assert len(list(reader.rows())) == 4 * more
    assert reader.ack() == 1 + more
    assert ledger.counters()["acked"] == 3 + 4 * more
    assert reader.ack() == 0


def test_a_segment_is_acked_when_all_of_its_rows_were_given(ledger: Ledger) -> None:
    emit(ledger, 3)
    reader = StreamReader(ledger, "lines")
    first = [row for _, row in zip(range(2), reader.rows(), strict=False)]
    assert reader.ack() == 0
    assert list(reader.rows())[:2] == first
    assert reader.ack() == 1
    assert ledger.counters()["acked"] == 3


def test_a_reader_acks_more_after_an_ack_that_was_cut_anywhere(ledger: Ledger) -> None:
    reader = StreamReader(ledger, "lines")
    reader.ack()
    emit(ledger, 10)
    for exchanges in range(100):
        emit(ledger, 10)
        assert list(reader.tables())
        cut = Stepping(ledger, reader._ack(reader.offset, everything=False))
        cut.go_on(exchanges)
        if cut.ended:
            break
        cut.lose_reply()
        emit(ledger, 10)
        assert list(reader.tables())
        reader.ack()
        found = counters(ledger)
        assert found["acked"] == found["tracked"]
    assert 5 < exchanges < 99
    assert not ledger.run(subscriptions.last_delivered(ledger.core, "lines", slot_of(ledger), reader._reader))


def test_a_reader_acks_what_was_given_back_of_it(ledger: Ledger) -> None:
    reader = StreamReader(ledger, "lines")
    reader.ack()
    emit(ledger, 10)
    list(reader.tables())
    slot = slot_of(ledger)
    ledger.run(subscriptions.claim(ledger.core, "lines", slot, reader._reader, 0, name="default"))
    ledger.run(fencing.take_back(ledger.core, "lines", slot, reader._reader))
    assert reader.ack() == 1
    assert counters(ledger) == {"tracked": 10, "acked": 10}


def test_a_reader_remembers_a_bounded_number(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "_KNOWN", 2)
    for _ in range(3):
        emit(ledger, 1)
    reader = StreamReader(ledger, "lines")
    assert len(list(reader.rows())) == 3
    assert reader.ack() == 2
    assert StreamReader(ledger, "lines").count() == 1
