"""The effect of each message on a tree, in each of its states (the transition table of the design)."""

from collections import Counter

import numpy as np
import pytest
import redis

from acker.errors import TrackConflict
from acker.ledger import ids
from acker.ledger.calls.calls import Failed, Updated
from acker.ledger.client import Ledger
from acker.ledger.outcomes import counts
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.tick import tick
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.models.leaks import WHILE_TREES_LIVE, assert_settled, kind_of
from tests.helpers.models.ledger_state import WAITING_SLAB, shard_key

pytestmark = pytest.mark.cluster(first=True)


def ticks(ledger: Ledger, count: int) -> None:
    for _ in range(count):
        ledger.tick(force=True)


def test_a_tree_is_acked_only_when_all_that_was_emitted_into_it_is_acked(ledger: Ledger) -> None:
    trees, child = Trees(1).track(ledger), ids.new_id()
    parent = int(trees.values[0])
    ledger.update(trees.anchors, [parent ^ child])
    assert not reported(ledger, trees)
    ledger.update(trees.anchors, [child])
    assert reported(ledger, trees) == Counter([(int(trees.anchors[0]), "acked", "")])


@pytest.mark.parametrize("count", [1, 2, 40, 4096])
def test_a_repeated_track_changes_nothing_and_another_one_is_an_error(ledger: Ledger, count: int) -> None:
    trees = Trees(count).track(ledger)
    trees.track(ledger)
    counted(ledger, tracked=count, duplicates=1)
    others = [
        (trees.values ^ np.int64(1), trees.message_ids, "s"),
        (trees.values, [*trees.message_ids[:-1], b"other"], "s"),
        (trees.values, trees.message_ids, "t"),
    ]
    for values, message_ids, spout in others:
        with pytest.raises(TrackConflict, match="other content"):
            ledger.track(trees.anchors, values, message_ids, spout=spout)
    trees.complete(ledger)
    trees.track(ledger)
    assert reported(ledger, trees) == Counter((int(anchor), "acked", "") for anchor in trees.anchors)
    counted(ledger, tracked=count, acked=count, duplicates=2)


@pytest.mark.parametrize("early", [[0], [0, 1, 2], [2]])
@pytest.mark.parametrize("rotations", [0, 1, 2, 3, 5])
def test_a_track_takes_over_what_waited_and_leaves_nothing_of_it(
    ledger: Ledger, raw: "redis.Redis", rotations: int, early: list[int]
) -> None:
    """Also when the waiting slab was set aside already, and is in no bucket any more."""
    trees, slab = Trees(3), b""
    trees.complete(ledger, *early)
    for _ in range(rotations):
        ledger.run(tick.rotate(ledger.core, force=True))
    trees.track(ledger)
    slab = ids.slab_of(int(trees.anchors[0]))
    buckets = [int(raw.sismember(f"acker:{{tested:0/1}}:bucket:{n}", slab)) for n in range(3)]  # type: ignore[arg-type]
    assert buckets == [int(len(early) < 3 and rotations % 3 == n) for n in range(3)]
    assert bool(raw.exists(b"acker:{tested:0/1}:ack:" + slab)) == (len(early) < 3)
    assert int(raw.hget("acker:{tested:0/1}:counters", "waiting") or 0) == 0
    ticks(ledger, 3)
    assert Counter(status for _, status, _ in reported(ledger, trees)) == Counter(
        ["acked"] * len(early) + ["expired"] * (3 - len(early))
    )
    confirm_all(ledger)
    assert_settled(raw)


def test_a_fail_is_final_and_what_comes_after_it_is_late(ledger: Ledger) -> None:
    trees = Trees(2).track(ledger)
    assert ledger.fail(trees.anchors[:1], "bad") == Failed(failed=1)
    assert ledger.update(trees.anchors[:1], trees.values[:1]) == Updated(late=1)
    assert ledger.fail(trees.anchors[:1]) == Failed(late=1)
    assert ledger.reset_timeout(trees.anchors[:1]) == 0
    assert reported(ledger, trees) == Counter([(int(trees.anchors[0]), "failed", "bad")])
    counted(ledger, tracked=2, failed=1, late=2)


def test_late_messages_wait_and_are_dropped_by_the_third_tick(ledger: Ledger, raw: "redis.Redis") -> None:
    trees = Trees(2).track(ledger)
    trees.complete(ledger)
    assert confirm_all(ledger) == 2
    assert ledger.update(trees.anchors[:1], trees.values[:1]) == Updated()
    ticks(ledger, 2)
    counted(ledger, tracked=2, acked=2)
    ticks(ledger, 1)
    counted(ledger, tracked=2, acked=2, orphaned=1)
    assert_settled(raw)


def test_a_slab_waits_for_its_track_until_the_third_tick(ledger: Ledger, raw: "redis.Redis") -> None:
    early, late = Trees(3), Trees(3)
    for trees in (early, late):
        trees.complete(ledger, 0)
        ledger.fail(trees.anchors[:2], "bad")
    ticks(ledger, 2)
    early.track(ledger)
    assert reported(ledger, early) == Counter((int(anchor), "failed", "bad") for anchor in early.anchors[:2])
    ticks(ledger, 1)
    counted(ledger, tracked=3, failed=2, orphaned=2)
    assert raw.hlen(shard_key(ledger, 0, "slabs")) == 1


