"""Marks: which step has acked tuples of which slab, and what each step has done, exactly."""

import logging
from collections import Counter

import numpy as np
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from acker.inspect.operate.removal import remove
from acker.ledger import ids
from acker.ledger.calls.marks import MOST_STEPS, Mark, number_of
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.outcomes import latency_histogram
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.steps import step_totals
from acker.ledger.steps.step_totals import Seen, StepTotals
from acker.store import keys
from acker.store.client import Store
from tests.helpers.builders.ledgers import opened
from tests.helpers.models.latencies import bucket_of

pytestmark = pytest.mark.cluster


@pytest.fixture
def ledger(url: str) -> Ledger:
    return opened(url, "t", ackers=2, message_timeout=600.0)


def track(ledger: Ledger, count: int) -> Ids:
    """Tracks trees in one slab (or a slab of one) with a tuple id of 1 each."""
    anchors = ids.new_anchors(count)
    ledger.track_slabs([NewSlab(anchors, np.ones(count, np.int64), [b""] * count)], spout="s")
    return anchors


def ack(ledger: Ledger, anchors: Ids, deltas: Ids, step: str, batch: int = -1, tuples: int = 0) -> None:
    by = ledger.run(step_totals.mark(ledger.core, step, batch))
    ledger.submit(ledger.core.update(anchors, deltas, 0, by, tuples or len(anchors)).calls)


def totals(ledger: Ledger) -> dict[str, StepTotals]:
    return {one.step: one for one in ledger.run(step_totals.totals(ledger.core))}


def seen(ledger: Ledger, anchor: int) -> list[Seen]:
    slab = ids.slab_of(int(anchor))
    shard = int(ids.shards_of(np.array([int.from_bytes(slab, "big")], np.uint64), ledger.config.ackers)[0])
    [found] = ledger.run(step_totals.seen(ledger.core, ledger.core.shards[shard], [slab]))
    return found


@given(
    sizes=st.lists(st.sampled_from([1, 2, 40, 400]), min_size=1, max_size=4),
    acks=st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9), st.sets(st.integers(0, 842))),
        max_size=6,
    ),
)
def test_acks_are_counted_exactly(url: str, sizes: list[int], acks: list[tuple[str, int, set[int]]]) -> None:
    ledger = opened(url, "t", ackers=2, message_timeout=600.0)
    slabs = [track(ledger, size) for size in sizes]
    every = np.concatenate(slabs)
    tuples, trees, last = Counter[str](), Counter[str](), dict[bytes, list[tuple[str, int]]]()
    for step, batch, places in acks:
        chosen = every[sorted(place % len(every) for place in places)]
        repeated = np.concatenate([chosen, chosen[:5]])  # several tuples of one tree
        ack(ledger, repeated, ids.new_ids(len(repeated)), step, batch)
        tuples[step] += len(repeated)
        trees[step] += len(np.unique(chosen))
        for slab in {ids.slab_of(int(anchor)) for anchor in chosen}:
            own = [one for one in last.get(slab, []) if one[0] != step]
            last[slab] = [(step, batch), *own]
    found = totals(ledger)
    assert {name: one.tuples for name, one in found.items()} == {k: n for k, n in tuples.items() if n}
    assert {name: sum(one.ages.values()) for name, one in found.items()} == {
        k: n for k, n in trees.items() if n
    }
    for anchors in slabs:
        expected = last.get(ids.slab_of(int(anchors[0])), []) if len(anchors) > 1 else []
        marked = [(one.step, one.batch) for one in seen(ledger, anchors[0]) if one.at is not None]
        assert sorted(marked) == sorted(expected)
    ledger.store.run(remove("t", force=True))


