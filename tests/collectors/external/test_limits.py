"""Flushes that come too late, keys of a store that is no more, and bounds: errors, and nothing is dropped."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.errors import (
    StampsExpired,
    StreamFull,
    StreamLost,
    TopologyInUse,
    ValidationError,
)
from acker.inspect.operate.configure import configure
from acker.ledger.settings.config import Settings
from acker.streams import Stream
from acker.streams.staging.external.declaring import MARGIN
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source, work
from tests.helpers.faults.stepping import lose
from tests.helpers.models.leaks import kind_of
from tests.helpers.servers.clocks import ShiftedClock
from tests.helpers.worlds.commits import pass_time


@pytest.fixture
def shifted(tmp_path: Path) -> Any:
    """A server whose clock can be moved, and the clock."""
    clock = ShiftedClock(tmp_path / "clock")
    with EmbeddedServer(directory=tmp_path / "store", binary=clock.binary) as server:
        yield server, clock


def opened(server: EmbeddedServer) -> Topology:
    """A topology object of a process."""
    return Topology(server.url, "t", linger=None, message_timeout=600.0)


def test_a_flush_two_hours_late_is_refused_again_and_again(shifted: Any) -> None:
    server, clock = shifted
    made, step = opened(server), opened(server)
    step.incoming("items", subscription="count")
    headers = source(made, 2)
    clock.step(server, 7200.0)
    for _ in range(2):
        with pytest.raises(StampsExpired, match="more than 3,600 s before their flush"):
            made.flush()
    with pytest.raises(StampsExpired):
        made.outgoing("items")
    # The process starts again from its committed offsets; what it sent before is taken for old.
    again = opened(server)
    found = step.incoming("items", subscription="count").extract_many(headers)
    assert [row.tracked for row in found] == [False, False]
    headers = source(again, 2)
    again.flush()
    work(step, headers)
    step.flush()
    assert again.counters()["acked"] == 2


def test_a_topology_says_how_late_a_flush_may_be_and_a_step_learns_of_it(shifted: Any) -> None:
    server, clock = shifted
    step = opened(server)
    items = step.incoming("items", subscription="count")
    step.ledger.run(configure("t", Settings(stamp_ttl=7200)))
    made = opened(server)
    headers = source(made, 2)
    clock.step(server, 5400.0)
    rows = items.extract_many(headers)  # neither is emitted yet
    assert [row.tracked for row in rows] == [True, True]
    items.ack(rows)
    step.flush()
    made.flush()
    assert made.counters()["acked"] == 2
    source(made, 1)
    made.flush()
    with pytest.raises(
        TopologyInUse, match="3 open segments of external streams: its stamp_ttl falls from 7,200"
    ):
        step.ledger.run(configure("t", Settings(stamp_ttl=3600)))


def test_acks_of_a_running_consumer_wait_for_as_long_as_a_raised_stamp_ttl_says(shifted: Any) -> None:
    server, clock = shifted
    step = opened(server)
    items = step.incoming("items", subscription="count")
    step.ledger.run(configure("t", Settings(stamp_ttl=7200)))
    made = opened(server)
    headers = source(made, 2)
    rows = items.extract_many(headers)
    items.ack(rows[0])
    items.fail(rows[1], "no such word")
    step.flush()
    clock.step(server, 5400.0)
    made.flush()
    counts = made.counters()
    assert (counts["tracked"], counts["acked"], counts["failed"]) == (2, 1, 1)


def test_a_running_ticker_follows_a_raised_stamp_ttl(shifted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, clock = shifted
    ticker = opened(server)
    ticker.incoming("items", subscription="count")
    ticker.ledger.run(configure("t", Settings(stamp_ttl=7200)))
    made = opened(server)
    headers = source(made, 1)
    lose(monkeypatch, "apply_staged", made.flush)  # its segment is announced
    clock.step(server, 5400.0)
    pass_time(ticker.ledger)
    assert Stream(ticker.ledger, "items").totals().segments == 1
    made.flush()
    work(ticker, headers)
    ticker.flush()
    assert made.counters()["acked"] == 1


def test_nothing_of_a_flush_is_emitted_after_the_limit_of_its_oldest_segment(
    shifted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, clock = shifted
    made, step = opened(server), opened(server)
    step.incoming("items", subscription="count")
    source(made, 1)
    clock.step(server, 3000.0)
    made.outgoing("items")  # it reads the store's clock
    source(made, 1)
    lose(monkeypatch, "apply_staged", made.flush)  # its segments are announced
    clock.step(server, 3900.0)
    with pytest.raises(StampsExpired):
        made.flush()
    with redis.Redis.from_url(server.url) as raw:
        assert [key for key in raw.scan_iter("acker:*staged:*") if raw.hexists(key, "of")] == []


@pytest.mark.parametrize("seconds", [3900.0, 7200.0])
def test_a_flush_that_took_effect_and_is_called_again_late(
    shifted: Any, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    server, clock = shifted
    made, step = opened(server), opened(server)
    step.incoming("items", subscription="count")
    headers = source(made, 2)
    lose(monkeypatch, "apply_staged", made.flush, reply=True)
    clock.step(server, seconds)
    if seconds < 3600 + MARGIN:
        made.flush()
    else:
        with pytest.raises(
            StampsExpired, match="rows that no earlier attempt of it has emitted stay untracked"
        ):
            made.flush()
    work(step, headers)
    step.flush()
    assert step.counters()["acked"] == 2


@pytest.mark.parametrize("hours", [2.0, 1440.0])
def test_rows_that_are_read_again_later_are_untracked_and_make_no_key(shifted: Any, hours: float) -> None:
    server, clock = shifted
    made, step = opened(server), opened(server)
    step.incoming("items", subscription="count")
    headers = source(made, 20)
    made.flush()
    work(step, headers)
    step.flush()
    clock.step(server, 3600.0 * hours)
    with redis.Redis.from_url(server.url) as raw:
        before = set(raw.scan_iter("acker:*"))
        reader = opened(server)
        items, words = reader.incoming("items", subscription="count"), reader.outgoing("words")
        rows = items.extract_many(headers)
        assert len(rows) == 20
        assert not any(row.tracked for row in rows)
        assert [words.inject(None, row) for row in rows] == [[]] * 20
        items.ack(rows)
        reader.flush()
        new = {kind_of(key) for key in raw.scan_iter("acker:*") if key not in before}
        assert new <= {"subscriptions", "published", "named"}, "what is noted of the stream itself"
    assert items.counted == {"rows": 20, "over": 20}
    assert made.counters()["late"] == 0


def test_a_row_is_tracked_however_late_while_its_segment_is_open(shifted: Any) -> None:
    server, clock = shifted
    made, step = opened(server), opened(server)
    step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    clock.step(server, 86400.0)
    work(step, headers)
    step.flush()
    assert made.counters()["acked"] == 3


def test_a_process_that_holds_the_key_of_an_emptied_store_is_refused(make: Make, raw: Any) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    raw.flushall()
    for _ in range(2):
        with pytest.raises(StreamLost, match="the store has lost it"):
            items.extract(headers[0])
    source_again = make()
    source(source_again, 1)
    out = made.outgoing
    with pytest.raises(StreamLost):
        out("items")
    found = make().incoming("items", subscription="count").extract_many(headers)
    assert [row.tracked for row in found] == [False] * 3


def test_an_emptied_store_refuses_what_was_stamped_before(make: Make, raw: Any) -> None:
    made = make()
    made.incoming("items", subscription="count")
    source(made, 3)
    raw.flushall()
    made.restore()
    for _ in range(2):
        with pytest.raises(StreamLost):
            made.flush()


@pytest.mark.damage
def test_a_store_that_has_lost_a_subscription_is_not_sent_rows_that_nobody_owes(make: Make, raw: Any) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    source(made, 2)
    key = "acker:{t/items}:subscriptions"
    raw.hdel(key, *[name for name in raw.hkeys(key) if name.startswith((b"slot", b"name:"))])
    with pytest.raises(StreamLost, match="the store has lost it"):
        made.flush()
    assert made.counters()["acked"] == 0


def test_a_subscription_that_was_dropped_is_not_missed(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    source(made, 2)
    Stream(made.ledger, "items").unsubscribe("count")
    made.flush()
    assert made.counters()["acked"] == 2


def test_at_its_bound_of_segments_a_stream_refuses_flushes_until_some_ended(make: Make) -> None:
    made, step, name = make(), make(), "items"
    step.incoming(name, subscription="count")
    made.outgoing(name, most_segments=2)
    headers = source(made, 3)
    with pytest.raises(StreamFull, match=r"has 0 open segments, and a flush with 3 .* raise most_segments"):
        made.flush()
    made.outgoing(name, most_segments=3)
    made.flush()
    work(step, headers)
    step.flush()
    assert made.counters()["acked"] == 3


def test_at_its_bound_of_bytes_of_vectors_a_stream_refuses_flushes_until_some_ended(make: Make) -> None:
    made, step, name = make(), make(), "items"
    for subscription in ("count", "price"):
        step.incoming(name, subscription=subscription)
    made.outgoing(name, most_bytes=2 * (250 + 18) + 1)
    headers = source(made, 1)
    made.flush()
    assert Stream(made.ledger, name).totals().bytes == 2 * (250 + 18)
    headers += source(made, 1)
    with pytest.raises(StreamFull, match="with 536 bytes of vectors, and a flush would bring it over"):
        made.flush()
    assert Stream(made.ledger, name).totals().segments == 1
    for subscription in ("count", "price"):
        work(step, headers[:1], subscription)
        step.flush()
    pass_time(made.ledger)
    made.flush()
    for subscription in ("count", "price"):
        work(step, headers[1:], subscription)
        step.flush()
    assert made.counters()["acked"] == 2
    pass_time(made.ledger)
    assert Stream(made.ledger, name).totals().bytes == 0


def test_at_the_bound_of_waiting_bits_a_flush_is_refused_and_can_be_made_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    headers = source(made, 3)
    work(step, headers)
    with monkeypatch.context() as patch:
        patch.setattr(step.ledger.core, "config", replace(step.config, external_waiting_bytes=500))
        with pytest.raises(StreamFull, match="500 bytes of rows that came before"):
            step.flush()
    made.flush()
    assert made.counters()["acked"] == 0
    step.flush()
    assert made.counters()["acked"] == 3


def test_emits_that_found_no_room_to_wait_for_their_trees_ack_nothing(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made, step = make(ackers=1, waiting_bytes=0), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    step.incoming("words", subscription="sink")
    rows = items.extract_many(source(made, 2))
    for row in rows:
        words.stamp(row)
    items.ack(rows)
    step.flush()
    assert "waited too long for the track of their trees" in caplog.text
    made.flush()
    assert made.counters()["acked"] == 0
    caplog.clear()


def test_a_forked_child_sends_nothing_of_its_parent(make: Make, raw: Any) -> None:
    made = make()
    made.incoming("items", subscription="count")
    source(made, 2)
    pid = os.fork()
    if not pid:
        exchange: Any = made._exchange
        os._exit(int(exchange.waits))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    made.flush()
    assert raw.xlen("acker:{t/items}:entries") == 2


def test_a_row_has_at_most_255_trees(make: Make) -> None:
    made = make()
    made.incoming("items", subscription="count")
    spout, out = made.spout("s"), made.outgoing("items")
    tuples = [spout.emit(f"m{number}")[0] for number in range(256)]
    with pytest.raises(ValidationError, match="a row belongs to at most 255 trees, got 256"):
        out.stamp(*tuples)
    step = make()
    text = out.stamp(*tuples[:255])
    made.flush()
    items = step.incoming("items", subscription="count")
    items.ack(items.read([text]))
    step.flush()
    assert made.counters()["acked"] == 255


def test_the_record_of_a_fail_that_has_no_room_to_wait_is_not_acked(make: Make) -> None:
    made, step = make(ackers=1, waiting_bytes=1_200), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, 20)
    made._exchange.flush()  # type: ignore[union-attr]  # before the track of its records
    rows = items.extract_many(headers)
    items.fail(rows[0], "x" * 1_000)
    items.ack(rows[1:])
    step.flush()
    assert made.counters()["orphaned"] > 0
    made.flush()
    assert made.counters()["acked"] == 19
