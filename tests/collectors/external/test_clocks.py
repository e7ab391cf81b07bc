"""The clocks of open segments stand still while consumers are only behind, and run when rows are lost."""

from typing import Any

import pytest

from acker import Topology
from acker.errors import StoreUnavailable, UnknownSubscription, ValidationError
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.trees import clocks
from acker.ledger.tick import keeper
from acker.ledger.tick.ticker import Ticker
from acker.store.client import Store
from acker.streams import Stream
from acker.streams.upkeep import open_segments
from tests.helpers.builders.collectors import Make, reported
from tests.helpers.builders.external import source, work
from tests.helpers.faults.stepping import before_script
from tests.helpers.models.ledger_state import pass_time as shift_clock
from tests.helpers.servers.servers import wait_until
from tests.helpers.worlds.commits import pass_time

pytestmark = [pytest.mark.slow, pytest.mark.cluster(slow=True)]


def ticks(topology: Topology, count: int) -> dict[str, int]:
    """A ticker's rounds; returns the counts."""
    for _ in range(count):
        pass_time(topology.ledger)
    return topology.counters()


def slab_by_slab(topology: Topology, count: int) -> list[Any]:
    """Sends a row of each of so many records, which do not share a clock."""
    sent = list[Any]()
    for _ in range(count):
        sent += source(topology, 1)
        topology.flush()
    return sent


