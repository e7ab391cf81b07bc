"""The queue of retries against a model that sorts a list."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from acker.kafka.failed.retries import Retry, RetryQueue

PLACES = st.tuples(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), st.integers(0, 5))


class Queue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = RetryQueue()
        self.waiting: dict[tuple[tuple[str, int], int], tuple[float, Retry]] = {}
        self.now = 0.0

    @rule(place=PLACES, wait=st.integers(0, 9), mark=st.integers(0, 3))
    def a_record_fails(self, place: tuple[tuple[str, int], int], wait: int, mark: int) -> None:
        retry = Retry(*place, mark)
        self.queue.add(retry, self.now + wait)
        self.waiting[place] = self.now + wait, retry

    @rule(passed=st.integers(0, 9), most=st.integers(1, 4))
    def due_records_are_taken(self, passed: int, most: int) -> None:
        self.now += passed
        due = sorted(at for at, _ in self.waiting.values() if at <= self.now)
        taken = self.queue.take(self.now, most)
        assert len(taken) == min(most, len(due))
        times = [self.waiting.pop((one.partition, one.offset)) for one in taken]
        assert [at for at, _ in times] == due[: len(taken)]
        assert [retry for _, retry in times] == taken

    @rule(partition=st.tuples(st.sampled_from("ab"), st.integers(0, 1)))
    def a_partition_is_revoked(self, partition: tuple[str, int]) -> None:
        gone = [place for place in self.waiting if place[0] == partition]
        assert self.queue.forget(partition) == len(gone)
        for place in gone:
            del self.waiting[place]

    @invariant()
    def it_has_what_the_model_has(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert {(one.partition, one.offset) for one in self.queue} == set(self.waiting)
        assert all(place in self.queue for place in self.waiting)
        assert self.queue.due == min((at for at, _ in self.waiting.values()), default=None)
        assert len(self.queue._heap) <= 2 * len(self.waiting) + 65


TestQueue = Queue.TestCase
