"""Rows that no job works on wait: their trees do not expire, for as long as the topology's downtime."""

import time

import pytest

from acker.inspect.operate.removal import remove
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.topology.totals import totals
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.tick import tick
from acker.ledger.tick.ticker import Ticker
from acker.store import keys
from acker.store.client import Store
from acker.streams import Stream, downtime
from acker.streams.commits.contents import Commit
from acker.streams.log import fencing, subscriptions
from acker.streams.log.subscriptions import Range
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders import kept_rows
from tests.helpers.builders.kept_rows import Keeping
from tests.helpers.builders.streaming import ack, commit, consume, counters, emit, stage, take, track
from tests.helpers.builders.tickers import running
from tests.helpers.models.ledger_state import StoredShard, read_shards
from tests.helpers.servers.servers import raw_client, wait_until

pytestmark = pytest.mark.cluster(slow=True)


def shards(ledger: Ledger) -> list[StoredShard]:
    with raw_client(ledger.store.url) as client:
        return read_shards(client, ledger)


def rotate(ledger: Ledger, times: int = 6) -> int:
    """Rotates as a ticker does; returns how many trees expired, and checks the counts of the buckets."""
    expired = 0
    for _ in range(times):
        ledger.run(downtime.keep(ledger.core))
        expired += ledger.tick(force=True).expired
        read = ledger.run(totals(ledger.core))
        assert read.pending == sum(len(words) for shard in shards(ledger) for words in shard.words.values())
    return expired


def beat(ledger: Ledger, batch: Range, ago: float = 0.0, reader: str = "") -> None:
    """Makes the last heartbeat of a reader's query older by so many seconds."""
    name = reader or batch.reader
    ledger.run(downtime.beat(ledger.core, batch.stream, batch.slot, name))
    key = keys.Stream(ledger.config.name, batch.stream).heartbeats(batch.slot)
    with raw_client(ledger.store.url) as client:
        client.hincrby(key.decode(), name, -round(ago * 1000))


def test_a_row_that_no_job_has_taken_waits_and_is_acked_as_ever(ledger: Ledger) -> None:
    emit(ledger, 2500)
    assert rotate(ledger) == 0
    assert consume(ledger, "lines") == 1
    assert counters(ledger)["acked"] == 2500


def test_rows_of_a_spout_and_their_replays_use_up_no_attempt_between_the_runs_of_a_job(
    ledger: Ledger, keeping: Keeping
) -> None:
    """A job, and the process that settles and asks the source, come once in six rotations."""
    keeping.write(ledger, kept_rows.lines(100))
    for attempt in (1, 2, 3):
        assert rotate(ledger) == 0
        waiting = kept_rows.rows(ledger)
        assert {row["attempt"] for row in waiting} == {attempt}
        assert len(waiting) == (100 if attempt == 1 else 10)
        kept_rows.fail(ledger, lambda row: row["id"] % 10 == 7, f"bad {attempt}")
        assert rotate(ledger) == 0
        settled = keeping.settle(ledger)
        assert settled == Stepped(90 * (attempt == 1), 10 * (attempt < 3), 10 * (attempt == 3))
    assert counters(ledger).get("expired", 0) == 0
    assert [letter.reason for letter in kept_rows.letters(ledger)] == ["bad 3"] * 10
    assert kept_rows.pending(ledger) == {"pending": 0, "acked": 90, "replayed": 20, "dead": 10}


@pytest.mark.parametrize("subscribed", [False, True])
def test_rows_wait_for_each_subscription_or_the_first(ledger: Ledger, subscribed: bool) -> None:
    if subscribed:
        for name in ("a", "b"):
            Stream(ledger, "lines").subscribe(name)
    emit(ledger, 10)
    assert rotate(ledger) == 0
    if subscribed:
        ack(ledger, take(ledger, "lines", "a"))
        assert rotate(ledger) == 0  # b has not taken them
    assert counters(ledger).get("acked", 0) == 0