def test_messages_over_the_bytes_that_may_wait_are_orphaned_and_their_tree_expires(url: str) -> None:
    ledger = opened(url, waiting_bytes=2 * WAITING_SLAB)
    first, second, third = (Trees(1) for _ in range(3))
    first.complete(ledger)
    second.complete(ledger)
    assert ledger.update(third.anchors, third.values) == Updated(orphaned=1)
    assert ledger.fail(third.anchors) == Failed(orphaned=1)
    third.track(ledger)
    ticks(ledger, 3)
    assert reported(ledger, third) == Counter([(int(third.anchors[0]), "expired", "")])
    counted(ledger, tracked=1, expired=1, orphaned=4)


def test_a_pending_tree_expires_by_the_third_tick_and_not_before(ledger: Ledger) -> None:
    trees = Trees(40).track(ledger)
    trees.complete(ledger, 3, 5)
    ticks(ledger, 2)
    assert len(reported(ledger, trees)) == 2
    trees.complete(ledger, 7)
    ticks(ledger, 1)
    statuses = Counter(status for _, status, _ in reported(ledger, trees))
    assert statuses == {"acked": 3, "expired": 37}
    assert ledger.update(trees.anchors, trees.values) == Updated(late=40)


def test_a_reset_gives_the_slab_another_three_ticks(ledger: Ledger) -> None:
    kept, left = Trees(5).track(ledger), Trees(5).track(ledger)
    ticks(ledger, 2)
    assert ledger.reset_timeout(kept.anchors[:1]) == 1
    ticks(ledger, 2)
    assert reported(ledger, kept, left) == Counter((int(anchor), "expired", "") for anchor in left.anchors)
    ticks(ledger, 1)
    assert len(reported(ledger, kept, left)) == 10


def test_a_tree_that_was_set_aside_but_not_drained_can_still_be_acked_failed_or_reset(ledger: Ledger) -> None:
    acked, failed, again, gone = (Trees(3).track(ledger) for _ in range(4))
    for _ in range(3):
        ledger.run(tick.rotate(ledger.core, force=True))
    acked.complete(ledger)
    ledger.fail(failed.anchors, "bad")
    ledger.reset_timeout(again.anchors)
    assert ledger.run(tick.drain(ledger.core)).expired == 3
    statuses = {anchor: status for anchor, status, _ in reported(ledger, acked, failed, gone)}
    assert [statuses.get(int(trees.anchors[2])) for trees in (acked, failed, again, gone)] == [
        "acked", "failed", None, "expired",
    ]  # fmt: skip


def test_outcomes_are_reported_again_until_they_are_confirmed(ledger: Ledger, raw: "redis.Redis") -> None:
    trees = Trees(3).track(ledger)
    trees.complete(ledger, 0)
    trees.complete(ledger, 1, 2)
    assert len(reported(ledger, trees)) == len(reported(ledger, trees)) == 3
    reader = OutcomeReader(ledger.core, "s")
    first, second = ledger.outcomes(reader)
    assert ledger.confirm("s", [first.confirmation]) == 1
    assert len(reported(ledger, trees)) == 2
    slab = ids.slab_of(int(trees.anchors[0]))
    assert ledger.message_ids([slab]) == {slab: trees.message_ids}
    assert ledger.confirm("s", [second.confirmation] * 2) == 2
    assert not reported(ledger, trees)
    assert ledger.message_ids([slab]) == {}
    assert_settled(raw)


def test_each_spout_is_reported_of_its_own_trees_only(url: str) -> None:
    first, second = opened(url, ackers=2), opened(url)
    mine = [Trees(2).track(first, "mine") for _ in range(8)]
    yours = [Trees(2).track(second, "yours") for _ in range(8)]
    for trees in mine + yours:
        trees.complete(second)
    every = mine + yours
    assert {anchor for anchor, _, _ in reported(first, *every, spout="mine")} == {
        int(anchor) for trees in mine for anchor in trees.anchors
    }
    assert len(reported(first, *every, spout="yours")) == 16


@pytest.mark.parametrize(
    "parts", [[[19], range(19)], [range(10), range(10, 20)], [range(0, 20, 2), range(1, 20, 2)]]
)
def test_a_slab_leaves_only_its_header_and_message_ids_once_its_trees_are_finished(
    ledger: Ledger, raw: "redis.Redis", parts: list[list[int]]
) -> None:
    trees = Trees(20).track(ledger)
    for part in parts:
        assert raw.exists(shard_key(ledger, 0, "bucket:0"))
        trees.complete(ledger, *part)
    kinds = {kind_of(key) for key in raw.scan_iter()}
    assert kinds & WHILE_TREES_LIVE.keys() == {"slabs", "message_ids"}


def test_the_latency_of_acked_trees_is_in_the_histogram(ledger: Ledger) -> None:
    assert ledger.latency(0.5, 0.99) == [None, None]
    trees = Trees(500).track(ledger)
    trees.complete(ledger)
    low, high = ledger.latency(0.0, 1.0)
    assert low is not None
    assert high is not None
    assert 0 <= low <= high < 10
    assert sum(ledger.run(counts.latencies(ledger.core)).values()) == 500
