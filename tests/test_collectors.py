"""The collectors on a healthy store: Storm's reliability API."""

import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from acker import (
    FailedException,
    Outcome,
    SpoutPendingFull,
    Topology,
    TopologyConfigError,
    Tuple,
    TupleError,
    ValidationError,
)
from acker.bolt import Bolt
from acker.ids import seeded_ids
from acker.spout import Spout
from tests.servers import wait_until

pytestmark = pytest.mark.cluster(slow=True)

Make = Callable[..., Topology]


@pytest.fixture
def make(url: str) -> Iterator[Make]:
    """Makes topologies that send only when told to: a long linger."""
    made: list[Topology] = []

    def new(name: str = "t", **settings: Any) -> Topology:
        made.append(Topology(url, name, **{"linger": 15.0, "message_timeout": 30.0, **settings}))
        return made[-1]

    yield new
    for topology in made:
        topology.close()


def told(spout: Spout, count: int = 1, timeout: float = 10.0) -> list[Outcome]:
    """The next `count` outcomes of a spout, and proof that there are no more by now."""
    deadline, found = time.monotonic() + timeout, list[Outcome]()
    spout.topology.flush()
    while len(found) < count and time.monotonic() < deadline:
        found += spout.outcomes(timeout=0.2)
    found += spout.outcomes()
    assert len(found) == count, found
    return found


def statuses(outcomes: Sequence[Outcome]) -> dict[bytes, str]:
    assert len({outcome.message_id for outcome in outcomes}) == len(outcomes)
    return {outcome.message_id: outcome.status for outcome in outcomes}


def test_the_example_of_the_design_works_as_written(url: str) -> None:
    topology = Topology(url, "wordcount", ackers=4, message_timeout=30.0)
    spout = topology.spout("sentences")
    tuples = spout.emit(message_id="m1", targets=2)
    untracked = spout.emit(message_id=None)
    bolt = topology.bolt("split")
    children = bolt.emit([tuples[0]], targets=1)
    bolt.ack(tuples[0])
    bolt.fail(tuples[1], reason="no such word")
    topology.flush()
    outcomes = []
    for outcome in spout.outcomes(timeout=1.0):
        spout.confirm(outcome)
        outcomes.append(outcome)
    topology.tick(force=True)
    assert topology.tree(tuples[0].anchors[0]) is not None or topology.counters()["failed"] == 1
    assert len(tuples) == 2
    assert len(children) == 1
    assert untracked == [Tuple()]
    assert [(o.message_id, o.anchor, o.status, o.reason) for o in outcomes] == [
        (b"m1", tuples[0].anchors[0], "failed", "no such word")
    ]
    topology.close()