def test_what_a_job_works_on_expires_in_time(ledger: Ledger) -> None:
    emit(ledger, 10)
    batch = take(ledger, "lines")  # a batch job's: it has no heartbeat
    assert rotate(ledger, 3) == 10
    emit(ledger, 5)
    take(ledger, "lines", reader="query")
    beat(ledger, batch, reader="query")
    assert rotate(ledger, 3) == 5


def test_waited_rows_have_the_whole_timeout(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downtime, "MISSED", 100)  # a busy machine holds no 0.3 s
    ledger = open_ledger(ledger.store, "short", ackers=2, message_timeout=1.0)
    emit(ledger, 10)
    own = keys.Stream("short", "lines")
    with raw_client(ledger.store.url) as client:
        [(entry, _)] = client.xrange(own.entries.decode())
        published = int(entry.split(b"-")[0])
        wait_until(lambda: client.time()[0] * 1000 - published > 2000)
    assert rotate(ledger, 4) == 0
    batch = take(ledger, "lines", reader="query")
    beat(ledger, batch)
    delivered = ledger.run(subscriptions.delivered(ledger.core, batch))
    ledger.run(downtime.take_up(ledger.core, "lines", batch.slot, delivered))
    beat(ledger, batch)
    assert rotate(ledger, 2) == 0
    beat(ledger, batch)
    assert rotate(ledger, 1) == 10


@pytest.mark.parametrize(("other", "lost"), [(None, 0), (1000.0, 0), (0.0, 10)])
def test_rows_of_an_ended_query_wait_for_another(ledger: Ledger, other: float | None, lost: int) -> None:
    emit(ledger, 10)
    batch = take(ledger, "lines")
    beat(ledger, batch, ago=1000.0)
    if other is not None:
        beat(ledger, batch, ago=other, reader="other")
    assert rotate(ledger) == lost
    ack(ledger, batch)
    assert counters(ledger).get("acked", 0) == 10 - lost


def test_what_a_silent_query_has_made_counts_when_it_ends(ledger: Ledger) -> None:
    """It was paused, or held its interpreter, for longer than three heartbeats: nobody else has its rows."""
    emit(ledger, 10)
    batch = take(ledger, "lines")
    ledger.run(subscriptions.log(ledger.core, batch.stream, batch.slot, batch.reader, anew=True))
    beat(ledger, batch, ago=1000.0)
    assert rotate(ledger) == 0
    assert ledger.run(fencing.recover(ledger.core, batch.stream, batch.slot)) == 0
    assert commit(ledger, 0, Commit(inputs=(batch,)))
    assert counters(ledger)["acked"] == counters(ledger)["tracked"] == 10


def test_what_was_given_back_waits(ledger: Ledger) -> None:
    emit(ledger, 10)
    take(ledger, "lines")
    assert Stream(ledger, "lines").give_back("reader") == 1
    assert rotate(ledger) == 0


