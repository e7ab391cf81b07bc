"""Workers of functions that die in the midst of a request: what they had begun is not run twice."""

from typing import Any

import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out
from acker.errors import DRPCFailed, StoreUnavailable
from acker.lines import leases, workers
from acker.lines.workers import Worker
from acker.streams import stale
from acker.streams.commits import at_once, holding
from tests.helpers.counting import Count, N, fan


class Killed(BaseException):
    pass


def die(*_: object) -> Any:
    raise Killed


def away(*_: object) -> Any:
    raise StoreUnavailable("the store is away")


class Dying:
    """A first worker that dies in the midst of a request, and one that finds out; who is alive is told to."""

    def __init__(self, topology: Topology, patch: pytest.MonkeyPatch, **how: Any) -> None:
        self.ran = list[int]()

        def counted(row: dict[str, Any], out: Out) -> None:
            self.ran.append(row["args"])
            fan(row, out)

        self.function = LinearDRPC("count", **how).step("fan", counted, columns=N).gather("count", Count)
        self.topology, self._patch = topology, patch
        line = self.function.register(topology)
        self.future = topology.drpc("count").submit(4)
        self.dead = line.workers()[0]
        self.other = Worker(topology.ledger, self.dead.step)

    def work(self, expected: type[BaseException]) -> None:
        """Works until that happens, as it takes a while until the request is written."""
        self._patch.setattr(leases, "LEASE", -1.0)
        while True:
            try:
                self.dead.work()
            except expected:
                return

    def find_out(self) -> int:
        """Another worker finds out."""
        self.other._slot = self.dead._slot
        return self.other.recover()

    def answer(self) -> Any:
        """Whoever is alive works, until there is an answer."""
        self._patch.undo()
        with self.function.work(self.topology):
            return self.future.result()


@pytest.mark.parametrize("idempotent", [False, True])
def test_what_a_dead_worker_had_begun_fails_or_runs_again(
    topology: Topology, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    dying = Dying(topology, monkeypatch, idempotent=idempotent)
    monkeypatch.setattr(dying.dead.step, "run", die)
    dying.work(Killed)
    assert dying.find_out() == 1
    if idempotent:
        assert dying.answer() == 4
    else:
        with pytest.raises(DRPCFailed, match="worker died in fan"):
            dying.answer()


def test_what_a_dead_worker_had_committed_is_not_run_again(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Dying(topology, monkeypatch)
    hold = holding.hold
    monkeypatch.setattr(at_once, "MOST", 0)  # phase by phase, as in a cluster

    def on_fan(core: Any, what: Any, writer: str, *more: Any) -> Any:
        return die() if writer == dying.dead.reader else hold(core, what, writer, *more)

    monkeypatch.setattr(holding, "hold", on_fan)
    dying.work(Killed)
    monkeypatch.setattr(holding, "hold", hold)
    assert dying.find_out() == 0
    assert dying.answer() == 4
    assert dying.ran == [4]


def test_a_worker_that_was_taken_for_dead_before_it_began_does_not_begin(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Dying(topology, monkeypatch)
    judge, given = stale.judge_seen, list[int]()

    def paused(*args: Any) -> Any:
        given.append(dying.find_out())
        return judge(*args)

    monkeypatch.setattr(stale, "judge_seen", paused)
    monkeypatch.setattr(leases, "LEASE", -1.0)
    while not given:
        assert dying.dead.work() == 0
    assert (given, dying.ran) == ([1], [])
    assert dying.answer() == 4
    assert dying.ran == [4]


def test_what_was_begun_when_the_store_went_away_is_not_run_again(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Dying(topology, monkeypatch)
    monkeypatch.setattr(workers, "stage_made", away)
    dying.work(StoreUnavailable)
    dying.dead.work()
    assert dying.find_out() == 1
    with pytest.raises(DRPCFailed, match="worker died in fan"):
        dying.answer()
    assert dying.ran == [4]
