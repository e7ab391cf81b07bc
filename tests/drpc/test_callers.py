"""Callers of functions: whatever they ask, and wherever they wait, each has an end to its wait."""

import asyncio
import json
import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import Any

import pytest
import redis

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out, calls
from acker.drpc.calling import answer_listener as waiting
from acker.drpc.out import as_json
from acker.errors import DRPCTimeout, StoreError, StoreUnavailable, UnreadableRecord, ValidationError
from acker.store import function_keys, keys
from acker.store.client import Store
from acker.store.operation import Request, command
from tests.helpers.builders.counting import Count, Held, N, counting, fan
from tests.helpers.faults.simulator import scripts_of
from tests.helpers.servers.new_server import NewServer


def test_a_forked_child_gets_answers_of_its_own(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        assert client.execute(3) == 3
        child = os.fork()
        if child == 0:
            threading.Timer(20.0, os._exit, [2]).start()
            os._exit(0 if client.execute(4) == 4 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert client.execute(5) == 5


def test_a_client_goes_to_other_processes(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        assert pickle.loads(pickle.dumps(client)).execute(3) == 3
        with get_context("spawn").Pool(1) as pool:
            assert pool.map(client.execute, [0, 2]) == [0, 2]


def test_a_short_wait_for_a_key_ends_no_other(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_GRACE", 0.0)
    held = Held()
    with held.function.work(topology):
        client = topology.drpc("count")
        long, short = client.submit(2, timeout=60.0, key="k"), client.submit(2, timeout=0.01, key="k")
        assert isinstance(short.exception(30), DRPCTimeout)
        assert not long.done()
        held.go.set()
        assert long.result(30) == 2


def test_a_call_that_nobody_works_on_is_told_what_it_waited_for(topology: Topology) -> None:
    counting().register(topology)
    with pytest.raises(DRPCTimeout, match="it waited for fan"):
        topology.drpc("count").execute(1, timeout=0.01)


@pytest.mark.parametrize("key", [123, b"x", ["a"], "", "x" * 5000])
def test_a_key_is_text(topology: Topology, key: Any) -> None:
    counting().register(topology)
    with pytest.raises(ValidationError, match="key: expected text"):
        topology.drpc("count").submit(1, key=key)


def test_what_cannot_be_shown_is_refused_as_anything_that_json_has_not(topology: Topology) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    counting().register(topology)
    client = topology.drpc("count")
    for bad in (deep, 10**5000, {"a": {1, 2}}):
        with pytest.raises(ValidationError, match="args: expected a value of JSON, got "):
            client.submit(bad)


def test_many_more_calls_than_have_room_wait_for_each_other(topology: Topology) -> None:
    with counting(max_pending=3).work(topology):
        assert topology.drpc("count").execute_many(n % 3 for n in range(20)) == [n % 3 for n in range(20)]


def test_a_generator_that_raises_begins_nothing(topology: Topology) -> None:
    def asks() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more")

    counting().register(topology)
    with pytest.raises(RuntimeError, match="no more"):
        topology.drpc("count").execute_many(asks())
    [waiting] = topology.ledger.store.send([command("HLEN", function_keys.Function("t", "count").calls)])
    assert waiting == 0


def test_a_loop_that_has_ended_is_not_told(topology: Topology, caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    with held.function.work(topology):
        client = topology.drpc("count")
        with pytest.raises(TimeoutError), caplog.at_level(logging.DEBUG):
            asyncio.run(asyncio.wait_for(client.aexecute(2, key="k"), 0.05))
        again = client.submit(2, key="k")
        held.go.set()
        assert again.result(30) == 2
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_an_answer_that_cannot_be_read_is_an_error_of_its_own() -> None:
    for text in ("[" * 100_000, "{"):
        assert isinstance(
            waiting.result_of("count", calls.Seen(calls.Status.ANSWERED, text)), UnreadableRecord
        )


def test_a_listener_goes_on_after_any_error(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        answered, raising = client._waiting._answered, [RuntimeError("unforeseen")]

        def failing() -> list[str]:
            if raising:
                raise raising.pop()
            return answered()

        monkeypatch.setattr(client._waiting, "_answered", failing)
        assert client.submit(3).result(30) == 3
        assert raising == []


@pytest.mark.parametrize(("levels", "taken"), [(200, True), (201, False), (900, False)])
def test_arguments_have_at_most_200_levels(levels: int, taken: bool) -> None:
    value: Any = []
    for place in range(levels - 1):
        value = [value] if place % 2 else {"a": value}
    if taken:
        assert json.loads(as_json(value, "args")) == value
    else:
        with pytest.raises(ValidationError, match="at most 200 lists and dicts within each other"):
            as_json(value, "args")


def test_calls_that_come_at_one_time_are_divided_among_several_threads(topology: Topology) -> None:
    function = counting()
    function.register(topology)
    client = topology.drpc("count")
    client._sending = True  # nothing is written until all have asked
    asked = [client.begin(number) for number in range(40)]
    threading.Thread(target=client._send, daemon=True).start()
    for one in asked:
        one.begun.result(60)
    stream = keys.Stream("t", client.function.stream(0)).entries
    [pieces] = topology.ledger.store.send([command("XLEN", stream)])
    assert pieces == 14  # of three calls each, but for the last: 16 at most


class Unanswered:
    """The first flight of a caller with a script: nobody is told what became of it.

    how: it comes to the store never, at once, or late. The caller's store has a timeout of 9 s.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: str, how: str) -> None:
        self._send, self._script, self._how = Store.send, script, how
        self.late: list[Sequence[Request]] = []
        self._lost = False
        monkeypatch.setattr(Store, "send", self.send())

    def send(self) -> Callable[[Store, Sequence[Request]], list[Any]]:
        def send(store: Store, asked: Sequence[Request]) -> list[Any]:
            return self._pass(store, asked)

        return send

    def _pass(self, store: Store, asked: Sequence[Request]) -> list[Any]:
        of_caller = store.timeout == 9.0
        named = [one.script.name for one in asked if one.script is not None]
        if self._lost or not of_caller or self._script not in named:
            return self._send(store, asked)
        self._lost = True
        if self._how == "at once":
            self._send(store, asked)
        if self._how == "late":
            self.late.append(asked)
        raise StoreUnavailable("it did not answer")

    def come(self, store: Store) -> None:
        """Delivers the late answers now."""
        for asked in self.late:
            self._send(store, asked)


@pytest.mark.parametrize("first", [True, False])  # what its process has not asked before takes more flights
@pytest.mark.parametrize("how", ["never", "at once", "late"])
@pytest.mark.parametrize("script", ["begin_call", "chain"])
def test_a_call_is_worked_out_once_under_its_key_also_where_the_store_did_not_answer(
    valkey_url: str, topology: Topology, monkeypatch: pytest.MonkeyPatch, script: str, how: str, first: bool
) -> None:
    worked: list[int] = []

    def step(row: dict[str, Any], out: Out) -> None:
        worked.append(row["args"])
        fan(row, out)

    function = LinearDRPC("count").step("fan", step, columns=N).gather("count", Count)
    with function.work(topology):
        client = Topology(valkey_url, "t", timeout=9.0).drpc("count")
        if not first:
            assert client.execute(2, timeout=30.0) == 2
        unanswered = Unanswered(monkeypatch, script, how)
        with pytest.raises(StoreUnavailable):
            client.execute(3, key="k", timeout=30.0)
        if how == "late":
            assert client.execute(3, key="k", timeout=30.0) == 3
            unanswered.come(topology.ledger.store)
        assert client.execute(3, key="k", timeout=30.0) == 3
        assert client.execute(1, timeout=30.0) == 1
    assert worked == ([3, 1] if first else [2, 3, 1])
    calls_left = [command("HLEN", function_keys.Function("t", "count").calls)]
    assert topology.ledger.store.send(calls_left) == [0]


def test_who_waits_for_a_key_goes_on_where_the_same_is_asked_again_and_the_store_does_not_answer(
    valkey_url: str, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    with held.function.work(topology):
        client = Topology(valkey_url, "t", timeout=9.0).drpc("count")
        first = client.begin(2, key="k", timeout=60.0)
        first.begun.result(30)
        Unanswered(monkeypatch, "begin_call", "never")
        with pytest.raises(StoreUnavailable):
            client.execute(2, key="k", timeout=60.0)
        held.go.set()
        assert first.future.result(30) == 2


def test_a_call_that_a_store_without_memory_did_not_take_is_worked_out_when_it_is_asked_again(
    new_server: NewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has none when the call is written, and none when it is asked what became of that."""
    server, send, refused = new_server(append_only=False), Store.send, ["withdraw_calls", "chain"]

    def full(store: Store, asked: Sequence[Request]) -> list[Any]:
        named = [one.script.name for one in asked if one.script is not None]
        if store.timeout != 9.0 or not refused or refused[-1] not in named:
            return send(store, asked)
        refused.pop()
        raw.config_set("maxmemory", 1)
        try:
            return send(store, asked)
        finally:
            raw.config_set("maxmemory", 0)

    with (
        redis.Redis.from_url(server.url) as raw,
        Topology(server.url, "t", ackers=2) as topology,
        counting().work(topology),
    ):
        client = Topology(server.url, "t", timeout=9.0).drpc("count")
        monkeypatch.setattr(Store, "send", full)
        for _ in range(2):
            with pytest.raises(StoreError, match="maxmemory"):
                client.execute(3, key="k", timeout=3.0)
        assert client.execute(3, key="k", timeout=30.0) == 3
    assert not refused


def test_a_call_that_was_answered_before_it_was_written_leaves_the_others_alone(
    valkey_url: str, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, chains = Store.send, list[int]()

    def slow(store: Store, asked: Sequence[Request]) -> list[Any]:
        of_caller = store.timeout == 9.0 and {"chain", "begin_commit"} <= set(scripts_of(asked))
        if of_caller and not chains:
            ledger = topology.ledger
            assert ledger.run(calls.cancel(ledger.core, client.function, short.request))
        chains.extend([1] * of_caller)
        return send(store, asked)

    with counting().work(topology):
        client = Topology(valkey_url, "t", timeout=9.0).drpc("count")
        short, long = client._call(2, 30.0, None), client._call(3, 30.0, None)
        monkeypatch.setattr(Store, "send", slow)
        client._begin([short, long], 1)
        assert long.future.result(30) == 3
        assert str(short.future.exception(30)) == "it was cancelled"
    assert len(chains) == 2


def test_a_listener_looks_again_after_a_failure(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    send, asked, other_waits = Store.send, threading.Event(), threading.Event()

    def away(store: Store, requests: Sequence[Request]) -> list[Any]:
        if requests[0].script is None and requests[0].args[0] == "XREVRANGE":
            monkeypatch.setattr(Store, "send", send)
            asked.set()
            other_waits.wait(30)
            raise StoreUnavailable("it did not answer")
        return send(store, requests)

    function = counting()
    function.register(topology)
    client = topology.drpc("count")
    monkeypatch.setattr(Store, "send", away)
    first = client.submit(1)
    assert asked.wait(30)
    calls_of_other = [client._call(2, 30.0, None)]
    client._begin(calls_of_other, 1)
    other_waits.set()
    with function.work(topology):
        assert first.result(20) == 1
        assert calls_of_other[0].future.result(20) == 2
