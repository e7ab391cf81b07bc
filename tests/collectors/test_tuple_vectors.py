"""Vectors of tuples, which are acked at once, and outcomes that come as groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker import Topology, Tuple, TupleError
from acker.collectors.outcome import OutcomeGroup
from acker.collectors.spout import Spout
from acker.collectors.tuples import TupleVector
from acker.ledger.slabs.slabs import PackedIds, pack_message_ids
from tests.helpers.builders.collectors import Make


def emit(spout: Spout, count: int) -> TupleVector:
    """Emits records `0`, `1` and so on, and returns their tuples."""
    anchors, edges = spout.emit_many([str(number) for number in range(count)])
    return TupleVector(spout.topology.owner, anchors, edges)


def taken(spout: Spout) -> list[tuple[str, str, str]]:
    """The outcomes that are there, each as message id, status and reason; none is confirmed."""
    return sorted(
        (outcome.message_id.decode(), outcome.status, outcome.reason) for outcome in spout.outcomes()
    )


def test_a_vector_is_acked_but_for_its_failed_tuples_and_with_the_children_of_others(make: Make) -> None:
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    tuples = emit(spout, 5)
    bolt.fail(tuples[1], "no")
    bolt.ack(tuples[2])
    [child] = bolt.emit(tuples[3])
    bolt.ack_many(tuples)
    topology.flush()
    expected = [("0", "acked", ""), ("1", "failed", "no"), ("2", "acked", ""), ("4", "acked", "")]
    assert taken(spout) == expected
    bolt.ack(child)
    topology.flush()
    assert taken(spout) == [("3", "acked", "")]
    assert topology.counters()["late"] == 0


def test_all_tuples_of_an_acked_vector_are_acked_whenever_they_are_made(make: Make) -> None:
    topology = make(linger=None)
    bolt, tuples = topology.bolt("b"), emit(topology.spout("s"), 3)
    before = tuples[0]
    bolt.ack_many(tuples)
    bolt.ack_many(tuples)
    assert [one.ended for one in tuples] == ["acked"] * 3
    assert tuples[0] is before
    assert tuples[-1] is tuples[2]
    with pytest.raises(TupleError, match="was acked before"):
        bolt.fail(tuples[1], "late")
    with pytest.raises(IndexError):
        tuples[3]
    topology.flush()
    assert topology.counters()["acked"] == 3


def test_a_list_of_tuples_is_acked_but_for_those_that_have_ended(make: Make) -> None:
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    tuples = [spout.emit(str(number))[0] for number in range(3)]
    bolt.fail(tuples[0], "no")
    bolt.ack_many(tuples)
    bolt.ack_many([Tuple()])
    topology.flush()
    assert [status for _, status, _ in taken(spout)] == ["failed", "acked", "acked"]


def test_a_vector_of_another_topology_is_refused(make: Make) -> None:
    tuples = emit(make("other").spout("s"), 1)
    with pytest.raises(TupleError, match="'other' cannot be acked in 't'"):
        make("t").bolt("b").ack_many(tuples)


def test_untracked_tuples_of_a_vector_change_nothing(make: Make) -> None:
    topology = make(linger=None)
    zeros = np.zeros(2, np.int64)
    topology.bolt("b").ack_many(TupleVector(topology.owner, zeros, zeros))
    assert topology.outbox.unsent == 0


# Groups of outcomes


def grouped(topology: Topology) -> Spout:
    """A spout whose outcomes come as groups."""
    return Spout(topology, "s", grouped=True)


def read(spout: Spout) -> list[OutcomeGroup]:
    """The groups that are there."""
    return list(spout.outcome_groups())


def outcomes_of(groups: list[OutcomeGroup]) -> dict[str, str]:
    """Message id -> status; each comes once."""
    found = [
        (group.message_ids[index].decode(), group.outcome.status)
        for group in groups
        for index in group.indexes
    ]
    assert len(found) == len(dict(found))
    return dict(found)


def test_a_slab_that_is_acked_as_a_whole_is_one_group(make: Make) -> None:
    topology = make(linger=None)
    spout, bolt = grouped(topology), topology.bolt("b")
    tuples = emit(spout, 100)
    bolt.ack_many(tuples)
    topology.flush()
    [group] = read(spout)
    assert (group.indexes, spout.pending) == (range(100), 0)
    assert outcomes_of([group]) == {str(number): "acked" for number in range(100)}
    for _ in range(2):
        spout.confirm_group(group)
    topology.flush()
    assert read(grouped(topology)) == []


def test_groups_tell_each_outcome_once_and_again_until_they_are_confirmed(make: Make) -> None:
    topology = make(linger=None, slab_limit=8)
    spout, bolt = grouped(topology), topology.bolt("b")
    tuples = emit(spout, 20)
    bolt.fail(tuples[3], "no")
    bolt.ack(tuples[5])
    topology.flush()
    first = read(spout)
    assert outcomes_of(first) == {"3": "failed", "5": "acked"}
    bolt.ack_many(tuples)
    topology.flush()
    second = read(spout)
    statuses = {str(number): "failed" if number == 3 else "acked" for number in range(20)}
    assert outcomes_of([*first, *second]) == statuses
    for group in first:
        spout.confirm_group(group)
    topology.flush()
    later = grouped(topology)
    assert outcomes_of(read(later)) == {key: statuses[key] for key in statuses if key not in ("3", "5")}
    for group in second:
        spout.confirm_group(group)
    topology.flush()
    assert read(grouped(topology)) == []


def test_a_group_of_the_timer_is_told_once_and_confirms_the_entry_of_the_store(make: Make) -> None:
    topology = make(linger=None)
    spout, bolt = grouped(topology), topology.bolt("b")
    tuples = emit(spout, 4)
    topology.flush()
    with topology.outbox.lock:
        [slab] = spout._inbox.pending.slabs.values()
        spout._inbox.pending.report_all(slab, "expired", "by itself")
    [group] = read(spout)
    assert (group.indexes, group.outcome.reason) == ((0, 1, 2, 3), "by itself")
    bolt.ack_many(tuples)
    topology.flush()
    assert read(spout) == []
    spout.confirm_group(group)
    topology.flush()
    assert read(grouped(topology)) == []


def test_trees_that_are_not_tracked_are_one_rejected_group(make: Make) -> None:
    topology = make(linger=None, ackers=1, high_water_mark=4)
    spout = grouped(topology)
    emit(spout, 4)
    topology.flush()
    emit(spout, 3)
    topology.flush()
    [group] = read(spout)
    assert (len(group.indexes), group.outcome.status, spout.pending) == (3, "rejected", 4)


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=40), st.data())
@settings(max_examples=50, deadline=None)
def test_a_part_of_packed_ids_is_the_ids_of_that_part(ids: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(ids)))
    last = data.draw(st.integers(first, len(ids) + 2))
    part = PackedIds(pack_message_ids(ids), len(ids)).part(first, last)
    assert list(part[:]) == ids[first:last]
