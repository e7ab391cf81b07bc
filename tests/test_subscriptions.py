"""Several subscriptions of one stream, several readers of one subscription, and what a stream keeps."""

from itertools import count

import numpy as np
import pyarrow as pa
import pytest
import redis

from acker import keys
from acker.errors import AckerError, StoreError, UnknownSubscription, ValidationError
from acker.ledger import Ledger, open_ledger
from acker.requests import Request
from acker.store import Store
from acker.streams import (
    Stream,
    StreamReader,
    StreamWriter,
    commits,
    inputs,
    retention,
    segments,
    subscriptions,
)
from acker.streams.commits import Commit
from acker.streams.reader import payload_of
from acker.streams.segments import Segment
from acker.streams.subscriptions import Range, Taken
from tests.servers import raw_client, wait_until
from tests.streaming import (
    commit,
    consume,
    counters,
    emit,
    kept,
    record_requests,
    rows,
    run_cut,
    stage,
    take,
)

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3)


@pytest.fixture
def lines(ledger: Ledger) -> Stream:
    """A stream with two subscriptions."""
    stream = Stream(ledger, "lines")
    stream.subscribe("a")
    stream.subscribe("b")
    return stream


def taken(ledger: Ledger, batch: Range) -> list[Taken]:
    return ledger.run(subscriptions.taken(ledger.core, batch))


def ack(ledger: Ledger, batch: Range) -> int:
    return ledger.run(inputs.consume(ledger.core, batch))


def readable(ledger: Ledger, batch: Range) -> int:
    """How many segments of a batch can be read."""
    members: list[Segment] = [piece.segment for piece in taken(ledger, batch)]
    return sum(one is not None for one in ledger.run(payload_of(ledger, batch.stream, members)))


def behind(stream: Stream) -> dict[str | None, int]:
    return {one.name: one.rows_behind for one in stream.totals().subscriptions}


# Each subscription has all of a stream


def test_a_tree_is_complete_when_every_subscription_acked(ledger: Ledger, lines: Stream, url: str) -> None:
    emit(ledger, 1500)
    assert behind(lines) == {"a": 1500, "b": 1500}
    assert consume(ledger, "lines", "a") == 1
    assert counters(ledger) == {"tracked": 1500}
    assert behind(lines) == {"a": 0, "b": 1500}
    assert len(rows(ledger, "lines")) == 1500
    assert consume(ledger, "lines", "a") == 0
    assert counters(ledger) == {"tracked": 1500}
    assert consume(ledger, "lines", "b") == 1
    assert counters(ledger) == {"tracked": 1500, "acked": 1500}
    assert rows(ledger, "lines") == []
    for word in (b"staged", b"payload", b"owed", b"taken", b"readers"):
        assert not kept(url, word)


def test_what_a_bolt_emits_is_for_every_subscription(ledger: Ledger) -> None:
    for name in ("a", "b", "c"):
        Stream(ledger, "words").subscribe(name)
    a, b, c = emit(ledger, 3).tolist()
    staged = stage(ledger, [[a, b], [c, c], [], None, [a, None]])
    assert staged.segments[0].slots == (0, 1, 2)
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    for name in ("c", "a"):
        assert consume(ledger, "words", name) == 1
        assert counters(ledger) == {"tracked": 3}
    assert consume(ledger, "words", "b") == 1
    assert counters(ledger) == {"tracked": 3, "acked": 3}


def test_tuple_ids_are_a_subscriptions_own() -> None:
    places = np.arange(5000, dtype=np.int64)
    ids = np.concatenate([segments.edge_ids(seed, slot, places) for seed in (1, 2) for slot in range(6)])
    assert len(np.unique(ids)) == len(ids)


@pytest.mark.parametrize("failed", [None, "why"])
def test_a_commit_cut_anywhere_is_exact_for_each_subscription(valkey_url: str, failed: str | None) -> None:
    for after in count():
        ledger = open_ledger(Store(valkey_url), f"cut{after}", ackers=2)
        for stream in ("lines", "words"):
            for name in ("a", "b"):
                Stream(ledger, stream).subscribe(name)
        anchors = emit(ledger, 30)
        staged = (stage(ledger, np.repeat(anchors, 2), rows=25),)
        batch = (take(ledger, "lines", "a"),)
        what = Commit(staged, batch) if failed is None else Commit(inputs=batch, failed=failed)
        cut = run_cut(ledger, commits.commit(ledger.core, "writer", 7, what), after)
        assert commit(ledger, 7, what)
        assert counters(ledger).get("acked", 0) == 0
        consume(ledger, "lines", "b")
        for name in ("a", "b"):
            consume(ledger, "words", name)
        total = counters(ledger)
        total.pop("duplicates", None)
        late = total.pop("late", 0)
        assert late == (30 if failed else 0)
        assert total == {"tracked": 30, "failed" if failed else "acked": 30}
        if not cut:
            assert after > 5
            return


# Who joins when


