"""Workers of functions that die in the midst of a request: what they had begun is not run twice."""

from typing import Any

import pytest
import redis

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out
from acker.errors import DRPCFailed, StoreError, StoreUnavailable
from acker.store import keys
from acker.store.operation import command
from acker.streams.log import fencing
from acker.streams.upkeep import stale
from acker.workers import leases, worker
from acker.workers.worker import Worker
from tests.helpers.builders.counting import Count, N, counting, fan
from tests.helpers.faults.cuts import as_in_a_cluster
from tests.helpers.servers.new_server import NewServer


class Killed(BaseException):
    pass


def die(*_: object) -> Any:
    raise Killed


def away(*_: object) -> Any:
    raise StoreUnavailable("the store is away")


class Dying:
    """A first worker that dies in the midst of a request, and a second one that works for it."""

    def __init__(self, topology: Topology, patch: pytest.MonkeyPatch, **how: Any) -> None:
        self.ran = list[int]()

        def counted(row: dict[str, Any], out: Out) -> None:
            self.ran.append(row["args"])
            fan(row, out)

        self.function = LinearDRPC("count", **how).step("fan", counted, columns=N).gather("count", Count)
        self.topology, self._patch = topology, patch
        line = self.function.register(topology)
        call = topology.drpc("count").begin(4)
        call.begun.result(30)  # what befalls the store from here on befalls the worker, and not the caller
        self.future = call.future
        self.dead = line.workers()[0]
        self.other = Worker(topology.ledger, self.dead.step)

    def work(self, expected: type[BaseException]) -> None:
        """Works until that happens."""
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
        """Lets the living workers work until there is an answer."""
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


def test_committed_rows_are_not_run_again(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Dying(topology, monkeypatch)
    bind = fencing.bind_requests

    def on_fan(core: Any, ranges: Any, writer: str, *more: Any) -> Any:
        return die() if writer == dying.dead.reader else bind(core, ranges, writer, *more)

    with monkeypatch.context() as patch:
        as_in_a_cluster(patch)
        patch.setattr(fencing, "bind_requests", on_fan)
        dying.work(Killed)
    assert dying.find_out() == 0
    assert dying.answer() == 4
    assert dying.ran == [4]


def test_a_worker_taken_for_dead_begins_nothing(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_calls_begun_are_not_run_again(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Dying(topology, monkeypatch)
    monkeypatch.setattr(worker, "stage_output", away)
    dying.work(StoreUnavailable)
    dying.dead.work()
    assert dying.find_out() == 1
    with pytest.raises(DRPCFailed, match="worker died in fan"):
        dying.answer()
    assert dying.ran == [4]


def test_a_caller_learns_of_a_full_store(new_server: NewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = new_server(append_only=False)
    with redis.Redis.from_url(server.url) as raw, Topology(server.url, "t", ackers=2) as topology:
        dying = Dying(topology, monkeypatch)
        run = dying.dead.step.run

        def full(*args: Any) -> Any:
            made = run(*args)
            raw.config_set("maxmemory", 1)
            return made

        monkeypatch.setattr(dying.dead.step, "run", full)
        dying.work(StoreError)
        raw.config_set("maxmemory", 0)
        assert dying.find_out() == 1
        with pytest.raises(DRPCFailed, match=r"the output of fan was not committed: .*maxmemory"):
            dying.answer()
        assert dying.ran == [4]


def test_a_caller_learns_of_any_error(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("by zero")

    dying = Dying(topology, monkeypatch)
    monkeypatch.setattr(worker, "stage_output", broken)
    dying.work(ZeroDivisionError)
    assert dying.find_out() == 1
    with pytest.raises(DRPCFailed, match="not committed: ZeroDivisionError: by zero"):
        dying.answer()
    assert dying.ran == [4]


def test_a_worker_tells_why_only_of_what_it_has_begun_still(topology: Topology) -> None:
    counting().register(topology)
    core, stream = topology.ledger.core, topology.drpc("count").function.stream(0)

    def note(begun: str) -> None:
        topology.ledger.run(leases.note_uncommitted(core, stream, 0, "reader", begun, "because"))

    def noted() -> list[str]:
        [found] = topology.ledger.store.send([command("HGETALL", keys.Stream("t", stream).workers(0))])
        return sorted(field.decode() for field in found[::2])

    note("0 1 0")
    assert noted() == []
    topology.ledger.run(leases.beat(core, stream, 0, "reader", new=True, begun="0 1 0"))
    note("1 2 1")
    assert noted() == ["!reader", "reader"]
    note("0 1 0")
    assert noted() == ["!reader", "?reader", "reader"]
    assert topology.ledger.run(leases.alive(core, stream, 0)) == 1
    topology.ledger.run(leases.end(core, stream, 0, "reader"))
    assert noted() == []
