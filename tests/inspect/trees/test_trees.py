"""The read side: what it tells of trees, and that it never reads more than a bounded piece."""

import secrets

import pytest
import redis

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.tick import tick
from acker.ledger.tick.keeper import due
from acker.ledger.trees import trees
from acker.ledger.trees.buckets import TICK_LAG, Clock
from acker.store.client import Store
from tests.helpers.builders.reading import found, listed, read_totals, track, track_singles, tree

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "reads", ackers=4, message_timeout=60.0)


def test_a_pending_tree_is_reported_whole(ledger: Ledger) -> None:
    anchors, values = track(ledger, 5, spout="lines")
    found = tree(ledger, int(anchors[3]))
    assert (found.anchor, found.state, found.value) == (int(anchors[3]), "pending", int(values[3]))
    assert (found.spout, found.message_id, found.failure) == ("lines", b"m3", None)
    assert (found.slab, found.index, found.bucket) == (int(anchors[0]), 3, "nursery")
    assert found.shard == ids.shard_of(ids.slab_of(found.anchor), 4)
    assert read_totals(ledger).at == pytest.approx(found.tracked_at + found.age, abs=30)


def test_the_ack_value_is_signed_and_follows_updates(ledger: Ledger) -> None:
    anchors = ids.new_anchors(2)
    ledger.track(anchors, [-(1 << 63), (1 << 63) - 1], ["a", "b"], spout="s")
    ledger.update(anchors, [1, -1])
    assert tree(ledger, int(anchors[0])).value == -(1 << 63) + 1
    assert tree(ledger, int(anchors[1])).value == -(1 << 63)


def test_an_unknown_tree_is_none(ledger: Ledger) -> None:
    anchors, _ = track(ledger, 3)
    assert ledger.run(trees.tree(ledger.core, int(ids.new_anchors(1)[0]))) is None
    assert ledger.run(trees.tree(ledger.core, int(anchors[0]) + 3)) is None


def test_a_finished_tree_is_known_until_its_slab_is_confirmed(ledger: Ledger) -> None:
    anchors, values = track(ledger, 2)
    ledger.update(anchors[:1], values[:1])
    ledger.fail(anchors[1:])
    for anchor in anchors.tolist():
        found = tree(ledger, anchor)
        assert (found.state, found.value, found.bucket, found.time_left_earliest) == (
            "finished",
            0,
            None,
            None,
        )
        assert found.message_id is not None


def test_a_tree_that_waits_for_its_track_has_no_owner_yet(ledger: Ledger) -> None:
    anchors = ids.new_anchors(3)
    ledger.update(anchors[:1], [7])
    ledger.fail(anchors[2:], "too early")
    first, last = tree(ledger, int(anchors[0])), tree(ledger, int(anchors[2]))
    assert (first.state, first.value, first.failure) == ("waiting", 7, None)
    assert (first.spout, first.message_id, first.bucket) == (None, None, "nursery")
    assert (last.state, last.value, last.failure) == ("waiting", 0, "too early")
    assert ledger.run(trees.tree(ledger.core, int(anchors[1]))) is None


def test_the_time_left_is_that_of_the_ticks_to_come(ledger: Ledger) -> None:
    anchor = int(track(ledger, 1)[0][0])
    for ticks, bucket in ((3, "nursery"), (2, "middle"), (1, "oldest")):
        found = tree(ledger, anchor)
        assert found.bucket == bucket
        assert found.time_left_earliest is not None
        assert found.time_left_latest is not None
        # The tick period is 30 s, and this shard's last rotation was a moment ago.
        assert (ticks - 1) * 30 < found.time_left_earliest <= ticks * 30
        assert found.time_left_latest == pytest.approx(found.time_left_earliest + ticks * TICK_LAG)
        ledger.run(tick.rotate(ledger.core, force=True))
    found = tree(ledger, anchor)
    assert (found.bucket, found.time_left_earliest) == ("expiring", 0.0)
    ledger.tick()
    assert tree(ledger, anchor).state == "finished"


def test_no_latest_time_is_reported_where_no_ticker_seems_to_run(ledger: Ledger, raw: "redis.Redis") -> None:
    anchor = int(track(ledger, 1)[0][0])
    found = tree(ledger, anchor)
    clock = ledger.core.shards[found.shard].clock
    rotated_at = int(raw.hget(clock, "rotated_at") or 0)
    raw.hset(clock, "rotated_at", rotated_at - 50_000)
    found = tree(ledger, anchor)
    assert (found.time_left_earliest, found.time_left_latest) == (60.0, None)


