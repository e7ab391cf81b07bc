"""A coordinator that remembers what it has asked before: it asks less, and releases the same."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import redis

from acker.ledger import ids
from acker.ledger.client import open_ledger
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs import sections
from acker.ledger.slabs.sections import SPOUT
from acker.lines import coordinator
from acker.lines.coordinator import WRITER, Memory
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation, Reply, Request
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.upkeep import gathered
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.simulator import scripts_of
from tests.helpers.faults.stepping import Stepping


class One:
    """A coordinator as a line has it: it waits for outcomes, and goes on by what has come."""

    def __init__(self, job: Job) -> None:
        self.ledger, self.memory = job.ledger, Memory()
        self.reader = OutcomeReader(job.ledger.core, SPOUT)

    def come(self) -> Reply:
        [come] = self.ledger.store.send([self.reader.blocking(1000)])
        return come

    def step(self, come: Reply) -> int:
        return self.ledger.run(coordinator.step(self.ledger.core, self.reader, memory=self.memory, come=come))


@pytest.fixture
def job(valkey_url: str) -> Job:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=2)
    for name in ("a", "b"):  # a coordinator has seen the line by the second
        job.ask(1, 2, name=name)
        assert job.workers["fan"].work()
    return job


@contextmanager
def flights(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The scripts of the flights that this thread sends meanwhile: heartbeats are of another."""
    send, found, here = Store.send, list[list[str]](), threading.get_ident()

    def noted(store: Store, requests: Sequence[Request]) -> list[Reply]:
        if threading.get_ident() == here:
            found.append(scripts_of(requests))
        return send(store, requests)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", noted)
        yield found


def test_groups_that_come_as_wholes_are_released_by_the_second_flight(
    job: Job, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    one = One(job)
    assert one.step(None)
    job.ask(3, name="c")
    job.workers["fan"].work()
    come = one.come()
    with flights(monkeypatch) as sent:
        assert one.step(come)
    assert ["release_bundle" in scripts for scripts in sent[:2]] == [False, True]
    assert not any("note_arrivals" in scripts for scripts in sent)
    assert not list(valkey_raw.scan_iter("*:gathered:*"))
    job.work()
    assert sorted(job.sums) == [1, 1, 2, 2, 3]


def test_what_one_remembers_holds_nobody_up_where_another_one_was_quicker(job: Job) -> None:
    one, other = One(job), One(job)
    assert one.step(None)
    for name in ("c", "d"):
        job.ask(3, name=name)
        job.workers["fan"].work()
        come = one.come()
        # Another one has taken the number that this one remembers.
        number = job.ledger.run(commits.next_number(job.ledger.core, WRITER))
        nothing = Commit()
        assert job.ledger.run(commits.commit(job.ledger.core, WRITER, number, nothing))
        assert one.step(come), "it asks, and releases the group all the same"
        job.workers["count"].work()
        job.coordinate()
        job.workers["add"].work()
    assert sorted(job.sums) == [1, 1, 2, 2, 3, 3]
    job.ask(4, name="e")
    job.workers["fan"].work()
    come = one.come()
    assert other.step(None)
    assert not one.step(come), "the other has released it, and confirmed what came"
    job.work()
    assert job.sums[-1] == 4


def test_a_group_of_which_a_part_is_noted_is_released_with_all_of_it(job: Job) -> None:
    """One request of a group is over by what came before; the rest does not come as a whole."""
    one = One(job)
    assert one.step(None)
    roots = job.ask(5, 6, name="c")
    job.ledger.fail(roots.anchors(1)[:1], "no")
    assert one.step(one.come())
    job.workers["fan"].work()
    assert one.step(one.come())
    job.work()
    assert sorted(job.sums) == [1, 1, 2, 2, 6]


def test_a_group_dropped_before_its_release_stays_dropped(job: Job, valkey_raw: "redis.Redis") -> None:
    """A full stream drops a group like this: its readers would hear of an end without rows."""
    one = One(job)
    assert one.step(None)
    roots = job.ask(3, name="c")
    job.workers["fan"].work()
    core, come = job.ledger.core, one.come()
    going = Stepping(job.ledger, coordinator.step(core, one.reader, memory=one.memory, come=come))
    going.until("release_bundle")
    released = valkey_raw.xlen(keys.Stream("t", "rows").entries)
    group = sections.group_of(ids.slab_of(int(roots.anchors(1)[0])))
    job.ledger.run(gathered.close(core, "rows", group, 2))
    going.go_on()
    assert going.ended
    assert valkey_raw.xlen(keys.Stream("t", "rows").entries) == released


def test_outcomes_of_a_group_that_one_released_before_it_died_are_confirmed_by_another(
    job: Job, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = One(job), One(job)
    assert one.step(None)
    job.ask(3, name="c")
    job.workers["fan"].work()
    assert other.step(other.come())  # it knows the line by now
    job.ask(4, name="d")
    job.workers["fan"].work()

    def dying(*_: object) -> Operation[None]:
        yield from ()

    with monkeypatch.context() as patch:
        patch.setattr(outcomes, "confirm", dying)
        assert one.step(one.come())
    assert other.step(other.come())
    assert not any(map(valkey_raw.xlen, other.reader.keys()))
    job.work()
    assert sorted(job.sums) == [1, 1, 2, 2, 3, 4]
