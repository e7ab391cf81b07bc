"""Time: trees expire when the tick promises, whichever process ticks and wherever it dies."""

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
import redis

from acker.ledger import ids
from acker.ledger.calls.calls import HORIZON, Ticked
from acker.ledger.client import Ledger
from acker.ledger.tick import scripts, tick
from acker.store.operation import Operation, Reply, Request
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.models.ledger_state import age_writers, pass_time, shard_key
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def ledger(url: str) -> Ledger:
    return opened(url, ackers=2)


def steps(ledger: Ledger, operation: Operation[object]) -> Iterator[list[Reply]]:
    """Runs an operation a batch at a time; closing it is a process that dies there."""
    requests: list[Request] = next(operation)
    while True:
        replies = ledger.store.send(requests)
        yield replies
        try:
            requests = operation.send(replies)
        except StopIteration:
            return


def touch_all_shards(ledger: Ledger) -> None:
    for _ in range(20):
        Trees(1).complete(ledger)


def test_a_tick_before_its_time_does_nothing(ledger: Ledger, raw: "redis.Redis") -> None:
    touch_all_shards(ledger)
    assert ledger.tick() == Ticked()
    pass_time(raw, ledger, ledger.config.tick_ms)
    assert ledger.tick().rotated == 2
    assert ledger.tick() == Ticked()


def test_a_late_tick_makes_one_rotation_and_moves_the_next(ledger: Ledger, raw: "redis.Redis") -> None:
    touch_all_shards(ledger)
    trees = Trees(3).track(ledger)
    pass_time(raw, ledger, 10 * ledger.config.timeout_ms)
    assert ledger.tick() == Ticked(rotated=2)
    assert ledger.tick() == Ticked()
    assert not reported(ledger, trees)


@pytest.mark.parametrize("tracked", range(3))
def test_a_tree_expires_within_1_5_timeouts(ledger: Ledger, raw: "redis.Redis", tracked: int) -> None:
    """Whenever in a period it is tracked: two whole periods at least lie before the rotation that ends it."""
    period = ledger.config.tick_ms
    assert 2 * period >= ledger.config.timeout_ms
    touch_all_shards(ledger)
    for _ in range(tracked):
        pass_time(raw, ledger, period)
        ledger.tick()
    trees = Trees(2).track(ledger)
    for rotation in (1, 2, 3):
        assert not reported(ledger, trees)
        assert ledger.tick() == Ticked()
        pass_time(raw, ledger, period)
        assert ledger.tick().expired == (2 if rotation == 3 else 0)
    assert {status for _, status, _ in reported(ledger, trees)} == {"expired"}


def test_in_real_time_nothing_expires_before_the_timeout_and_all_within_one_and_a_half(url: str) -> None:
    ledger = opened(url, message_timeout=1.0)
    trees, reset = Trees(3).track(ledger), Trees(1).track(ledger)
    started = time.monotonic()
    moments: dict[str, float] = {}

    def both_expired() -> bool:
        now = time.monotonic() - started
        if now > 0.4 and "reset" not in moments:
            assert ledger.reset_timeout(reset.anchors) == 1
            moments["reset"] = time.monotonic() - started
        ledger.tick()
        expired = {anchor for anchor, _, _ in reported(ledger, trees, reset)}
        if int(trees.anchors[0]) in expired:
            moments.setdefault("expired", now)
        if int(reset.anchors[0]) in expired:
            moments.setdefault("reset expired", now)
        return len(moments) == 3

    wait_until(both_expired, timeout=20)
    assert moments["expired"] >= 0.99
    assert moments["reset expired"] >= moments["reset"] + 0.99
    [low, high] = [ledger.config.message_timeout, 1.5 * ledger.config.message_timeout + 5]
    assert low - 0.01 <= moments["expired"] <= high


def test_a_tick_costs_the_same_number_of_calls_for_any_number_of_trees(ledger: Ledger) -> None:
    def batches() -> int:
        return sum(1 for _ in steps(ledger, tick.rotate(ledger.core, force=True)))

    alone = batches()
    for _ in range(50):
        Trees(10).track(ledger)
    assert [batches() for _ in range(4)] == [alone] * 4


def test_drains_are_bounded_and_go_on_where_the_last_one_stopped(ledger: Ledger) -> None:
    slabs = [Trees(1).track(ledger) for _ in range(300)]
    for _ in range(3):
        ledger.run(tick.rotate(ledger.core, force=True))
    drained, calls = 0, 0
    while part := ledger.run(tick.drain(ledger.core, most=20)).expired:
        assert part <= 20 + 32
        drained, calls = drained + part, calls + 1
    assert drained == 300
    assert calls >= 6
    assert len(reported(ledger, *slabs)) == 300


