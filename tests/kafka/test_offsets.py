"""Offsets of a partition against a model that keeps every offset."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from acker.kafka.offsets import Offsets, Run


class Partition(RuleBasedStateMachine):
    """A topic with gaps; records come in order and end in any."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets(100)
        self.next = 100
        self.came: dict[int, bool] = {}
        self.runs: list[tuple[Run, list[int]]] = []

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=5))
    def records_come(self, gaps: list[int]) -> None:
        offsets = list[int]()
        for gap in gaps:
            offsets.append((offsets[-1] + 1 if offsets else self.next) + gap)
        self.runs.append((self.offsets.begin(np.array(offsets)), offsets))
        self.came |= dict.fromkeys(offsets, False)
        self.next = offsets[-1] + 1

    @rule(gap=st.integers(0, 3))
    def markers_are_passed(self, gap: int) -> None:
        self.next += gap
        self.offsets.skip(self.next)
        self.offsets.skip(self.next - 1)

    @precondition(lambda self: self.came)
    @rule(data=st.data())
    def a_record_ends(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.came)))
        assert self.offsets.end(offset) is not self.came[offset]
        self.came[offset] = True

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def records_of_a_run_end(self, data: st.DataObject) -> None:
        run, offsets = data.draw(st.sampled_from(self.runs))
        places = data.draw(st.lists(st.sampled_from(range(len(offsets))), unique=True))
        self.offsets.end_many(run, sorted(places))
        self.came |= {offsets[place]: True for place in places}

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def a_whole_run_ends(self, data: st.DataObject) -> None:
        run, offsets = data.draw(st.sampled_from(self.runs))
        self.offsets.end_many(run, slice(None))
        self.came |= dict.fromkeys(offsets, True)

    @rule(offset=st.integers(0, 99))
    def a_record_that_never_came_ends(self, offset: int) -> None:
        assert not self.offsets.end(offset)

    @invariant()
    def all_below_the_commit_is_done_and_no_more_can_be_committed(self) -> None:
        committable = self.offsets.committable
        assert all(done for offset, done in self.came.items() if offset < committable)
        if committable < self.next:
            assert self.came[committable] is False
        else:
            assert committable == self.next
        assert self.offsets.position == self.next

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        first = self.offsets.committable
        assert self.offsets.uncommitted == sum(offset >= first for offset in self.came)
        assert self.offsets.flying == sum(not done for done in self.came.values())
        assert all((offset in self.offsets) is not done for offset, done in self.came.items())


TestPartition = Partition.TestCase


def test_done_records_are_forgotten_when_the_prefix_has_passed_them() -> None:
    offsets = Offsets(0)
    for offset in range(1_000):
        offsets.begin(np.array([offset]))
        offsets.end(offset)
        assert offsets.uncommitted == 0
    assert offsets.committable == 1_000
    assert not offsets._runs