def test_rows_that_nobody_has_read_yet_do_not_expire(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    headers = source(made, 5, rows=2)
    made.flush()
    tree = made.ledger.run(clocks.page(made.ledger.core)).trees[0]
    assert tree.wait is not None
    assert tree.wait.waits_for == "count of stream items"
    assert tree.wait.until == pytest.approx((tree.wait.since or 0) + 3600)
    assert ticks(made, 6)["expired"] == 0
    work(step, headers)
    step.flush()
    assert ticks(made, 1)["acked"] == 5
    assert made.counters()["late"] == 0


def test_a_long_pass_over_open_segments_goes_in_pieces_and_none_expires_meanwhile(
    make: Make, url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_segments, "_PAGE", 2)
    monkeypatch.setattr(keeper, "KEEP_FOR", 0.0)
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    slab_by_slab(made, 21)
    other = make("other", ackers=1)
    Ticker(Store(url), hooks=HOOKS).step()  # the shards' clocks begin
    for number in range(1, 5):
        begun = Ticker(Store(url), hooks=HOOKS)
        for topology in (made, other):
            shift_clock(raw, topology.ledger, 15_000)
        rounds = 0
        while made.counters()["rotations"] < number:
            begun.step()
            rounds += 1
            assert rounds < 10 or other.counters()["rotations"] == number, "it waits for the long pass"
        assert made.counters()["expired"] == 0, "each of them was reached before the rotation"
        assert rounds > 3 * 21 / 2, "a round reads a page of two, or does something for it"


def test_open_segments_wait_where_a_loop_of_ones_own_ticks(
    make: Make, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_segments, "_PAGE", 2)
    monkeypatch.setattr(keeper, "KEEP_FOR", 0.0)
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    headers = slab_by_slab(made, 9)
    made.tick()  # the shards' clocks begin
    for number in range(1, 5):
        shift_clock(raw, made.ledger, 15_000)
        calls = 0
        while made.counters()["rotations"] < number:
            made.tick()
            calls += 1
        assert made.counters()["expired"] == 0
        assert calls > 9 / 2, "a call keeps a page of two"
    work(step, headers)
    step.flush()
    assert made.counters()["acked"] == 9


def test_a_lost_row_costs_its_segment_when_later_rows_came(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count", lost_after=1.0)
    headers = source(made, 4)
    made.flush()
    work(step, headers[1:])
    step.flush()
    assert ticks(made, 6)["expired"] == 0
    exchange: Any = made._exchange
    begun = exchange.now()
    wait_until(lambda: exchange.now() > begun + 1)
    assert ticks(made, 6)["expired"] == 0, "that time passes is no reason"
    again = source(made, 1)
    made.flush()
    work(step, again)
    step.flush()
    counts = ticks(made, 6)
    assert {name: counts[name] for name in ("acked", "expired")} == {"acked": 4, "expired": 1}
    assert Stream(made.ledger, "items").totals().segments == 1
    spout = made.spout("s")
    for outcome in reported(spout, 5):
        spout.confirm(outcome)
    made.flush()
    ticks(made, 2)
    totals = Stream(made.ledger, "items").totals()
    assert (totals.segments, totals.subscriptions[0].rows_dropped) == (0, 1)
    headers = source(made, 1, rows=4)
    made.flush()
    work(step, headers[:1])
    step.flush()
    assert Stream(made.ledger, "items").totals().subscriptions[0].rows_behind == 3, "the lost row is over"


def test_a_row_is_not_lost_while_what_came_was_sent_little_later(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count", lost_after=60.0)
    headers = source(made, 1)
    made.flush()
    exchange: Any = made._exchange
    begun = exchange.now()
    wait_until(lambda: exchange.now() > begun)
    later = source(made, 1)
    made.flush()
    work(step, later)
    step.flush()
    assert ticks(made, 6)["expired"] == 0, "the consumer is only behind"
    work(step, headers)
    step.flush()
    assert made.counters()["acked"] == 2


def test_a_record_of_a_lost_row_expires_with_the_counts_of_its_segment(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count", downtime=1.0)
    spout = made.spout("s")
    headers = source(made, 1, rows=10)
    made.flush()
    work(step, headers[3:])
    step.flush()
    anchor = step.incoming("items", subscription="count").extract(headers[0]).anchors[0]
    [place] = made.why(anchor).places
    assert place.text(timed=False) == "in stream items for subscription count, 7 of 10 rows received"
    exchange: Any = made._exchange
    begun = exchange.now()
    wait_until(lambda: exchange.now() > begun + 1)
    ticks(made, 6)
    [outcome] = reported(spout)
    assert outcome.status == "expired"
    assert outcome.reason == "in stream items for subscription count, 7 of 10 rows received"


def test_an_open_segment_counts_as_lost_after_the_downtime(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count", downtime=1.0)
    source(made, 2)
    made.flush()
    exchange: Any = made._exchange
    begun = exchange.now()
    wait_until(lambda: exchange.now() > begun + 1)
    assert ticks(made, 6)["expired"] == 2


def test_the_pass_ends_what_a_program_has_left_that_died(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, step = make(ackers=1), make(ackers=1)
    items = step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    items.ack(items.extract_many(headers[:1]))
    step.flush()  # it knows of the spouts by now: the next flush is taken at the first attempt
    items.ack(items.extract_many(headers[1:]))

    def die() -> None:
        raise StoreUnavailable

    before_script(monkeypatch, "apply_staged", die, step.flush)
    assert made.counters()["acked"] == 1
    assert ticks(made, 1)["acked"] == 3


def test_a_full_segment_leaves_its_tombstone_where_its_trees_are_over(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step = make(ackers=1), make(ackers=1)
    items = step.incoming("items", subscription="count", downtime=1.0)
    headers = source(made, 2)
    made.flush()
    items.ack(items.extract_many(headers[1:]))
    step.flush()  # it knows of the spouts by now: the next flush is taken at the first attempt
    row = items.extract(headers[0])
    items.ack(row)

    def die() -> None:
        raise StoreUnavailable

    before_script(monkeypatch, "apply_staged", die, step.flush)
    made.ledger.fail(list(row.anchors), "by hand")
    spout = made.spout("s")
    for outcome in reported(spout, 2):
        spout.confirm(outcome)
    made.flush()
    exchange: Any = made._exchange
    begun = exchange.now()
    wait_until(lambda: exchange.now() > begun + 1)
    ticks(made, 1)
    assert not make(ackers=1).incoming("items", subscription="count").extract(headers[0]).tracked


def test_entries_leave_the_stream_when_all_have_acked(make: Make, raw: Any) -> None:
    made, step = make(), make()
    for name in ("count", "price"):
        step.incoming("items", subscription=name)
    headers = source(made, 5, rows=2)
    made.flush()
    work(step, headers, "count")
    step.flush()
    ticks(made, 1)
    assert raw.xlen("acker:{t/items}:entries") == 5
    work(step, headers, "price")
    step.flush()
    ticks(made, 1)
    assert raw.xlen("acker:{t/items}:entries") == 0
    totals = raw.hgetall("acker:{t/items}:subscriptions")
    acked = [int(value) for name, value in totals.items() if name.startswith(b"acked:")]
    assert acked == [10, 10]
    assert int(totals[b"segments"]) == 0


def test_the_records_of_a_subscription_that_is_dropped_fail(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    work(step, headers[:1])
    step.flush()
    stream = Stream(made.ledger, "items")
    with pytest.raises(ValidationError, match="ack: stream 'items' is external"):
        stream.unsubscribe("count", ack=True)
    assert stream.unsubscribe("count") == 2
    counts = ticks(made, 1)
    assert {name: counts[name] for name in ("acked", "failed", "expired")} == {
        "acked": 1, "failed": 2, "expired": 0,
    }  # fmt: skip
    assert stream.totals().segments == 0
    for call in (lambda: items.extract_many(headers[1:]), step.flush):
        with pytest.raises(UnknownSubscription, match="the subscription was dropped"):
            call()


def test_nothing_of_a_removed_topology_is_left(make: Make, raw: Any) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    work(step, headers[:1])
    step.flush()
    made.remove(force=True)
    assert [key for key in raw.scan_iter("acker:*") if raw.ttl(key) == -1] == []