def test_what_was_acked_of_a_gone_query_does_not_keep_its_trees(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    batch = take(ledger, "lines")
    ledger.update(anchors, ids.new_ids(10))  # tuples that nobody acks
    ack(ledger, batch)
    beat(ledger, batch, ago=1000.0)
    assert rotate(ledger, 3) == 10


def test_slabs_of_one_and_those_of_many_shards_wait(url: str) -> None:
    ledger = open_ledger(Store(url), "ones", ackers=7, slab_limit=1)
    anchors = track(ledger, values := ids.new_ids(300), slab=1)
    commit(ledger, 0, Commit((stage(ledger, anchors, "lines"),)))
    ledger.update(anchors, values)
    assert rotate(ledger) == 0
    consume(ledger, "lines")
    assert counters(ledger)["acked"] == 300


def test_downtime_is_bounded_and_can_be_none(url: str) -> None:
    none = open_ledger(Store(url), "none", ackers=2, downtime=0)
    emit(none, 10)
    assert rotate(none, 3) == 10
    short = open_ledger(Store(url), "short", ackers=2, downtime=1, message_timeout=1.0)
    start = time.monotonic()
    emit(short, 10)
    expired = rotate(short)
    assert expired == 0 or time.monotonic() - start > 1.0
    wait_until(lambda: expired + rotate(short, 1) == 10)
    emit(short, 10)
    batch = take(short, "lines")
    found = short.run(subscriptions.delivered(short.core, batch))

    def expires() -> bool:
        short.run(downtime.take_up(short.core, "lines", batch.slot, found))
        return rotate(short, 1) == 10

    wait_until(expires)


@pytest.mark.damage
def test_a_stream_that_cannot_be_read_keeps_no_other_from_waiting(ledger: Ledger) -> None:
    for stream in ("bad", "lines", "worse"):
        emit(ledger, 5, stream)
    with raw_client(ledger.store.url) as client:
        stream_keys = keys.Stream("t", "bad")
        client.delete(stream_keys.entries.decode())
        client.set(stream_keys.entries.decode(), "no stream")
        [slot] = ledger.run(subscriptions.slots(ledger.core, "worse"))
        client.hset(keys.Stream("t", "worse").subscriptions.decode(), f"cursor:{slot}", "no id")
    assert rotate(ledger) == 10
    with raw_client(ledger.store.url) as client:
        client.delete(stream_keys.entries.decode())


def test_more_trees_than_a_call_looks_at_wait(url: str) -> None:
    ledger = open_ledger(Store(url), "large", ackers=1, slab_limit=4096)
    anchors = track(ledger, values := ids.new_ids(5 * 4096), slab=4096)
    piece = stage(ledger, anchors, "lines")
    commit(ledger, 0, Commit((piece,)))
    ledger.update(anchors, values)
    assert rotate(ledger) == 0
    assert ledger.run(totals(ledger.core)).pending == 5 * 4096


def test_tickers_keep_what_waits_and_expire_what_does_not(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "ticked", ackers=3, message_timeout=1.0)
    emit(ledger, 100)
    lost = emit(ledger, 50, "other")
    take(ledger, "other")
    with running(Ticker(Store(valkey_url), hooks=HOOKS), Ticker(Store(valkey_url), hooks=HOOKS)):
        wait_until(lambda: counters(ledger).get("expired", 0) == len(lost))
        wait_until(lambda: counters(ledger)["rotations"] >= 15)
    assert counters(ledger)["expired"] == len(lost)
    consume(ledger, "lines")
    assert counters(ledger)["acked"] == 100


def test_a_stopped_ticker_rotates_no_shard_that_another_has_rotated(ledger: Ledger) -> None:
    made = ledger.run(tick.rotations(ledger.core, ledger.core.shards))
    ledger.tick(force=True)
    assert ledger.run(tick.rotate(ledger.core, force=True, expected=made)) == 0
    assert ledger.run(tick.rotate(ledger.core, force=True)) == len(made)


def test_rows_without_trees_and_other_subscriptions_take_no_room_of_those_that_wait(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(downtime, "MOST_SEGMENTS", 2)
    for name in ("a", "b"):
        Stream(ledger, "lines").subscribe(name)

    def publish(number: int, rows: int) -> None:
        anchors = track(ledger, values := ids.new_ids(rows))
        commit(ledger, number, Commit((stage(ledger, anchors, "lines"),)))
        ledger.update(anchors, values)

    for number in range(3):
        commit(ledger, number, Commit((stage(ledger, [0], "lines").as_said_unanchored(),)))
    publish(3, 5)
    publish(4, 5)
    assert rotate(ledger) == 0
    assert not caplog.records
    publish(5, 7)
    assert rotate(ledger, 3) == 7
    assert "stream lines, subscription a: more than 2 segments wait" in caplog.text


def test_a_removed_stream_leaves_no_heartbeat(ledger: Ledger) -> None:
    emit(ledger, 10)
    beat(ledger, take(ledger, "lines", "a"))
    beat(ledger, take(ledger, "words", "b"))
    Stream(ledger, "lines").unsubscribe("a")
    ledger.run(remove(ledger.config.name, force=True))
    with raw_client(ledger.store.url) as client:
        assert list(client.scan_iter("*heartbeats*")) == []