def test_the_first_subscription_has_what_was_written_before_it_and_later_ones_have_not(
    ledger: Ledger,
) -> None:
    stream = Stream(ledger, "lines")
    emit(ledger, 10)
    assert behind(stream) == {None: 10}
    stream.subscribe("first")
    stream.subscribe("second")
    emit(ledger, 5)
    assert behind(stream) == {"first": 15, "second": 5}
    assert sum(one.segment.rows for one in taken(ledger, take(ledger, "lines", "second"))) == 5
    assert consume(ledger, "lines", "first") == 2
    assert counters(ledger) == {"tracked": 15, "acked": 10}


def test_who_joins_between_staging_and_commit_sees_nothing_of_it(ledger: Ledger) -> None:
    Stream(ledger, "words").subscribe("a")
    staged = stage(ledger, emit(ledger, 4))
    Stream(ledger, "words").subscribe("b")
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    assert consume(ledger, "words", "b") == 0
    assert consume(ledger, "words", "a") == 1
    assert counters(ledger) == {"tracked": 4, "acked": 4}


def test_a_stream_has_64_subscriptions_at_most(ledger: Ledger) -> None:
    stream = Stream(ledger, "lines")
    for number in range(64):
        stream.subscribe(f"s{number}")
    with pytest.raises(AckerError, match="has 64 subscriptions already"):
        stream.subscribe("one-more")
    stream.subscribe("s7")
    stream.unsubscribe("s7")
    stream.subscribe("one-more")
    with pytest.raises(ValidationError, match="subscription: expected 1 to 64 of"):
        stream.subscribe("a b")


# Readers that share a subscription


def test_each_segment_is_given_to_one_reader(ledger: Ledger) -> None:
    for _ in range(7):
        emit(ledger, 10)
    one = take(ledger, "lines", reader="one", segments=2)
    two = take(ledger, "lines", reader="two", rows=30)
    three = take(ledger, "lines", reader="one")
    assert (one.end, two.end, three.start, three.end) == (2, 3, 2, 4)
    tokens = [piece.segment.token for batch in (one, two, three) for piece in taken(ledger, batch)]
    assert len(set(tokens)) == 7
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
        assert ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 0)) == 2
    assert ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 2)) == 3
    assert ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 3)) == 3


def test_entries_of_others_are_passed_over_whatever_their_number(ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "lines")
    row = pa.table({"line": ["x"]})
    Stream(ledger, "lines").subscribe("a")
    early = [writer.batch(row) for _ in range(1100)]
    Stream(ledger, "lines").subscribe("b")
    for batch in early:
        writer.publish(batch)
    writer.write(row)
    assert len(taken(ledger, take(ledger, "lines", "b"))) == 1


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
    assert not kept(url, b"taken")