@pytest.mark.parametrize(
    ("late", "latest"),
    [(-10.0, 73.0), (1.0, 63.0), (1.5, 60.0 + 13.5 + 2), (15.0, 62.0), (15.001, None)],
)
def test_a_late_tick_is_waited_for_until_nobody_ticks(late: float, latest: float | None) -> None:
    config = TopologyConfig("t", message_timeout=60.0)
    clock = Clock(1_000_000 + round(1000 * late), 4, 1_000_000 - 30_000, 4)
    assert clock.time_left(config, 4) == (60.0 + max(0.0, -late), latest)


def test_a_reset_gives_the_whole_time_again(ledger: Ledger) -> None:
    anchor = int(track(ledger, 1)[0][0])
    ledger.run(tick.rotate(ledger.core, force=True))
    ledger.reset_timeout([anchor])
    found = tree(ledger, anchor)
    assert found.bucket == "nursery"
    assert found.time_left_earliest is not None
    assert found.time_left_earliest > 60


def test_message_ids_of_any_bytes_come_back(ledger: Ledger) -> None:
    wanted = [b"", b"\x00\xff", b"x" * 1024, "é".encode(), secrets.token_bytes(64)]
    anchors = ids.new_anchors(len(wanted))
    ledger.track(anchors, ids.new_ids(len(wanted)), wanted, spout="s")
    assert [tree(ledger, anchor).message_id for anchor in anchors.tolist()] == wanted


@pytest.mark.parametrize("anchor", [1.5, "7", None, True, 1 << 63])
def test_what_is_no_anchor_is_refused(ledger: Ledger, anchor: object) -> None:
    with pytest.raises(ValidationError):
        ledger.run(trees.tree(ledger.core, anchor))  # type: ignore[arg-type]


# Totals


def test_totals_add_up_with_the_counters(ledger: Ledger) -> None:
    anchors, values = track(ledger, 100)
    ledger.update(anchors[:10], values[:10])
    ledger.fail(anchors[10:15])
    ledger.run(tick.rotate(ledger.core, force=True))
    track_singles(ledger, 20)
    ledger.update(ids.new_anchors(2), [1, 2])
    read = read_totals(ledger)
    assert read.buckets == {"nursery": 20, "middle": 85, "oldest": 0, "expiring": 0}
    assert (read.pending, read.outstanding, read.waiting, read.backlog) == (105, 120, 1, 0)
    assert read.counters == ledger.counters()
    assert sum(bucket.slabs for shard in read.shards for bucket in shard.buckets) == 22
    assert 0 < read.high_water_use < 1


def test_totals_tell_what_is_set_aside_until_it_is_drained(ledger: Ledger) -> None:
    track(ledger, 10)
    for _ in range(3):
        ledger.run(tick.rotate(ledger.core, force=True))
    read = read_totals(ledger)
    assert (read.buckets["expiring"], read.backlog) == (10, 1)
    ledger.tick()
    read = read_totals(ledger)
    assert (read.pending, read.backlog, read.outstanding, read.oldest_age) == (0, 0, 10, None)


def test_ages_are_those_of_the_clock(ledger: Ledger, raw: "redis.Redis") -> None:
    anchor = int(track(ledger, 1)[0][0])
    shard = tree(ledger, anchor).shard
    clock = ledger.core.shards[shard].clock
    raw.hincrby(clock, "rotated_at", -10_000)
    found = read_totals(ledger).shards[shard]
    assert found.rotation_age == pytest.approx(10, abs=5)
    assert found.oldest_age == pytest.approx(0, abs=5)
    nursery, middle, oldest, expiring = found.buckets
    assert (nursery.youngest, nursery.oldest) == (0.0, found.rotation_age)
    assert middle.youngest == found.rotation_age
    assert oldest.youngest == pytest.approx(40, abs=5)
    assert expiring.oldest is None
    left = ledger.run(due(ledger.core))
    assert left is not None
    assert left <= 20


def test_a_topology_never_used_has_empty_totals(ledger: Ledger) -> None:
    read = read_totals(ledger)
    assert (len(read.shards), read.pending, read.rotation_age, read.oldest_age) == (4, 0, None, None)
    assert ledger.run(due(ledger.core)) == 0.0


def test_a_thousand_shards_can_be_read(url: str) -> None:
    ledger = open_ledger(Store(url), "wide", ackers=1024, message_timeout=60.0)
    anchors = track_singles(ledger, 50)
    assert len(read_totals(ledger).shards) == 1024
    assert {tree.anchor for tree in listed(ledger)} == set(anchors)
    assert len(found(ledger, b"single7")) == 1


def test_reads_change_nothing(ledger: Ledger, raw: "redis.Redis") -> None:
    anchors, _ = track(ledger, 20)
    ledger.run(tick.rotate(ledger.core, force=True))
    before = {key: raw.dump(key) for key in raw.scan_iter()}
    tree(ledger, int(anchors[0]))
    listed(ledger, 3)
    found(ledger, "m3")
    read_totals(ledger)
    ledger.run(due(ledger.core))
    assert {key: raw.dump(key) for key in raw.scan_iter()} == before
