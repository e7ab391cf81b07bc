"""Retention of a stream: the rows that were acked last, each once, within its limits."""

import pytest

from acker.errors import ValidationError
from acker.inspect.locate.drops import drops
from acker.inspect.locate.expiry_reasons import explain
from acker.inspect.locate.why import why
from acker.inspect.trees import failures
from acker.ledger.client import Ledger
from acker.ledger.tick import tick
from acker.store import keys
from acker.streams import Stream
from acker.streams.commits import commit as commits
from acker.streams.commits import scripts
from acker.streams.commits.contents import Commit
from acker.streams.upkeep import retention
from tests.helpers.builders.streaming import (
    ack,
    commit,
    consume,
    counters,
    emit,
    kept,
    readable,
    rows,
    run_cut,
    stage,
    take,
)
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.servers.servers import raw_client, wait_until

pytestmark = pytest.mark.cluster(slow=True)


def test_rows_acked_last_can_be_read_again(ledger: Ledger, lines: Stream, url: str) -> None:
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
    publishing = scripts.publish(ledger.config, keys.Stream("t", "words"), staged.segments)
    assert ledger.store.send([publishing]) == [[0, b""]]
    assert rows(ledger, "words") == []
    assert consume(ledger, "words") == 0


def test_a_driver_that_comes_late_with_its_hold_does_not_publish_twice(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_by_script(monkeypatch)
    staged = stage(ledger, emit(ledger, 10))
    work = Commit((staged,))
    slow = commits.commit(ledger.core, "writer", 0, work)
    replies = ledger.store.send(next(slow))
    requests = slow.send(replies)  # it is about to hold what the other has published meanwhile
    assert commit(ledger, 0, work)
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
    anchors = emit(ledger, 100)
    size = stream.totals().bytes
    stream.limit(max_bytes=2 * size + size // 2)
    for _ in range(3):
        emit(ledger, 100)
    totals = stream.totals()
    assert (totals.segments, totals.dropped) == (2, 2)
    assert totals.bytes <= 2 * size + size // 2
    [slow] = totals.subscriptions
    assert (slow.rows_published, slow.rows_dropped, slow.rows_behind) == (400, 200, 200)
    assert [(one.segments, one.rows, one.why) for one in ledger.run(drops(ledger.core))] == [
        (1, 100, "over max_bytes"),
        (1, 100, "over max_bytes"),
    ]
    answer = ledger.run(why(ledger.core, int(anchors[0])))
    assert answer.complete is False
    assert "stream lines dropped 1 segment (100 rows) at " in answer.rest
    consume(ledger, "lines", "slow")
    for _ in range(3):
        ledger.run(tick.tick(ledger.core, force=True, explain=explain))
    assert counters(ledger) == {"tracked": 400, "acked": 200, "expired": 200, "rotations": 9}
    ended = ledger.run(failures.find(ledger.core, int(anchors[0])))
    assert ended is not None
    assert "stream lines dropped 1 segment (100 rows) at " in ended.cause.reason
    assert ended.cause.reason.endswith(": over max_bytes")
    assert not kept(url, b"staged")
    assert not kept(url, b"unacked")


def test_rows_that_a_drop_has_taken_are_acked_by_nobody_wherever_the_drop_was_cut(ledger: Ledger) -> None:
    cut, after, there = True, 0, 0
    while cut:
        name = f"lines-{after}"
        emit(ledger, 10, name)
        emit(ledger, 10, name)
        batch = take(ledger, name)
        Stream(ledger, name).limit(max_bytes=1)
        cut = run_cut(ledger, retention.retain(ledger.core, name), after)
        there, before = readable(ledger, batch), ledger.counters()["acked"]
        ack(ledger, batch)
        assert ledger.counters()["acked"] - before <= 10 * there
        after += 1
    assert there == 1
    assert after > 3


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
