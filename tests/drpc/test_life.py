"""Calls outlive the message timeout, and leave nothing behind where callers and stores go away."""

import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

import pytest
import redis

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out
from acker.drpc.answer_all import Answering
from acker.errors import DRPCFailed, DRPCTimeout
from acker.inspect.operate import ticker_hooks
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.trees import clocks
from acker.ledger.tick.ticker import Ticker
from acker.ledger.trees import trees
from acker.store import function_keys, keys
from acker.store.client import Store
from acker.store.operation import command
from acker.workers import leases
from tests.helpers.builders import tickers
from tests.helpers.builders.counting import Count, N, counting, fan
from tests.helpers.builders.ledgers import Trees
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

CALLER = """
import json, sys
from acker import Topology
url, args, how = sys.argv[1:]
call = Topology(url, "t").drpc("count").begin(int(args), **json.loads(how))
call.begun.result()
print("begun", flush=True)
print(call.future.result())
"""


def caller(url: str, args: int, how: str) -> "subprocess.Popen[str]":
    """A process that calls, and prints when it has begun, and the result."""
    program = [sys.executable, "-c", CALLER, url, str(args), how]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_call_of_3_s_under_a_message_timeout_of_1_s_is_answered_after_2_5_s(valkey_url: str) -> None:
    """By the clock, so a machine that stands still for most of a second has two further tries."""

    def slow(row: dict[str, Any], out: Out) -> None:
        time.sleep(2.5)  # the promise is of so much time, and not of an event
        fan(row, out)

    function = LinearDRPC("count").step("slow", slow, columns=N).gather("count", Count)
    with (
        Topology(valkey_url, "t", ackers=2, message_timeout=1.0) as topology,
        tickers.running(Ticker(Store(valkey_url), hooks=HOOKS)),
        function.work(topology),
    ):
        said = []
        for _ in range(3):
            begun = time.monotonic()
            try:
                assert topology.drpc("count").execute(5, timeout=3.0) == 5
            except (DRPCFailed, DRPCTimeout) as error:
                said.append(str(error))
            else:
                assert time.monotonic() - begun >= 2.5
                return
    pytest.fail("; ".join(said))


def test_a_call_not_begun_waits_for_a_worker_longer_than_the_timeout(valkey_url: str) -> None:
    topology = Topology(valkey_url, "t", ackers=1, message_timeout=1.0)
    counting().register(topology)
    asked = topology.drpc("count").begin(2, timeout=300.0)
    asked.begun.result(60)
    tree = topology.ledger.run(clocks.page(topology.ledger.core)).trees[0]
    assert tree.wait is not None
    assert (tree.wait.until or 0) - tree.tracked_at == pytest.approx(300, abs=30)
    with tickers.running(Ticker(Store(valkey_url), hooks=HOOKS)):
        for _ in range(2):  # what nobody keeps expires, twice over
            other = int(Trees(1).track(topology.ledger).anchors[0])
            wait_until(partial(expired, topology, other), timeout=60)
        with counting().work(topology):
            assert asked.future.result(60) == 2


def expired(topology: Topology, anchor: int) -> bool:
    tree = topology.ledger.run(trees.tree(topology.ledger.core, anchor))
    return tree is None or tree.state == "finished"


def test_the_same_key_from_two_processes_is_worked_out_once(valkey_url: str) -> None:
    worked: list[int] = []

    def once(row: dict[str, Any], out: Out) -> None:
        worked.append(row["args"])
        fan(row, out)

    function = LinearDRPC("count").step("fan", once, columns=N).gather("count", Count)
    with Topology(valkey_url, "t", ackers=2) as topology:
        function.register(topology)
        asking = [caller(valkey_url, 3, '{"key": "k", "timeout": 60}') for _ in range(2)]
        client = topology.drpc("count")
        future = client.submit(3, key="k")
        assert [one.stdout and one.stdout.readline() for one in asking] == ["begun\n"] * 2
        with function.work(topology):
            assert future.result() == 3
            for one in asking:
                answer, trouble = one.communicate(timeout=60)
                assert answer == "3\n", trouble
            assert client.execute(99, key="k") == 3
    assert worked == [3]