def test_each_target_has_an_edge_of_its_own_and_all_must_be_acked(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    first, second, third = spout.emit("m", targets=3)
    assert first.anchors == second.anchors == third.anchors
    assert len({str(each) for each in (first, second, third)}) == 3
    for each in (first, second):
        bolt.ack(each)
    told(spout, 0)
    bolt.ack(third)
    [outcome] = told(spout)
    assert outcome[:4] == (b"m", first.anchors[0], "acked", "")
    assert outcome.latency is not None
    assert outcome.latency >= 0
    assert spout.pending == 0


def test_a_tree_without_targets_is_acked_at_once(make: Make) -> None:
    spout = make().spout("s")
    assert spout.emit("nobody", targets=0) == []
    assert statuses(told(spout)) == {b"nobody": "acked"}


def test_without_message_id_nothing_is_tracked_and_acks_change_nothing(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    first, second = spout.emit(None, targets=2)
    assert first.anchors == ()
    [child] = bolt.emit([first])
    assert child == Tuple()
    bolt.ack(first)
    bolt.fail(second, "whatever")
    bolt.ack(child)
    bolt.reset_timeout(spout.emit(None)[0])
    told(spout, 0)
    assert set(topology.counters().values()) == {0}


def test_unanchored_tuples_belong_to_no_tree(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [source] = spout.emit("m")
    assert bolt.emit([], targets=2) == bolt.emit(targets=2) == [Tuple(), Tuple()]
    bolt.ack(source)
    assert statuses(told(spout)) == {b"m": "acked"}


def test_children_keep_the_tree_pending_over_generations(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    current = spout.emit("m")[0]
    for _ in range(5):
        [child] = bolt.emit(current)
        bolt.ack(current)
        told(spout, 0)
        current = child
    bolt.ack(current)
    assert statuses(told(spout)) == {b"m": "acked"}


def test_several_anchors_make_a_tuple_part_of_all_their_trees(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two] = spout.emit("one"), spout.emit("two")
    [joined] = bolt.emit([one, two])
    assert joined.anchors == (*one.anchors, *two.anchors)
    bolt.ack(one)
    bolt.ack(two)
    told(spout, 0)
    bolt.ack(joined)
    assert statuses(told(spout, 2)) == {b"one": "acked", b"two": "acked"}


def test_failing_a_joined_tuple_fails_all_its_trees(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two] = spout.emit("one"), spout.emit("two")
    [joined] = bolt.emit([one, two])
    bolt.ack(one)
    bolt.fail(joined, "bad")
    outcomes = told(spout, 2)
    assert statuses(outcomes) == {b"one": "failed", b"two": "failed"}
    assert {outcome.reason for outcome in outcomes} == {"bad"}


def test_a_diamond_has_one_id_in_its_tree(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    left, right = spout.emit("m", targets=2)
    [joined] = bolt.emit([left, right])
    assert joined.anchors == left.anchors
    bolt.ack(left)
    told(spout, 0)
    bolt.ack(right)
    told(spout, 0)
    bolt.ack(joined)
    assert statuses(told(spout)) == {b"m": "acked"}


def test_the_same_anchor_twice_keeps_the_algebra_right(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [source] = spout.emit("m")
    children = bolt.emit([source, source], targets=2)
    bolt.ack(source)
    bolt.ack(children[0])
    told(spout, 0)
    bolt.ack(children[1])
    assert statuses(told(spout)) == {b"m": "acked"}


def test_a_child_is_registered_with_its_parents_ack_in_one_message(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [source] = spout.emit("m")
    [child] = bolt.emit(source)
    bolt.ack(child)
    told(spout, 0)  # own id XOR child is missing still: the tree can not look complete
    bolt.ack(source)
    assert statuses(told(spout)) == {b"m": "acked"}


def test_a_fail_wins_over_what_comes_later_and_over_a_zero_in_the_same_flush(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    first, second = spout.emit("m", targets=2)
    bolt.fail(first, "no")
    topology.flush()
    bolt.ack(second)
    [outcome] = told(spout)
    assert (outcome.status, outcome.reason) == ("failed", "no")
    assert topology.counters()["late"] == 1


def test_a_failed_tuples_children_are_not_registered(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [source] = spout.emit("m")
    [child] = bolt.emit(source)
    bolt.fail(source, "no")
    bolt.ack(child)
    assert statuses(told(spout)) == {b"m": "failed"}


def test_an_expired_tree_is_told_so(make: Make) -> None:
    topology = make()
    spout = topology.spout("s")
    spout.emit("m")
    topology.flush()
    for _ in range(3):
        told(spout, 0)
        topology.tick(force=True)
    assert statuses(told(spout)) == {b"m": "expired"}


def test_reset_timeout_gives_a_tree_the_whole_time_again(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [kept] = spout.emit("kept")
    topology.flush()
    [left] = spout.emit("left")
    topology.flush()
    for _ in range(5):
        topology.tick(force=True)
        bolt.reset_timeout(kept)
        topology.flush()
    assert statuses(told(spout)) == {b"left": "expired"}
    bolt.ack(kept)
    assert statuses(told(spout)) == {b"kept": "acked"}
    assert left.anchors != kept.anchors


def test_the_same_message_id_may_be_in_flight_twice(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two] = spout.emit("m"), spout.emit("m")
    bolt.ack(one)
    bolt.fail(two)
    outcomes = told(spout, 2)
    assert {(o.message_id, o.anchor, o.status) for o in outcomes} == {
        (b"m", one.anchors[0], "acked"),
        (b"m", two.anchors[0], "failed"),
    }


def test_with_no_ackers_everything_is_acked_at_once(make: Make) -> None:
    topology = make(ackers=0)
    spout, bolt = topology.spout("s", max_spout_pending=1), topology.bolt("b")
    for number in range(3):
        [each] = spout.emit(str(number))
        assert each.anchors == ()
        [child] = bolt.emit(each)
        bolt.ack(each)
        bolt.fail(child, "nobody listens")
    outcomes = list(spout.outcomes())
    assert statuses(outcomes) == {b"0": "acked", b"1": "acked", b"2": "acked"}
    spout.confirm(outcomes[0])
    assert not list(spout.outcomes(timeout=0.05))
    anchors, own = make(ackers=0).spout("s").emit_many(["a", "b"])
    assert not anchors.any()
    assert own.all()
    assert topology.tree(1) is None
    assert set(topology.counters().values()) == {0}


# Errors


def test_what_was_acked_or_failed_can_not_be_used_again(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    acked, failed = spout.emit("m", targets=2)
    bolt.ack(acked)
    bolt.fail(failed)
    for done, how in ((acked, "acked"), (failed, "failed")):
        for call in (bolt.emit, bolt.ack, bolt.fail, bolt.reset_timeout):
            with pytest.raises(TupleError, match=f"was {how} before"):
                call(done)
        with pytest.raises(TupleError, match=str(done)), bolt.processing(done):
            pytest.fail("not reached")
    assert statuses(told(spout)) == {b"m": "failed"}


def test_an_emit_with_one_bad_anchor_leaves_the_others_as_they_were(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    good, bad = spout.emit("m", targets=2)
    bolt.ack(bad)
    with pytest.raises(TupleError):
        bolt.emit([good, bad])
    bolt.ack(good)
    assert statuses(told(spout)) == {b"m": "acked"}


def test_tuples_of_another_topology_are_refused(make: Make) -> None:
    here, there = make("here"), make("there")
    [foreign] = there.spout("s").emit("m")
    for call in (here.bolt("b").emit, here.bolt("b").ack, here.bolt("b").fail, here.bolt("b").reset_timeout):
        with pytest.raises(TupleError, match="there"):
            call(foreign)
    there.bolt("b").ack(foreign)
    make("here").bolt("b").emit(here.spout("s").emit("m"))


@pytest.mark.parametrize("value", ["1:2", None, 7, (1, 2)])
def test_what_is_no_tuple_is_refused(make: Make, value: Any) -> None:
    bolt = make().bolt("b")
    for call in (bolt.ack, bolt.fail, bolt.reset_timeout, lambda each: bolt.emit([each])):
        with pytest.raises(TupleError, match=r"expected an acker\.Tuple"):
            call(value)


def test_bad_arguments_are_named(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    for bad in (-1, 1.5, True, "2", 10**9):
        with pytest.raises(ValidationError, match="targets"):
            spout.emit("m", targets=bad)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="targets"):
            bolt.emit([], targets=bad)  # type: ignore[arg-type]
    for message_id in ("x" * 1025, 7, ["m"]):
        with pytest.raises(ValidationError, match="message id"):
            spout.emit(message_id)  # type: ignore[arg-type]
    [each] = spout.emit("m")
    for reason in ("x" * 1025, b"bytes"):
        with pytest.raises(ValidationError, match="reason"):
            bolt.fail(each, reason)  # type: ignore[arg-type]
    for name in ("", "a b", "x" * 65):
        with pytest.raises(ValidationError):
            topology.spout(name)
        with pytest.raises(ValidationError):
            topology.bolt(name)
    for most in (0, -1, 1.0, True):
        with pytest.raises(ValidationError, match="max_spout_pending"):
            topology.spout("s", max_spout_pending=most)  # type: ignore[arg-type]
    bolt.ack(each)
    assert statuses(told(spout)) == {b"m": "acked"}


def test_a_second_opener_with_other_values_is_told_what_differs(make: Make, url: str) -> None:
    make("t", ackers=2)
    with pytest.raises(TopologyConfigError) as caught:
        Topology(url, "t", ackers=3)
    assert caught.value.differences == {"ackers": (2, 3)}
    for linger in (-1, 61, "1", float("nan"), True):
        with pytest.raises(ValidationError, match="linger"):
            Topology(url, "t", linger=linger)  # type: ignore[arg-type]


# Basic bolts


def test_a_basic_bolt_anchors_and_acks(make: Make) -> None:
    topology = make()
    spout = topology.spout("s")

    @topology.basic_bolt("split")
    def split(collector: Any, line: str) -> list[tuple[str, Tuple]]:
        """Splits."""
        words = line.split()
        return list(zip(words, collector.emit(targets=len(words)), strict=True))

    @topology.basic_bolt("count")
    def count(collector: Any, word: str) -> str:
        return word

    assert split.__doc__ == "Splits."
    [source] = spout.emit("m")
    words = split(source, "the cow jumped")
    assert words is not None
    assert [word for word, _ in words] == ["the", "cow", "jumped"]
    told(spout, 0)
    assert [count(each, word) for word, each in words] == ["the", "cow", "jumped"]
    assert statuses(told(spout)) == {b"m": "acked"}


def test_a_basic_bolt_fails_its_tuple_with_the_text_of_the_exception(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")

    def run(error: Exception) -> Callable[..., None]:
        def function(collector: Any) -> None:
            collector.emit(targets=2)
            raise error

        return bolt.basic(function, catch=KeyError)

    def reason() -> str:
        [outcome] = told(spout)
        assert outcome.status == "failed"
        return outcome.reason

    run(FailedException("no such word"))(spout.emit("m")[0])
    assert reason() == "no such word"
    run(KeyError("cow"))(spout.emit("m")[0])
    assert reason() == "KeyError: 'cow'"
    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError())(spout.emit("m")[0])
    assert reason() == "ZeroDivisionError"
    run(FailedException("ü" * 5000))(spout.emit("m")[0])
    assert 900 < len(reason().encode()) <= 1024


def _fail(collector: Any) -> None:
    raise FailedException(f"not {collector.tuple}")


def test_processing_is_a_basic_bolt_as_a_block(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two], [three] = spout.emit("1"), spout.emit("2"), spout.emit("3")
    with bolt.processing(one) as collector:
        [child] = collector.emit(also=[two])
        collector.reset_timeout()
        assert collector.tuple is one
    assert child.anchors == (*one.anchors, *two.anchors)
    bolt.ack(child)
    bolt.basic(_fail)(two)
    with pytest.raises(KeyboardInterrupt), bolt.processing(three):
        raise KeyboardInterrupt
    assert statuses(told(spout, 2)) == {b"1": "acked", b"2": "failed"}
    with pytest.raises(TupleError):
        collector.emit()
    bolt.ack(three)
    assert statuses(told(spout)) == {b"3": "acked"}


def test_what_does_its_work_after_it_returned_is_no_basic_bolt(make: Make) -> None:
    def generator(collector: Any) -> Iterator[int]:
        yield 1

    async def coroutine(collector: Any) -> None: ...

    for function in (generator, coroutine):
        with pytest.raises(ValidationError, match="plain function"):
            make().bolt("b").basic(function)


# Random histories


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[list[int]], list[int], set[int]]:
    """Parents of each node (none: a tree of its own), an order to ack in, and what is never acked."""
    nodes = draw(st.integers(1, 12))
    parents = [draw(st.lists(st.integers(0, n - 1), max_size=3)) if n else [] for n in range(nodes)]
    return parents, draw(st.permutations(range(nodes))), draw(st.sets(st.integers(0, nodes - 1), max_size=2))


@settings(max_examples=30)
@given(dags(), st.booleans())
def test_a_tree_is_acked_when_and_only_when_all_of_it_was(
    url: str, dag: tuple[list[list[int]], list[int], set[int]], flush_often: bool
) -> None:
    parents, order, never = dag
    with Topology(url, f"t-{uuid.uuid4().hex}", ackers=2, linger=15.0) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        tuples: list[Tuple] = []
        roots: dict[int, set[int]] = {}
        for node, of in enumerate(parents):
            if of:
                tuples += bolt.emit([tuples[parent] for parent in of])
                roots[node] = set().union(*(roots[parent] for parent in of))
            else:
                tuples += spout.emit(f"{node}")
                roots[node] = {node}
        for node in order:
            if node not in never:
                bolt.ack(tuples[node])
                if flush_often:
                    topology.flush()
        unfinished = set().union(*(roots[node] for node in never))
        expected = {
            f"{node}".encode(): "acked"
            for node, of in enumerate(parents)
            if not of and node not in unfinished
        }
        assert statuses(told(spout, len(expected))) == expected
        assert spout.pending == sum(not of for of in parents) - len(expected)


# Batching


@pytest.mark.one_server
def test_emits_within_the_linger_share_a_slab_and_a_round_trip(make: Make, raw: "redis.Redis") -> None:
    topology = make(ackers=1, slab_limit=256)
    spout = topology.spout("s")
    tuples = [spout.emit(str(number))[0] for number in range(300)]
    assert raw.hlen("acker:{t:0}:slabs") == 0
    before = int(raw.info("commandstats")["cmdstat_evalsha"]["calls"])
    topology.flush()
    assert raw.hlen("acker:{t:0}:slabs") == 2
    # The track of both, and the count of the tuples.
    assert int(raw.info("commandstats")["cmdstat_evalsha"]["calls"]) == before + 2
    assert [each.anchors[0] & 4095 for each in tuples] == [*range(256), *range(44)]
    spout.emit("another")
    topology.flush()
    assert raw.hlen("acker:{t:0}:slabs") == 3


def test_the_linger_sends_by_itself(url: str) -> None:
    with Topology(url, "t", linger=0.005) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        bolt.ack(spout.emit("m")[0])
        [outcome] = wait_until(lambda: list(spout.outcomes(timeout=0.1)))
        spout.confirm(outcome)
        wait_until(lambda: not topology.outbox.unsent)
    topology.close()


def test_emit_many_gives_vectors_and_tracks_at_once(make: Make) -> None:
    topology = make(slab_limit=1000)
    spout = topology.spout("s")
    message_ids = [f"m{number}" for number in range(2500)]
    anchors, own = spout.emit_many(message_ids, seeded_ids(7, 0, 2500))
    assert own.tolist() == seeded_ids(7, 0, 2500).tolist()
    assert anchors.dtype == own.dtype == np.int64
    assert len(np.unique(anchors)) == 2500
    assert spout.pending == 2500
    assert topology.counters()["tracked"] == 2500
    topology.ledger.update(anchors, own)
    outcomes = told(spout, 2500)
    assert statuses(outcomes) == {message_id.encode(): "acked" for message_id in message_ids}
    assert [o.anchor for o in sorted(outcomes, key=lambda o: int(o.message_id[1:]))] == anchors.tolist()
    for outcome in outcomes:
        spout.confirm(outcome)
    topology.flush()
    told(topology.spout("s"), 0)


def test_emit_many_names_what_is_wrong(make: Make) -> None:
    spout = make().spout("s", max_spout_pending=3)
    with pytest.raises(ValidationError, match="values"):
        spout.emit_many(["a", "b"], [1])
    with pytest.raises(ValidationError, match="not zero"):
        spout.emit_many(["a", "b"], [1, 0])
    with pytest.raises(ValidationError, match="max_spout_pending"):
        spout.emit_many(["a"] * 4)
    assert [len(each) for each in spout.emit_many([])] == [0, 0]
    assert spout.pending == 0
    spout.emit_many(["a"] * 3)
    with pytest.raises(SpoutPendingFull):
        spout.emit_many(["a"], wait=False)


def test_over_the_high_water_mark_each_record_is_told_as_rejected(make: Make) -> None:
    topology = make(ackers=1, high_water_mark=10)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    kept = [spout.emit(f"kept{number}")[0] for number in range(10)]
    topology.flush()
    anchors, _ = spout.emit_many(["over1", "over2"])
    outcomes = told(spout, 2)
    assert statuses(outcomes) == {b"over1": "rejected", b"over2": "rejected"}
    assert {o.anchor for o in outcomes} == set(anchors.tolist())
    assert all("high-water mark of 10" in o.reason and o.latency is None for o in outcomes)
    for each in kept:
        bolt.ack(each)
    for outcome in told(spout, 10):
        spout.confirm(outcome)
    topology.flush()
    bolt.ack(spout.emit("again")[0])
    assert statuses(told(spout)) == {b"again": "acked"}


# max_spout_pending


def test_max_spout_pending_is_exact(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s", max_spout_pending=2), topology.bolt("b")
    tuples = [spout.emit(str(number))[0] for number in range(2)]
    assert len(spout.emit(None)) == 1
    for arguments in ({"wait": False}, {"timeout": 0.05}):
        with pytest.raises(SpoutPendingFull, match="max_spout_pending is 2"):
            spout.emit("over", **arguments)
    bolt.ack(tuples[0])
    told(spout)
    spout.emit("2", wait=False)
    with pytest.raises(SpoutPendingFull):
        spout.emit("3", wait=False)
    assert spout.pending == 2


def test_an_emit_that_waits_reads_outcomes_itself(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s", max_spout_pending=1), topology.bolt("b")
    for number in range(5):
        [each] = spout.emit(str(number), timeout=20)
        bolt.ack(each)
    assert [o.message_id for o in told(spout, 5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_an_emit_that_waits_goes_on_when_another_thread_takes_outcomes(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s", max_spout_pending=1), topology.bolt("b")
    [first] = spout.emit("first")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(spout.emit, "second", timeout=20)
        taken = pool.submit(lambda: list(spout.outcomes(timeout=20)))
        bolt.ack(first)
        topology.flush()
        bolt.ack(waiting.result(30)[0])
        outcomes = taken.result(30)
    assert b"first" in {o.message_id for o in outcomes}
    assert len(outcomes) + len(told(spout, 2 - len(outcomes))) == 2


def test_many_threads_share_spout_and_bolt(make: Make) -> None:
    topology = make(linger=0.001)
    spout, bolt = topology.spout("s", max_spout_pending=50), topology.bolt("b")
    seen: list[Outcome] = []
    done = threading.Event()

    def emit(thread: int) -> None:
        for number in range(100):
            for each in spout.emit(f"{thread}-{number}", targets=2, timeout=60):
                with bolt.processing(each) as collector:
                    children = collector.emit(targets=2)
                for child in children:
                    bolt.ack(child)

    def take() -> None:
        while not done.is_set():
            for outcome in spout.outcomes(timeout=0.05):
                seen.append(outcome)
                spout.confirm(outcome)
            assert spout.pending <= 50

    with ThreadPoolExecutor(8) as pool:
        takers = [pool.submit(take) for _ in range(2)]
        for emitter in [pool.submit(emit, thread) for thread in range(4)]:
            emitter.result(60)
        wait_until(lambda: len(seen) >= 400, timeout=30)
        done.set()
        for taker in takers:
            taker.result(10)
    assert statuses(seen) == {f"{t}-{n}".encode(): "acked" for t in range(4) for n in range(100)}
    topology.flush()
    told(topology.spout("s"), 0)


# Life


def test_collectors_pickle_as_settings(make: Make) -> None:
    topology = make(ackers=2)
    spout = topology.spout("s", max_spout_pending=7)
    [kept] = spout.emit("m")
    again, bolt = pickle.loads(pickle.dumps((spout, topology.bolt("b"))))
    assert (again.name, again.max_spout_pending, again.pending) == ("s", 7, 0)
    assert isinstance(bolt, Bolt)
    assert bolt.topology.config == topology.config
    topology.flush()
    bolt.ack(Tuple.parse(str(kept)))
    bolt.topology.flush()
    assert statuses(told(spout)) == {b"m": "acked"}
    bolt.topology.close()


def test_a_forked_child_does_not_send_what_its_parent_has_buffered(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two] = spout.emit("one"), spout.emit("two")
    bolt.ack(one)
    child = os.fork()
    if not child:
        status = 1
        try:
            bolt.ack(two)
            topology.flush()
            status = int(spout.pending != 0)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert statuses(told(spout, 2)) == {b"one": "acked", b"two": "acked"}
    assert topology.counters()["late"] == 0


def test_close_sends_what_is_buffered_and_ends(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [each] = spout.emit("m")
    topology.close()
    topology.close()
    with pytest.raises(Exception, match="is closed"):
        spout.emit("n")
    with pytest.raises(Exception, match="is closed"):
        bolt.ack(each)
    assert make().counters()["tracked"] == 1


def test_what_nobody_holds_any_more_is_sent_all_the_same(make: Make, url: str) -> None:
    topology = make()
    spout = topology.spout("s")
    [each] = spout.emit("m")
    topology.flush()
    Topology(url, "t", linger=15.0).bolt("b").fail(Tuple.parse(str(each)), "from afar")
    [outcome] = wait_until(lambda: list(spout.outcomes()))
    assert outcome.reason == "from afar"
