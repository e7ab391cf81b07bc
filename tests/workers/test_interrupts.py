"""An interrupt at any step of a program that runs workers by hand: begun rows are worked on, or fail."""

import pytest

from acker.errors import StoreUnavailable
from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.workers import leases
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.interrupts import each, each_answer
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

WORKERS = ("worker", "leases", "steps", "out")
FILES = tuple(f"acker/workers/{name}.py" for name in WORKERS)


class Asking:
    """Requests of a line whose workers are run by hand, one after the other."""

    def __init__(self, url: str) -> None:
        self.job = Job(open_ledger(Store(url), "t", ackers=2))
        self.ended = 0
        self.job.ask(3)

    def work(self) -> None:
        for worker in self.job.workers.values():
            worker.work()

    def check(self) -> None:
        """The request that was interrupted has its end, and the next one comes."""

        def has_ended() -> bool:
            self.job.work()
            for worker in self.job.workers.values():
                worker.recover()
            return len(self.job.sums) + self.job.ledger.counters()["failed"] > self.ended

        wait_until(has_ended)
        self.ended = len(self.job.sums) + self.job.ledger.counters()["failed"]
        assert {*self.job.sums} == {3}
        self.job.ask(3)


@pytest.fixture
def asking(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Asking:
    monkeypatch.setattr(leases, "LEASE", 0.2)
    return Asking(valkey_url)


def test_an_interrupt_at_any_step_leaves_workers_that_go_on(asking: Asking) -> None:
    assert each(FILES, asking.work, asking.check) > 100


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StoreUnavailable("no answer")])
def test_an_answer_that_is_lost_leaves_workers_that_go_on(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert each_answer(monkeypatch, asking.work, asking.check, error) >= 5