def test_a_call_marks_each_of_many_slabs_and_ages_each_tree_once(url: str) -> None:
    ledger = opened(url, "t", ackers=1, message_timeout=600.0)
    slabs = [track(ledger, size) for size in [2, 3] * 35 + [1] * 61]
    unknown = ids.new_anchors(2)  # a slab without a header between the others
    ack(ledger, np.concatenate([*slabs, unknown]), ids.new_ids(5 * 35 + 61 + 2), "a", 4)
    one = totals(ledger)["a"]
    assert (one.tuples, sum(one.ages.values())) == (5 * 35 + 61 + 2, 5 * 35 + 61)
    for anchors in (*slabs[:70], unknown):
        assert [found.batch for found in seen(ledger, anchors[0]) if found.at is not None] == [4]
    ledger.store.run(remove("t", force=True))


@pytest.mark.parametrize("count", [1, 5, 400])
def test_acks_by_a_step_that_come_before_the_track_wait_for_it(ledger: Ledger, count: int) -> None:
    anchors, values = ids.new_anchors(count), ids.new_ids(count)
    other = ids.new_ids(count)
    ack(ledger, anchors, np.zeros(count, np.int64), "early")
    ack(ledger, anchors, other, "early")
    ack(ledger, anchors, other ^ values, "early")
    ledger.track_slabs([NewSlab(anchors, values, [b""] * count)], spout="s")
    counters = ledger.counters()
    assert (counters["acked"], counters["late"], counters["orphaned"]) == (count, 0, 0)
    assert totals(ledger)["early"].ages == {}


def test_a_call_that_comes_again_counts_once(ledger: Ledger) -> None:
    anchors = track(ledger, 10)
    by = ledger.run(step_totals.mark(ledger.core, "a", 3))
    calls = ledger.core.update(anchors, ids.new_ids(10), 0, by, 10).calls
    failing = ledger.core.fail(anchors[:3], b"no", by).calls
    ledger.submit(calls)
    ledger.submit(failing)
    for call in (*calls, *failing):
        call.reply = None
    ledger.store.send([ledger.core.request(call) for call in (*calls, *failing)])
    one = totals(ledger)["a"]
    assert (one.tuples, one.failed, sum(one.ages.values())) == (10, 3, 10)
    assert ledger.counters()["duplicates"] == len(calls) + len(failing)


def test_ages_are_those_of_the_trees_by_the_clock_of_the_store(ledger: Ledger, raw: "redis.Redis") -> None:
    anchors = track(ledger, 100)
    [(shard, slab)] = [(shard, slab) for shard in ledger.core.shards for slab in raw.hkeys(shard.slabs)]
    header = bytearray(raw.hget(shard.slabs, slab))  # type: ignore[arg-type]
    tracked_at = int.from_bytes(header[11:19], "little")
    header[11:19] = (tracked_at - 60_000).to_bytes(8, "little")
    raw.hset(shard.slabs, slab, bytes(header))
    ack(ledger, anchors[:50], ids.new_ids(50), "slow")
    one = totals(ledger)["slow"]
    assert sum(one.ages.values()) == 50
    assert set(one.ages) <= {bucket_of(60_000), bucket_of(60_000) + 1}
    assert one.age.p50 == pytest.approx(60.0, rel=0.15)


def test_numbers_are_for_the_life_of_a_topology_and_late_steps_share_one(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_totals, "_warned", set())
    first = [ledger.run(step_totals.mark(ledger.core, f"step{n}")) for n in range(MOST_STEPS)]
    assert first == [Mark(number_of(f"step{n}")) for n in range(MOST_STEPS)]
    assert [ledger.run(step_totals.mark(ledger.core, f"step{n}")) for n in range(MOST_STEPS)] == first
    with caplog.at_level(logging.WARNING):
        for name in ("late", "later", "late"):
            assert ledger.run(step_totals.mark(ledger.core, name, 4)) == Mark(0, 4)
    assert [text for text in caplog.messages if "'late'" in text] == [
        "topology 't' has had 255 steps: acks and fails of step 'late' are counted with others"
    ]
    anchors = track(ledger, 4)
    ack(ledger, anchors, ids.new_ids(4), "late")
    ack(ledger, anchors, ids.new_ids(4), "later")
    ack(ledger, anchors, ids.new_ids(4), "step254")
    assert {name: one.tuples for name, one in totals(ledger).items()} == {step_totals.OTHERS: 8, "step254": 4}
    steps = seen(ledger, anchors[0])
    assert sorted((one.step, one.batch) for one in steps if one.at is not None) == [
        (step_totals.OTHERS, -1), ("step254", -1),
    ]  # fmt: skip
    assert len(steps) == MOST_STEPS + 1
    assert len(seen(ledger, track(ledger, 4)[0])) == MOST_STEPS  # nobody knows of others that never did


