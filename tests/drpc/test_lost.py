"""Who works on a function goes on with the topology as it is: lost with its store, made anew, configured."""

import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, calls
from acker.drpc import client as client_module
from acker.errors import AckerError, LineConflict, SchemaMismatch, UnknownFunction
from acker.inspect import configuring
from acker.lines import Gather, Line, leases
from acker.store import keys
from acker.store.operation import Request, command
from tests.helpers.counting import Count, counting, fan
from tests.helpers.servers import wait_until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE", 2.0)
    monkeypatch.setattr(client_module, "_FOLLOW", 0.0)


def answers(client: client_module.Client) -> bool:
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
        record = other.description("t").record()  # by somebody who has removed it by force
        topology.ledger.store.send([command("HSET", keys.FUNCTIONS, "count", record)])
        wait_until(lambda: topology.ledger.run(calls.workers(core, known)) == [0, 0], timeout=60)
        assert ended.is_set()
        call = topology.drpc("count").begin(3)
        with other.work(topology):
            assert call.future.result(60) == 3


def test_callers_learn_that_a_function_has_gone(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    topology.ledger.remove(force=True)
    with pytest.raises(UnknownFunction, match="function 'count' has gone"):
        client.execute(3)
    Topology(topology.ledger.store.url, "t", ackers=2).close()
    with pytest.raises(UnknownFunction, match="registers it again"):
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
        topology.ledger.run(configuring.configure("t", {"message_timeout": 77.0}))
        wait_until(lambda: line.ledger.config.message_timeout == 77.0)


def test_a_function_that_is_refused_is_not_there_for_callers(topology: Topology) -> None:
    Line(topology.ledger, "count", [Gather("elsewhere")])
    with pytest.raises(LineConflict):
        counting().register(topology)
    with pytest.raises(UnknownFunction):
        topology.drpc("count")


def test_a_function_with_rows_that_its_streams_cannot_have_is_not_there_for_callers(
    topology: Topology,
) -> None:
    counting().register(topology)
    topology.ledger.store.send([Request(b"acker:functions", ["HDEL", "acker:functions", "count"])])
    other = LinearDRPC("count").step("fan", fan, columns={"n": pa.string()}).gather("count", Count)
    with pytest.raises(SchemaMismatch):
        other.register(topology)
    with pytest.raises(UnknownFunction):
        topology.drpc("count")
