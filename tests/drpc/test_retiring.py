"""A function that is removed leaves its name and its line to another, and nobody waits for its answers."""

from typing import Any

import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out, registry
from acker.drpc.retiring import retire
from acker.errors import DRPCFailed, FunctionInUse, UnknownFunction
from tests.helpers.counting import Count, N, counting, fan
from tests.helpers.leaks import assert_settled
from tests.helpers.servers import raw_client, wait_until


class Part(Count):
    def finished(self, out: Out) -> None:
        out.emit({"m": str(self.n)})


class Sum(Count):
    def execute(self, row: dict[str, Any]) -> None:
        self.n += int(row["m"])


def otherwise() -> LinearDRPC:
    """Of the same name and answers, with other gathers, tasks and columns."""
    made = LinearDRPC("count", idempotent=True).step("fan", fan, columns=N)
    made.gather("count", Part, tasks=2, by=["n"], columns={"m": pa.string()})
    return made.gather("sum", Sum)


def test_another_function_may_have_the_name(topology: Topology) -> None:
    with counting().work(topology):
        assert topology.drpc("count").execute_many([3, 0]) == [3, 0]
    retire(topology.ledger, counting().description("t"))
    with pytest.raises(UnknownFunction):
        topology.drpc("count")
    with otherwise().work(topology):
        assert topology.drpc("count").execute_many([3, 0]) == [3, 0]


def test_calls_of_a_function_that_is_removed_by_force_fail_and_leave_nothing(topology: Topology) -> None:
    counting().register(topology)
    call = topology.drpc("count").begin(3)
    call.begun.result(30)
    with pytest.raises(FunctionInUse, match="1 calls without answer"):
        retire(topology.ledger, counting().description("t"))
    retire(topology.ledger, counting().description("t"), force=True)
    with pytest.raises(DRPCFailed, match="its function was removed"):
        call.future.result(30)
    with otherwise().work(topology):
        assert topology.drpc("count").execute(4) == 4

    def settled() -> bool:
        topology.tick(force=True)
        with raw_client(topology.ledger.store.url) as client:
            try:
                assert_settled(client)
            except AssertionError:
                return False
        return True

    wait_until(settled)


def test_a_function_with_workers_is_not_removed(topology: Topology) -> None:
    with counting().work(topology):
        assert topology.drpc("count").execute(3) == 3
        with pytest.raises(FunctionInUse, match="workers that are alive"):
            retire(topology.ledger, counting().description("t"))
        assert topology.ledger.run(registry.find("count")).name == "count"
        assert topology.drpc("count").execute(3) == 3