def test_any_number_of_tickers_expire_each_tree_once(ledger: Ledger) -> None:
    slabs = [Trees(3).track(ledger) for _ in range(400)]
    results: list[Ticked] = []
    errors: list[Exception] = []
    start = threading.Barrier(4)

    def tick() -> None:
        try:
            start.wait()
            results.extend(ledger.tick(force=True) for _ in range(4))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells
            errors.append(error)

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.tick()
    assert not errors
    assert sum(result.rotated for result in results) == ledger.counters()["rotations"]
    assert reported(ledger, *slabs) == Counter(
        (int(anchor), "expired", "") for trees in slabs for anchor in trees.anchors
    )
    counted(ledger, tracked=1200, expired=1200)


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5, 8])
def test_a_ticker_that_dies_anywhere_leaves_the_rest_to_the_next(ledger: Ledger, batches: int) -> None:
    slabs = [Trees(2).track(ledger) for _ in range(200)]
    for _ in range(2):
        ledger.tick(force=True)
    dying = steps(ledger, tick.tick(ledger.core, force=True))
    for _ in range(batches):
        next(dying)
    dying.close()  # type: ignore[attr-defined]
    rotations = ledger.counters()["rotations"]
    ledger.tick(force=rotations < 6)
    assert reported(ledger, *slabs) == Counter(
        (int(anchor), "expired", "") for trees in slabs for anchor in trees.anchors
    )


def test_rotations_that_nobody_drained_are_all_drained_later(ledger: Ledger) -> None:
    every = []
    for _ in range(6):
        every.append(Trees(2).track(ledger))
        ledger.run(tick.rotate(ledger.core, force=True))
    assert ledger.run(tick.drain(ledger.core)).expired == 8
    assert len(reported(ledger, *every)) == 8


def test_a_rotation_that_is_drained_out_of_turn_does_not_hide_an_earlier_one(url: str) -> None:
    ledger = opened(url)
    early = Trees(2).track(ledger)
    ledger.run(tick.rotate(ledger.core, force=True))
    late = Trees(2).track(ledger)
    for _ in range(3):
        ledger.run(tick.rotate(ledger.core, force=True))
    shard, slab = ledger.core.shards[0], ids.slab_of(int(late.anchors[0]))
    [[expired, _, left, _]] = ledger.run(
        ledger.core.ask([scripts.drain(ledger.core.config, shard, 3, [slab])])
    )
    assert (expired, left) == (2, 0)
    assert ledger.run(tick.drain(ledger.core)).expired == 2
    assert len(reported(ledger, early, late)) == 4


def test_a_reset_in_the_rotation_of_the_track_changes_nothing(ledger: Ledger) -> None:
    trees = Trees(2).track(ledger)
    assert ledger.reset_timeout(trees.anchors) == 1
    for _ in range(3):
        ledger.tick(force=True)
    assert len(reported(ledger, trees)) == 2


def test_a_spout_that_joins_while_a_ticker_works_does_not_stop_it(url: str) -> None:
    ticker, other = opened(url), opened(url)
    joined = 0
    for joins_after in range(8):
        for number, _ in enumerate(steps(ticker, tick.tick(ticker.core, force=True))):
            if number == joins_after:
                Trees(1).track(other, f"joined-{joins_after}")
                joined += 1
    for _ in range(3):
        ticker.tick(force=True)
    assert joined >= 3
    counted(other, tracked=joined, expired=joined)


def test_a_ticker_goes_on_after_the_store_lost_the_names_of_the_spouts(url: str, raw: "redis.Redis") -> None:
    ticker, spout = opened(url), opened(url)
    spout.register_spout("s")
    raw.flushall()
    trees = Trees(2).track(spout)
    for _ in range(3):
        ticker.tick(force=True)
    assert len(reported(spout, trees)) == 2


def test_the_ticks_forget_writers_that_are_silent_for_long(ledger: Ledger, raw: "redis.Redis") -> None:
    def writers() -> int:
        names = [
            shard_key(ledger, number, name) for number in range(2) for name in ("writers", "writers_before")
        ]
        return sum(len(raw.hkeys(name.decode())) for name in names)

    horizon = int(max(HORIZON * 1000, ledger.config.timeout_ms))
    for _ in range(10):
        Trees(1).complete(opened(ledger.store.url))
    sent = ledger.core.update(Trees(1).anchors, ids.new_ids(1))
    ledger.send(sent)
    silent = writers()
    assert silent >= 10
    ledger.tick(force=True)
    age_writers(raw, ledger, horizon)
    ledger.tick(force=True)
    assert writers() == silent
    for call in sent.calls:
        call.reply = None
    ledger.send(sent)
    assert ledger.counters()["duplicates"] == len(sent.calls)
    ledger.core.writers.take()
    age_writers(raw, ledger, horizon)
    ledger.tick(force=True)
    assert writers() == 0
    trees = Trees(1).track(ledger)
    trees.complete(ledger)
    assert len(reported(ledger, trees)) == 1


def test_one_client_leaves_few_writers_however_much_it_sends(ledger: Ledger, raw: "redis.Redis") -> None:
    for _ in range(30):
        Trees(10).track(ledger).complete(ledger)
    anchors = [int(Trees(1).anchors[0]) for _ in range(30_000)]
    ledger.update(anchors, [1] * len(anchors))
    assert max(raw.hlen(shard_key(ledger, number, "writers").decode()) for number in range(2)) <= 8


def test_waiting_and_finished_trees_leave_nothing_behind(ledger: Ledger, raw: "redis.Redis") -> None:
    from tests.helpers.models.leaks import assert_settled

    for count in (1, 2, 90):
        Trees(count).complete(ledger)
        ledger.fail(Trees(count).anchors, "bad")
        trees = Trees(count).track(ledger)
        trees.complete(ledger, 0)
        ledger.fail(trees.anchors[1:2])
    for _ in range(3):
        ledger.tick(force=True)
    confirm_all(ledger)
    assert_settled(raw)