def test_a_reader_that_died_before_its_first_batch_was_logged_is_recovered(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit(ledger, 10)
    emit(ledger, 10)
    logged = take(ledger, "lines", reader="logged", segments=1)
    ledger.run(subscriptions.log(ledger.core, "lines", logged.slot, "logged"))
    take(ledger, "lines", reader="died")
    assert ledger.run(subscriptions.recover(ledger.core, "lines", logged.slot)) == 0
    monkeypatch.setattr(subscriptions, "UNLOGGED", -1.0)
    # The reader is taken for dead, and its batch is logged at that moment.
    slow = subscriptions.give_back(ledger.core, "lines", logged.slot, "logged", unlogged=True)
    assert ledger.run(slow) == 0
    assert Stream(ledger, "lines").readers()["logged"] < 60
    assert ledger.run(subscriptions.recover(ledger.core, "lines", logged.slot)) == 1
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
    monkeypatch.setattr(subscriptions, "HOLD_TTL", -1.0)
    raw.delete(keys.Stream("t", "lines").taken(batch.slot, "reader"))  # its time is over, too
    assert ledger.run(subscriptions.recover(ledger.core, "lines", batch.slot)) == 0
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


# What is kept


def test_rows_that_were_acked_last_can_be_read_again_until_the_next_are_acked(
    ledger: Ledger, lines: Stream, url: str
) -> None:
    for _ in range(3):
        emit(ledger, 10)
    first, others = take(ledger, "lines", "a", segments=2), take(ledger, "lines", "b")
    ack(ledger, first)
    ack(ledger, others)
    assert len(rows(ledger, "lines")) == 10
    second = take(ledger, "lines", "a")
    assert readable(ledger, first) == 2
    ack(ledger, second)
    assert readable(ledger, first) == 0
    assert readable(ledger, second) == 1
    with raw_client(url) as client:
        payloads = list(client.scan_iter("*payload*"))
        assert len(payloads) == 3  # of the last batches of both
        assert all(0 < client.ttl(key) <= 86400 for key in payloads)
    emit(ledger, 10)
    for name in ("a", "b"):
        ack(ledger, take(ledger, "lines", name))
    with raw_client(url) as client:
        assert len(list(client.scan_iter("*payload*"))) == 1


def test_what_is_published_again_after_it_was_acked_stays_acked(ledger: Ledger) -> None:
    staged = stage(ledger, emit(ledger, 10))
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    ack(ledger, take(ledger, "words"))
    assert ledger.run(commits.publish(ledger.core, "words", staged.segments)) == 0
    assert rows(ledger, "words") == []
    assert consume(ledger, "words") == 0


def test_a_driver_that_comes_late_with_its_hold_does_not_publish_twice(ledger: Ledger, url: str) -> None:
    staged = stage(ledger, emit(ledger, 10))
    what = Commit((staged,))
    slow = commits.commit(ledger.core, "writer", 0, what)
    replies = ledger.store.send(next(slow))
    requests = slow.send(replies)  # it is about to hold what the other has published meanwhile
    assert commit(ledger, 0, what)
    while True:
        try:
            requests = slow.send(ledger.store.send(requests))
        except StopIteration:
            break
    assert len(rows(ledger, "words")) == 10
    assert len(kept(url, b"words}:payload")) == 1


def test_a_stream_over_its_size_drops_the_oldest_and_their_trees_expire(ledger: Ledger, url: str) -> None:
    stream = Stream(ledger, "lines")
    stream.subscribe("slow")
    emit(ledger, 100)
    size = stream.totals().bytes
    stream.limit(max_bytes=2 * size + size // 2)
    for _ in range(3):
        emit(ledger, 100)
    totals = stream.totals()
    assert (totals.segments, totals.dropped) == (2, 2)
    assert totals.bytes <= 2 * size + size // 2
    [slow] = totals.subscriptions
    assert (slow.rows_published, slow.rows_dropped, slow.rows_behind) == (400, 200, 200)
    consume(ledger, "lines", "slow")
    for _ in range(3):
        ledger.tick(force=True)
    assert counters(ledger) == {"tracked": 400, "acked": 200, "expired": 200, "rotations": 9}
    assert not kept(url, b"staged")
    assert not kept(url, b"owed")


def test_the_newest_segment_is_kept_whatever_its_size(ledger: Ledger) -> None:
    stream = Stream(ledger, "lines")
    stream.limit(max_bytes=1)
    for number in range(3):
        emit(ledger, 10)
        assert (stream.totals().segments, stream.totals().dropped) == (1, number)


def test_a_stream_drops_what_is_too_old_and_readers_pass_it_over(ledger: Ledger) -> None:
    stream = Stream(ledger, "lines")
    emit(ledger, 10)
    emit(ledger, 10)
    batch = take(ledger, "lines", segments=1)
    stream.limit(max_age=1)
    wait_until(lambda: ledger.run(retention.retain(ledger.core, "lines")) == 1)
    assert readable(ledger, batch) == 0
    assert ack(ledger, batch) == 0
    assert consume(ledger, "lines") == 1
    assert counters(ledger) == {"tracked": 20, "acked": 10}
    for bad in ({"max_age": 0.5}, {"max_age": 1e9}, {"max_bytes": 0}):
        with pytest.raises(ValidationError, match="expected"):
            stream.limit(**bad)


# A subscription that is dropped


@pytest.mark.parametrize("want", [False, True])
def test_dropping_a_subscription_fails_its_trees_or_lets_them_go_on(
    ledger: Ledger, lines: Stream, url: str, want: bool
) -> None:
    for _ in range(3):
        emit(ledger, 100)
    ack(ledger, take(ledger, "lines", "b", segments=1))
    take(ledger, "lines", "b", segments=1)
    consume(ledger, "lines", "a")
    assert counters(ledger) == {"tracked": 300, "acked": 100}
    assert lines.unsubscribe("b", ack=want) == 2
    assert counters(ledger) == {"tracked": 300, "acked": 300} if want else {"acked": 100, "failed": 200}
    assert behind(lines) == {"a": 0}
    with pytest.raises(UnknownSubscription, match="no subscription 'b'"):
        lines.unsubscribe("b")
    with pytest.raises(UnknownSubscription, match="was dropped"):
        ledger.run(subscriptions.claim(ledger.core, "lines", 1, "reader", 2))
    emit(ledger, 10)
    consume(ledger, "lines", "a")
    assert ledger.counters()["acked"] == (310 if want else 110)
    for word in (b"staged", b"payload", b"owed", b"taken", b"readers", b"returned"):
        assert not kept(url, word)


def test_what_was_staged_for_a_dropped_subscription_is_not_kept_for_it(ledger: Ledger, lines: Stream) -> None:
    writer = StreamWriter(ledger, "lines")
    both = writer.batch(pa.table({"line": ["x"]}))
    lines.unsubscribe("b")
    alone = writer.batch(pa.table({"line": ["x"]}))
    lines.unsubscribe("a")
    writer.publish(both)
    writer.publish(alone)
    totals = lines.totals()
    assert (totals.segments, totals.dropped) == (0, 2)
    emit(ledger, 3)
    assert behind(lines) == {None: 3}
    assert consume(ledger, "lines", "next") == 1
    assert counters(ledger) == {"tracked": 3, "acked": 3}


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