@pytest.mark.parametrize("taken", [False, True])
def test_a_call_lives_until_its_time_is_over_and_no_longer_though_all_others_are_dead(
    valkey_url: str, valkey_raw: "redis.Redis", taken: bool
) -> None:
    """A worker that was killed has it in hand, or only counts as alive; the caller was killed, too."""
    topology = Topology(valkey_url, "t", ackers=2, downtime=0)
    core, run = topology.ledger.core, topology.ledger.run
    line = counting(idempotent=True).register(topology)
    asked = topology.drpc("count").begin(2, timeout=300.0)
    asked.begun.result(60)
    dead = line.workers()[0]
    if taken:
        dead.step.run = lambda *_: 1 / 0  # type: ignore[assignment, method-assign]
        with pytest.raises(ZeroDivisionError):
            dead.work()
    else:
        run(leases.beat(core, topology.drpc("count").function.stream(0), 0, "dead", new=True))
    for _ in range(6):
        run(ticker_hooks.keep(core))
        assert topology.tick(force=True).expired == 0
    assert valkey_raw.zadd(function_keys.Function("t", "count").deadlines, {asked.request: 1}, ch=True) == 1
    run(ticker_hooks.keep(core))
    assert topology.counters()["failed"] == topology.counters()["tracked"] == 2
    with pytest.raises(DRPCTimeout, match="it waited for fan"):
        asked.future.result(60)
    dead.end()
    with counting(idempotent=True).work(topology):
        wait_until(lambda: valkey_raw.hlen(keys.Spout("t", "count").slabs) == 0)
        assert topology.drpc("count").execute(3) == 3
    for _ in range(3):
        topology.tick(force=True)
    assert_settled(valkey_raw)


def test_calls_that_nobody_has_worked_on_are_settled_by_who_ticks_and_keep_no_later_ones_waiting(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    """Each is a group of its own, and its function has no worker."""
    topology = Topology(valkey_url, "t", ackers=2, downtime=0)
    core, run, slabs = topology.ledger.core, topology.ledger.run, keys.Spout("t", "count").slabs
    counting().register(topology)
    client = topology.drpc("count")
    for _ in range(2):
        for _ in range(60):
            client.begin(2, timeout=300.0).begun.result(60)
        own = function_keys.Function("t", "count")
        for name, _ in valkey_raw.zscan_iter(own.deadlines):
            valkey_raw.zadd(own.deadlines, {name: 1})
        run(ticker_hooks.keep(core))
        assert valkey_raw.hlen(own.calls) == 0 < valkey_raw.hlen(slabs)
        assert Answering(Store(valkey_url), ["other"]).step() == 0 < valkey_raw.hlen(slabs)
        found = Answering(Store(valkey_url), ["t"]).step()
        assert (found, valkey_raw.hlen(slabs)) == (60, 0)
    with counting().work(topology):
        assert client.execute(3) == 3
    for _ in range(3):
        topology.tick(force=True)
    assert_settled(valkey_raw)


@pytest.mark.parametrize("begun", ["asked", "written"])
def test_a_caller_that_is_killed_leaves_no_key_when_its_time_is_over(
    valkey_url: str, valkey_raw: "redis.Redis", begun: str
) -> None:
    with Topology(valkey_url, "t", ackers=2, message_timeout=1.0) as topology:
        counting().register(topology)
        own, slabs, send = (
            function_keys.Function("t", "count"),
            keys.Spout("t", "count").slabs,
            topology.ledger.store.send,
        )
        killed = caller(valkey_url, 3, '{"timeout": 1}')
        try:
            wait_until(
                lambda: send([command("HLEN", own.calls if begun == "asked" else slabs)])[0], interval=0
            )
        finally:
            killed.kill()
            killed.communicate()
        assert send([command("HLEN", own.calls)]) == [1]
        with counting().work(topology):
            wait_until(lambda: send([command("HLEN", own.calls), command("HLEN", slabs)]) == [0, 0])
        for _ in range(3):
            topology.tick(force=True)
        assert_settled(valkey_raw)


def test_a_call_that_fails_is_no_dead_letter(valkey_url: str) -> None:
    """The caller knows the reason. So such calls fill nothing, and nothing has to drop them."""
    with Topology(valkey_url, "t", ackers=2) as topology, counting().work(topology):
        with pytest.raises(DRPCFailed):
            topology.drpc("count").execute("bad")
        own, send = keys.Spout("t", "count"), topology.ledger.store.send
        wait_until(lambda: not send([command("HLEN", own.slabs)])[0])
        found = send([command("EXISTS", own.dead, own.letters), command("HGET", own.counts, "dead")])
        assert found == [0, b"1"]


def test_where_all_is_flushed_the_time_of_the_caller_tells_and_what_comes_anew_is_answered(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def held(row: dict[str, Any], out: Out) -> None:
        entered.set()
        leave.wait(60)
        fan(row, out)

    function = LinearDRPC("count").step("held", held, columns=N).gather("count", Count)
    with Topology(valkey_url, "t", ackers=2) as topology, function.work(topology):
        future = topology.drpc("count").submit(2, timeout=1.0)
        assert entered.wait(60)
        valkey_raw.flushall()
        leave.set()
        with pytest.raises(DRPCTimeout, match="the outcome is unknown"):
            future.result()
    with Topology(valkey_url, "t", ackers=2) as topology, function.work(topology):
        assert topology.drpc("count").execute(4) == 4
