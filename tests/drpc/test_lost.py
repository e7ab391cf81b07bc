"""A function's workers go on with the topology as it is: lost with its store, made anew, configured."""

from concurrent.futures import Future
from functools import partial

import pyarrow as pa
import pytest
import redis

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, calls
from acker.drpc import answers as answers_module
from acker.drpc.calling import call_writer
from acker.drpc.calling.client import Client
from acker.drpc.removal import retire
from acker.errors import AckerError, LineConflict, SchemaMismatch, UnknownFunction
from acker.inspect.operate import configure
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Gather, Line, coordinator
from acker.store.operation import Request
from acker.streams.spouts import settler
from acker.workers import leases
from tests.helpers.builders.counting import Count, counting, fan
from tests.helpers.faults.set_backs import Moment, moment, set_back
from tests.helpers.faults.stepping import before_script
from tests.helpers.servers.servers import wait_until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE", 2.0)
    monkeypatch.setattr(call_writer, "_FOLLOW", 0.0)


def answers(client: Client) -> bool:
    try:
        return bool(client.execute(3, timeout=1.0) == 3)
    except AckerError:
        return False


def test_workers_make_what_a_store_has_lost_anew(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        assert client.execute(3) == 3
        topology.ledger.store.send([Request(b"acker:functions", ["FLUSHDB"])])
        wait_until(lambda: answers(client))
        assert topology.drpc("count").execute_many([0, 2]) == [0, 2]


def test_workers_stop_where_the_function_was_registered_otherwise_since(topology: Topology) -> None:
    with counting().work(topology) as ended:
        client = topology.drpc("count")
        assert client.execute(2) == 2
        assert not ended.is_set()
        known, core = client.function, topology.ledger.core
        other = counting(timeout=5.0)
        retire(topology.ledger, known, force=True)
        other.register(topology)
        wait_until(lambda: topology.ledger.run(calls.workers(core, known)) == [0, 0], timeout=60)
        assert ended.is_set()
        call = topology.drpc("count").begin(3)
        with other.work(topology):
            assert call.future.result(60) == 3


def test_callers_learn_that_a_function_has_gone(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    topology.remove(force=True)
    with pytest.raises(UnknownFunction, match="function 'count' has gone"):
        client.execute(3)
    Topology(topology.ledger.store.url, "t", ackers=2).close()
    with pytest.raises(UnknownFunction, match="register it again"):
        client.execute(3)


def test_workers_and_callers_go_on_with_a_topology_that_was_made_anew(topology: Topology) -> None:
    with counting(idempotent=True).work(topology):
        client = topology.drpc("count")
        assert client.execute(3) == 3
        store = topology.ledger.store
        store.send([Request(b"acker:functions", ["FLUSHDB"])])
        with Topology(store.url, "t", ackers=5) as anew:
            wait_until(lambda: answers(client))
            assert anew.counters()["acked"] > 0


def test_workers_follow_what_is_configured(topology: Topology) -> None:
    line = counting().register(topology)
    with line.work():
        topology.ledger.run(configure.configure("t", {"message_timeout": 77.0}))
        wait_until(lambda: line.ledger.config.message_timeout == 77.0)


def test_a_function_that_is_refused_is_not_there_for_callers(topology: Topology) -> None:
    Line(topology.ledger, "count", [Gather("elsewhere")])
    with pytest.raises(LineConflict):
        counting().register(topology)
    with pytest.raises(UnknownFunction):
        topology.drpc("count")


def test_a_function_with_rows_its_streams_cannot_have_is_not_there(topology: Topology) -> None:
    counting().register(topology)
    topology.ledger.store.send([Request(b"acker:functions", ["HDEL", "acker:functions", "count"])])
    other = LinearDRPC("count").step("fan", fan, columns={"n": pa.string()}).gather("count", Count)
    with pytest.raises(SchemaMismatch):
        other.register(topology)
    with pytest.raises(UnknownFunction):
        topology.drpc("count")


def test_a_result_that_a_store_has_lost_is_worked_out_again_and_not_told_as_missing(
    topology: Topology, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answering worker read that the request was acked; the store is set back before it answers."""
    line = counting(idempotent=True).register(topology)
    ledger, client, before = line.ledger, topology.drpc("count"), list[Moment]()
    reader, workers = OutcomeReader(ledger.core, SPOUT), line.workers()
    answered = partial(answers_module.answer_outcomes, ledger, client.function)

    def work() -> None:
        for one in workers:
            one.work()
            ledger.run(coordinator.step(ledger.core, reader))

    def settle() -> None:
        settler.settle(ledger, "count", answered)

    def count_one(back: bool) -> Future[int]:
        call = client.begin(3)
        call.begun.result(30)
        workers[0].work()
        ledger.run(coordinator.step(ledger.core, reader))
        before_script(monkeypatch, "chain", lambda: before.append(moment(valkey_raw)), workers[1].work)
        if back:
            before_script(monkeypatch, "answer_call", lambda: set_back(valkey_raw, before.pop()), settle)
            assert not call.future.done()
        return call.future

    def is_done(found: Future[int]) -> bool:
        work()
        settle()
        return found.done()

    work()
    for back in (False, True):  # by the second each worker has a commit that the store knows of
        found = count_one(back)
        wait_until(partial(is_done, found))
        assert found.result(1) == 3
