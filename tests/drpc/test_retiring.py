"""A function that is removed leaves its name and its line to another, and nobody waits for its answers."""

from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out, registry
from acker.drpc.calling.answer_listener import Call
from acker.drpc.removal import retire
from acker.errors import DRPCFailed, FailedException, FunctionConflict, FunctionInUse, UnknownFunction
from acker.store import keys
from acker.store.operation import command
from acker.streams.log import subscriptions
from tests.helpers.builders.counting import Count, N, counting, fan
from tests.helpers.faults.stepping import before_exchange, before_script
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import raw_client, wait_until


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


def test_who_asks_a_function_that_is_being_removed_makes_none_of_its_streams_anew(topology: Topology) -> None:
    """Another function of that name may have a stream of the same name, with other columns."""
    counting().register(topology)
    client, first = topology.drpc("count"), keys.Stream("t", "count.fan")
    topology.ledger.store.send(
        [command("HDEL", first.subscriptions, "version"), command("UNLINK", first.schema)]
    )
    with pytest.raises(UnknownFunction):
        client.execute(3, timeout=5.0)
    assert topology.ledger.store.send([command("EXISTS", first.schema)]) == [0]


def test_a_function_in_removal_takes_no_calls(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that gets its answer asks again at once, while the streams are still there."""
    counting().register(topology)
    client = topology.drpc("count")
    client.begin(3).begun.result(30)
    found = list[object]()
    before_script(
        monkeypatch,
        "answer_call",
        lambda: found.extend(client.execute_many([4], return_exceptions=True, timeout=5.0)),
        lambda: retire(topology.ledger, counting().description("t"), force=True),
    )
    assert [type(one) for one in found] == [UnknownFunction]


def test_a_function_that_is_registered_at_any_moment_of_its_removal_keeps_its_streams_and_calls(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was begun before all calls were ended may end with them."""
    ledger, function, asked = topology.ledger, counting().description("t"), list[Call]()

    def again() -> None:
        counting().register(topology)
        asked.append(topology.drpc("count").begin(3))
        asked[-1].begun.result(30)

    counting().register(topology)
    answers = set[object]()
    for number in count():
        if not before_exchange(monkeypatch, number, again, lambda: retire(ledger, function, force=True)):
            break
        if not ledger.run(registry.is_free("count")):
            assert ledger.run(registry.is_whole(ledger.core, function))
            with counting().work(topology):
                answers.add(answer := _answer(asked[-1]))
                assert answer in (3, "removed")
        counting().register(topology)
    assert number > 20
    assert answers == {3, "removed"}


def test_a_function_that_is_removed_at_any_moment_of_its_registration_is_registered(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, function = topology.ledger, counting().description("t")
    counting().register(topology)
    for number in count():
        removed = before_exchange(
            monkeypatch,
            number,
            lambda: retire(ledger, function),
            lambda: counting().register(topology),
        )
        assert not ledger.run(registry.is_free("count"))
        assert ledger.run(registry.is_whole(ledger.core, function))
        if not removed:
            break
    assert number > 10
    with counting().work(topology):
        assert topology.drpc("count").execute(3) == 3


def _answer(call: Call) -> object:
    try:
        return call.future.result(60)
    except DRPCFailed as error:
        return "removed" if "function was removed" in str(error) else error


def test_a_function_with_workers_is_not_removed(topology: Topology) -> None:
    with counting().work(topology):
        assert topology.drpc("count").execute(3) == 3
        with pytest.raises(FunctionInUse, match="workers that are alive"):
            retire(topology.ledger, counting().description("t"))
        assert topology.ledger.run(registry.find("count")).name == "count"
        assert topology.drpc("count").execute(3) == 3


class Tries:
    """A step that fails each request, and functions that begin with it."""

    def __init__(self) -> None:
        self.runs = 0

    def fail(self, _row: dict[str, Any], _out: Out) -> None:
        self.runs += 1
        raise FailedException("no")

    def function(self, first: str = "fan", **how: Any) -> LinearDRPC:
        made = LinearDRPC("count", **how).step(first, self.fail, columns=N)
        return made.gather("count", Count)


def test_a_client_goes_by_the_function_that_has_the_name_by_now(topology: Topology) -> None:
    tries = Tries()
    repeated, once = tries.function(idempotent=True), tries.function()
    with repeated.work(topology):
        client = topology.drpc("count")
        with pytest.raises(DRPCFailed):
            client.execute(1)
    assert tries.runs == 3
    retire(topology.ledger, repeated.description("t"))
    with pytest.raises(UnknownFunction, match="has gone"):
        client.execute_many([1])
    tries.runs = 0
    with once.work(topology):
        for _ in range(2):
            with pytest.raises(DRPCFailed):
                client.execute(1)
    assert tries.runs == 2
    retire(topology.ledger, once.description("t"))
    with otherwise().work(topology):
        assert client.execute_many([3, 0]) == [3, 0]


def test_a_caller_that_pauses_before_it_writes_writes_for_the_function_that_there_is_then(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = Tries()
    repeated, once = tries.function(idempotent=True), tries.function("first")
    found, stack = list[Any](), ExitStack()
    repeated.register(topology)
    client = topology.drpc("count")

    def other() -> None:
        retire(topology.ledger, repeated.description("t"), force=True)
        stack.enter_context(once.work(topology))

    with stack:
        before_script(
            monkeypatch,
            "check_caller",
            other,
            lambda: found.extend(client.execute_many([1, 2], return_exceptions=True)),
        )
    assert [str(one) for one in found] == ["its function was removed"] * 2
    assert tries.runs == 0


def test_a_worker_that_pauses_takes_nothing_of_a_later_function(topology: Topology) -> None:
    tries = Tries()
    repeated = tries.function(idempotent=True)
    old = repeated.register(topology).workers()[0]
    assert old.work() == 0
    slot = topology.ledger.run(subscriptions.find(topology.ledger.core, "count.fan", "fan"))
    forget = command("UNLINK", keys.Stream("t", "count.fan").workers(slot))  # its lease is over
    topology.ledger.store.send([forget])
    retire(topology.ledger, repeated.description("t"))
    counting().register(topology)
    call = topology.drpc("count").begin(3)
    call.begun.result(30)
    for _ in range(3):
        with suppress(FunctionConflict):
            assert old.work() == 0
    with pytest.raises(FunctionConflict, match="another version"):
        old.work()
    assert tries.runs == 0
    with counting().work(topology):
        assert call.future.result(30) == 3


def test_a_lost_version_is_noted_again_by_registered_workers_only(topology: Topology) -> None:
    line = counting().register(topology)
    client, own = topology.drpc("count"), keys.Stream("t", "count.fan").subscriptions
    topology.ledger.store.send([command("HDEL", own, "version")])
    with pytest.raises(UnknownFunction, match="Its workers register it again"):
        client.execute(1)
    line.keep()
    with counting().work(topology):
        assert client.execute(3) == 3
    before = topology.ledger.store.send([command("HGET", own, "version")])
    with pytest.raises(FunctionConflict):
        topology.ledger.run(registry.mark(topology.ledger.core, otherwise().description("t"), new=True))
    assert topology.ledger.store.send([command("HGET", own, "version")]) == before