def test_marks_outlive_a_reset_and_go_with_their_generation(ledger: Ledger, raw: "redis.Redis") -> None:
    anchors = track(ledger, 50)
    ack(ledger, anchors, ids.new_ids(50), "a", 7)
    ledger.run(step_totals.mark(ledger.core, "b"))
    ledger.tick(force=True)
    ledger.reset_timeout(anchors[:1])
    for _ in range(2):
        ledger.tick(force=True)
        [one, never] = seen(ledger, anchors[0])
        assert (one.step, one.batch, never.step, never.at) == ("a", 7, "b", None)
    assert step_totals.text(seen(ledger, anchors[0])) == (
        "a (batch 7) was the last to ack tuples of its slab; none in two message timeouts by b"
    )
    for _ in range(3):
        ledger.tick(force=True)
    assert ledger.counters()["expired"] == 50
    assert list(raw.scan_iter("*:marks:*")) == []


def test_marks_of_four_rotations_are_known_of_a_slab_that_is_reset_often(ledger: Ledger) -> None:
    anchors = track(ledger, 50)
    for rotation in range(6):
        ack(ledger, anchors, ids.new_ids(50), "always", rotation)
        [(again, batch)] = [(one.step, one.batch) for one in seen(ledger, anchors[0]) if one.step == "always"]
        assert (again, batch) == ("always", rotation)
        ack(ledger, anchors, ids.new_ids(50), f"s{rotation}", rotation)
        ledger.reset_timeout(anchors[:1])
        own = [one for one in seen(ledger, anchors[0]) if one.step != "always"]
        known = [one.batch for one in own if one.at is not None]
        assert sorted(known) == list(range(max(0, rotation - 3), rotation + 1))
        ledger.tick(force=True)


def test_a_topology_may_keep_no_marks(url: str, raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(url), "t", ackers=1, marks="off")
    anchors = track(ledger, 5)
    assert ledger.run(step_totals.mark(ledger.core, "a")) is None
    ack(ledger, anchors, np.ones(5, np.int64), "a")
    assert ledger.counters()["acked"] == 5
    assert totals(ledger) == {}
    assert [key for key in raw.scan_iter() if b"marks" in key or b"step" in key] == []


def test_what_cannot_be_read_keeps_no_ack_from_its_effect(ledger: Ledger, raw: "redis.Redis") -> None:
    for shard in ledger.core.shards:
        for key in shard.of_steps:
            raw.set(key, "broken")
    anchors = track(ledger, 5)
    ack(ledger, anchors, np.ones(5, np.int64), "a")
    ledger.submit(ledger.core.fail(track(ledger, 2), b"", Mark(1)).calls)
    counters = ledger.counters()
    assert (counters["acked"], counters["failed"]) == (5, 2)
    for shard in ledger.core.shards:
        raw.delete(*shard.of_steps)
        a = number_of("a")
        raw.hset(
            shard.step_counts,
            mapping={f"{a} tuples": "x", "999 seen": 1, f"{a} ": 4, "nonsense": 1, f"{a} 900": 2},
        )
    raw.hset(keys.step_numbers("t"), mapping={"a b": 9, "c": "x", "d": 999})
    [one] = totals(ledger).values()
    assert (one.step, one.tuples, one.ages) == (
        "a",
        0,
        Counter({latency_histogram.MOST_BUCKET: 4}),
    )  # of both shards
    for shard in ledger.core.shards:
        raw.delete(shard.step_counts)
    raw.delete(keys.step_numbers("t"))
    raw.set(keys.step_numbers("t"), "broken")
    assert ledger.run(step_totals.mark(ledger.core, "a")) is None
    raw.delete(keys.step_numbers("t"))
