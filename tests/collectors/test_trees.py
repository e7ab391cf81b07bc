"""Spouts and bolts: a tree is acked when, and only when, all of it was."""

import pickle
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker import (
    Topology,
    Tuple,
)
from tests.helpers.builders.collectors import Make, reported, statuses

pytestmark = pytest.mark.cluster(slow=True)


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
    reported(spout, 0)
    bolt.ack(third)
    [outcome] = reported(spout)
    assert outcome[:4] == (b"m", first.anchors[0], "acked", "")
    assert outcome.latency is not None
    assert outcome.latency >= 0
    assert spout.pending == 0


def test_a_tree_without_targets_is_acked_at_once(make: Make) -> None:
    spout = make().spout("s")
    assert spout.emit("nobody", targets=0) == []
    assert statuses(reported(spout)) == {b"nobody": "acked"}


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
    reported(spout, 0)
    assert set(topology.counters().values()) == {0}


def test_unanchored_tuples_belong_to_no_tree(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [source] = spout.emit("m")
    assert bolt.emit([], targets=2) == bolt.emit(targets=2) == [Tuple(), Tuple()]
    bolt.ack(source)
    assert statuses(reported(spout)) == {b"m": "acked"}


def test_failing_a_joined_tuple_fails_all_its_trees(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two] = spout.emit("one"), spout.emit("two")
    [joined] = bolt.emit([one, two])
    bolt.ack(one)
    bolt.fail(joined, "bad")
    outcomes = reported(spout, 2)
    assert statuses(outcomes) == {b"one": "failed", b"two": "failed"}
    assert {outcome.reason for outcome in outcomes} == {"bad"}


def test_a_fail_wins_over_what_comes_later_and_over_a_zero_in_the_same_flush(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    first, second = spout.emit("m", targets=2)
    bolt.fail(first, "no")
    topology.flush()
    bolt.ack(second)
    [outcome] = reported(spout)
    assert (outcome.status, outcome.reason) == ("failed", "no")
    assert topology.counters()["late"] == 1


def test_a_failed_tuples_children_are_not_registered(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [source] = spout.emit("m")
    [child] = bolt.emit(source)
    bolt.fail(source, "no")
    bolt.ack(child)
    assert statuses(reported(spout)) == {b"m": "failed"}


def test_an_expired_tree_is_reported_so(make: Make) -> None:
    topology = make()
    spout = topology.spout("s")
    spout.emit("m")
    topology.flush()
    for _ in range(3):
        reported(spout, 0)
        topology.tick(force=True)
    assert statuses(reported(spout)) == {b"m": "expired"}


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
    assert statuses(reported(spout)) == {b"left": "expired"}
    bolt.ack(kept)
    assert statuses(reported(spout)) == {b"kept": "acked"}
    assert left.anchors != kept.anchors


def test_the_same_message_id_may_be_in_flight_twice(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [first], [second] = spout.emit("m"), spout.emit("m")
    bolt.ack(first)
    bolt.fail(second)
    outcomes = reported(spout, 2)
    assert {(o.message_id, o.anchor, o.status) for o in outcomes} == {
        (b"m", first.anchors[0], "acked"),
        (b"m", second.anchors[0], "failed"),
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
        assert statuses(reported(spout, len(expected))) == expected
        assert spout.pending == sum(not of for of in parents) - len(expected)


def test_a_tuple_that_came_twice_is_taken_once_and_its_children_are_registered(make: Make) -> None:
    """A queue delivers at least once: the second ack must not undo the first one."""
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [given] = spout.emit("m")
    [other] = spout.emit("n")
    for targets in (1, 2):
        again = Tuple.parse(str(given))
        children = bolt.emit([again], targets)
        bolt.ack(again)
        assert [o.message_id for o in spout.outcomes()] == []
        topology.flush()
        for child in children:
            bolt.ack(Tuple.parse(str(child)))
            bolt.ack(Tuple.parse(str(child)))
    for _ in range(2):
        bolt.ack(pickle.loads(pickle.dumps(other)))
    assert statuses(reported(spout, 2)) == {b"m": "acked", b"n": "acked"}
    assert bolt.repeated == 5


def test_a_tuple_that_two_processes_ack_expires_and_is_never_taken_for_done(make: Make) -> None:
    """Each process knows what it has acked itself: a queue has to deliver a tuple to the same one again."""
    topologies = [make(), make()]
    spout, bolts = topologies[0].spout("s"), [topology.bolt("b") for topology in topologies]
    [given] = spout.emit("m")
    topologies[0].flush()
    left = []
    for bolt in bolts:
        again = Tuple.parse(str(given))
        left += bolt.emit([again], 2)
        bolt.ack(again)
        bolt.topology.flush()
    for child in left:
        bolts[1].ack(Tuple.parse(str(child)))
    topologies[1].flush()
    for _ in range(3):
        topologies[0].tick(force=True)
    assert statuses(reported(spout)) == {b"m": "expired"}
