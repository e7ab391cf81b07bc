"""Functions: ask, and get the answer, exactly one, also where callers leave."""

import asyncio
import json
import pickle
import re
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out, calls, keeping
from acker.drpc.calling.client import Client
from acker.errors import (
    DRPCFailed,
    DRPCFull,
    DRPCTimeout,
    FunctionConflict,
    UnknownFunction,
    ValidationError,
)
from acker.store import function_keys, keys
from acker.store.operation import Request, command
from examples.reach import direct, generated, main, read, run
from tests.helpers.builders.counting import Count, N, counting, fan, of_result


@pytest.mark.cluster(slow=True)
def test_a_function_answers_each_request(url: str) -> None:
    with Topology(url, "t", ackers=3) as topology, counting().work(topology):
        client = topology.drpc("count")
        assert [client.execute(n) for n in (0, 1, 100)] == [0, 1, 100]
        many = [n % 5 for n in range(1100)]  # more than are written together
        assert client.execute_many(many) == many
        assert asyncio.run(client.aexecute(7)) == 7
        with pytest.raises(DRPCFailed, match="bad arguments"):
            client.execute("bad")
        found = client.execute_many([3, "bad", 4], return_exceptions=True)
        assert [found[0], type(found[1]), found[2]] == [3, DRPCFailed, 4]


def test_a_thousand_callers_are_answered_at_once(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        futures = [client.submit(n % 3) for n in range(1000)]
        assert [one.result() for one in futures] == [n % 3 for n in range(1000)]


@pytest.mark.parametrize(
    ("give", "reason"),
    [
        (lambda out: None, "last gave no result"),
        (lambda out: [out.result(1), out.result(2)], "gave two results"),
        (lambda out: out.result("x" * ((1 << 20) - 1)), "expected at most 1,048,576 bytes of JSON"),
        (lambda out: out.result(float("nan")), "expected a value of JSON"),
        (lambda out: out.result("\ud800"), "expected a value of JSON"),
        (
            lambda out: out.result([{1: "a", "1": "b"}]),
            'keys that differ as text, got "1" twice in a dict',
        ),
        (lambda out: out.emit({"n": 1}), "the last step emits nothing"),
    ],
)
def test_a_request_needs_one_result(topology: Topology, give: Callable[[Out], object], reason: str) -> None:
    with of_result(give).work(topology), pytest.raises(DRPCFailed, match=reason):
        topology.drpc("count").execute(1)


def test_an_error_names_what_was_raised_and_in_which_step(topology: Topology) -> None:
    numbers = {1: "one"}
    with of_result(lambda out: out.result(numbers[2])).work(topology):
        client = topology.drpc("count")
        with pytest.raises(DRPCFailed) as raised:
            client.execute(1)
        with pytest.raises(DRPCFailed) as failed:
            client.execute("bad")
    error = raised.value
    assert (str(error), error.step, error.reason) == ("in step last: KeyError: 2", "last", "KeyError: 2")
    assert str(failed.value) == "in step fan: bad arguments"
    copied = pickle.loads(pickle.dumps(error))  # as where another process has asked
    assert (str(copied), copied.step, copied.reason) == (str(error), error.step, error.reason)


def test_an_error_of_no_step_is_the_reason_alone(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    call = client.begin(1)
    call.begun.result(30)
    assert topology.ledger.run(calls.cancel(topology.ledger.core, client.function, call.request))
    with pytest.raises(DRPCFailed) as raised:
        call.future.result(30)
    assert (str(raised.value), raised.value.step) == ("it was cancelled", "")


def test_a_result_may_have_a_mebibyte(topology: Topology) -> None:
    text = "x" * ((1 << 20) - 2)
    with of_result(lambda out: out.result(text)).work(topology):
        assert topology.drpc("count").execute(1) == text


def test_a_request_whose_time_is_over_is_off_the_queue(topology: Topology) -> None:
    worked: list[int] = []

    def late(row: dict[str, Any], out: Out) -> None:
        worked.append(row["args"])
        fan(row, out)

    function = LinearDRPC("count").step("fan", late, columns=N).gather("count", Count)
    function.register(topology)
    client = topology.drpc("count")
    call = client.begin(5, timeout=0.5)
    call.begun.result(30)
    core, own = topology.ledger.core, function_keys.Function("t", "count")
    while not topology.ledger.run(calls.overdue(core, client.function)):
        pass
    with pytest.raises(DRPCTimeout, match="it waited for fan"):
        call.future.result(30)
    topology.ledger.run(keeping.look_after(core, client.function))
    left = topology.ledger.store.send([command("HLEN", own.calls), command("ZCARD", own.deadlines)])
    assert left == [0, 0]
    with function.work(topology):
        assert client.execute(6) == 6
    assert worked == [6]


def test_a_full_function_refuses_and_nothing_is_begun(topology: Topology) -> None:
    counting(max_pending=2).register(topology)
    client = topology.drpc("count")
    futures = [client.submit(n) for n in range(3)]
    with pytest.raises(DRPCFull, match="2 calls without answer"):
        futures[2].result()
    with counting(max_pending=2).work(topology):
        assert [one.result() for one in futures[:2]] == [0, 1]


def test_a_paused_function_refuses_calls_and_goes_on_when_it_is_resumed(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        assert client.execute(1) == 1
        topology.pause_spout("count", by="ann")
        with pytest.raises(DRPCFull, match="spout 'count' of topology 't' is paused by ann"):
            client.execute(2)
        topology.resume_spout("count")
        assert client.execute(3) == 3


def test_who_calls_a_store_that_forgets_it_learns_that_nobody_answered(topology: Topology) -> None:
    counting().register(topology)
    call = Client(topology.ledger, "count").begin(1, timeout=0.5)
    call.begun.result(30)
    own = function_keys.Function("t", "count")
    topology.ledger.store.send([command("DEL", own.calls), command("DEL", own.deadlines)])
    with pytest.raises(DRPCTimeout, match="the outcome is unknown"):
        call.future.result(30)


def test_nothing_of_calls_stays_but_answers_for_a_time(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        client.execute_many([1, 2])
        with pytest.raises(DRPCFailed):
            client.execute("bad")
        store, stay = topology.ledger.store, {b"counts", b"answers", b"answer", b"counted"}
        found, kinds = list[bytes](), {b"calls"}
        while kinds - stay:
            [found] = store.send([Request(b"", ["KEYS", "acker:{t@count}:*"])])
            kinds = {name.split(b":")[2] for name in found}
    ages = store.send([command("TTL", name) for name in found if b":answer:" in name])
    assert ages
    assert all(0 < age <= 600 for age in ages)
    topology.remove(force=True)
    with pytest.raises(UnknownFunction):
        Client(topology.ledger, "count")


def test_a_function_is_registered_once_with_one_content(topology: Topology, valkey_url: str) -> None:
    counting().register(topology)
    counting().register(topology)
    for other, said in (
        (counting(max_pending=7), "in topology 't': max_pending 10000, asked for 7. Take"),
        (
            LinearDRPC("count")
            .step("fan", fan, columns=N)
            .gather("between", Count, tasks=2, by=["n"], columns={"x": pa.string()})
            .gather("count", Count),
            "'t': as step 2 'count' (no columns, gathers for 1 tasks), asked for 'between' (x string, "
            "gathers for 2 tasks by n); as step 3 none, asked for 'count' (no columns, gathers "
            "for 1 tasks). Take",
        ),
    ):
        with pytest.raises(FunctionConflict, match=re.escape(said)):
            other.register(topology)
    with pytest.raises(FunctionConflict, match="in topology 't': topology 't', asked for 'other'"):
        counting().register(Topology(valkey_url, "other", ackers=1))
    with pytest.raises(UnknownFunction, match="it has count"):
        topology.drpc("cuont")
    with pytest.raises(UnknownFunction, match="is of topology 't'"):
        Topology(valkey_url, "other", ackers=1).drpc("count")


async def _async_generator(_: object, __: object) -> Any:
    yield


def _generator(_: object, __: object) -> Any:
    yield


class NoFinish:
    def execute(self, row: object) -> None:
        pass


def base() -> LinearDRPC:
    return LinearDRPC("f").step("one", fan, columns=N)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: LinearDRPC("f").description("t"), "has no step"),
    (lambda: base().description("t"), "expected a last step that gathers"),
    (lambda: base().gather("g", Count, tasks=2, by=["n"]).description("t"), "expected a last step"),
    (lambda: base().gather("g", Count, columns=N).description("t"), "expected a last step"),
    (lambda: base().step("one", fan, columns=N), "has a step of the name 'one' already"),
    (lambda: LinearDRPC("a b"), "function"),
    (lambda: base().step("a b", fan, columns=N), "step"),
    (lambda: base().step("replays", fan, columns=N), "acker's own"),
    (lambda: base().gather("g", Count, tasks=2), "need columns"),
    (lambda: base().gather("g", Count, tasks=2, by=["m"]), "column 'm' is not one that step 'one' gives: n"),
    (lambda: base().gather("g", Count, tasks=65, by=["n"]), "from 1 to 64"),
    (lambda: LinearDRPC("f").gather("g", Count), "the first step cannot gather"),
    (lambda: base().gather("g", Count).step("two", fan, columns=N), "so no step can read its rows"),
    (lambda: LinearDRPC("f").step("one", _async_generator, columns=N), "generator function"),
    (lambda: LinearDRPC("f").step("one", _generator, columns=N), "generator function"),
    (lambda: base().gather("g", NoFinish), "expected a class with finished"),
    (lambda: base().gather("g", 3), "expected a class"),  # type: ignore[arg-type]
    (lambda: LinearDRPC("f").step("one", columns=N), "expected a function or a class"),
    (lambda: LinearDRPC("f").step("one", fan, columns=N, spark=True), "a Spark job carries it out"),
    (lambda: LinearDRPC("f").step("one", fan, columns={}), "expected one or more"),
    (lambda: LinearDRPC("f").step("one", fan, columns={"_acker": pa.int64()}), "acker's own"),
    (lambda: LinearDRPC("f").step("one", fan, columns={"n": int}), "types of pyarrow"),
    (
        lambda: base().step("two", fan, columns=N, fair_by="m"),
        "fair_by: expected '_acker' or one of n, got 'm'",
    ),
    (lambda: LinearDRPC("f").step("one", fan, columns=N, fair_by="n"), "one of request, args, got 'n'"),
    (lambda: base().gather("g", Count, fair_by="n"), "its rows go on by request: expected '_acker', got 'n'"),
    (lambda: base().gather("g", Count, fair_by=3), "expected the name of a column, got 3"),  # type: ignore[arg-type]
    (lambda: LinearDRPC("f", timeout=0), "timeout"),
    (lambda: LinearDRPC("f", max_pending=0), "max_pending"),
    (lambda: LinearDRPC("f", attempts=0), "attempts"),
]


@pytest.mark.parametrize(("make", "said"), MISTAKES)
def test_each_mistake_has_its_own_message(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        make()


@pytest.mark.parametrize("threads", [0, 65, "2"])
def test_a_bad_number_of_threads_is_refused_before_registration(topology: Topology, threads: Any) -> None:
    with pytest.raises(ValidationError, match="threads: expected int from 1 to 64"):
        counting().work(topology, threads).__enter__()
    assert topology.ledger.store.send([command("EXISTS", keys.FUNCTIONS, keys.lines("t"))]) == [0]


def test_a_function_has_sixteen_steps_of_which_seven_gather() -> None:
    function = base()
    for number in range(15):
        function.step(f"s{number}", fan, columns=N)
    with pytest.raises(ValidationError, match="16 steps"):
        function.step("more", fan, columns=N)
    function = base()
    for number in range(7):
        function.gather(f"g{number}", Count, columns=N)
    with pytest.raises(ValidationError, match="7 steps that gather"):
        function.gather("more", Count)


def test_arguments_that_json_has_not_are_refused(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    for bad in (object(), float("inf"), "\ud800", "x" * (1 << 20), {1, 2}):
        with pytest.raises(ValidationError, match="args"):
            client.execute(bad)
    with pytest.raises(ValidationError, match="key"):
        client.execute(1, key="")
    with pytest.raises(ValidationError, match="timeout"):
        client.execute(1, timeout=0)


def test_the_reach_of_urls_is_that_of_a_direct_computation(valkey_url: str) -> None:
    shared, followers = generated()
    shared = {**shared, "nobody-follows.com": ["hermit"]}
    urls = [*shared, "nobody-shared.com"]
    found = run(valkey_url, urls, shared, followers, spark=False)
    assert found == {url: direct(url, shared, followers) for url in urls}
    assert (found["nobody-follows.com"], found["nobody-shared.com"]) == (0, 0)


@pytest.mark.slow
def test_the_example_is_a_program_also_with_spark(tmp_path: Path) -> None:
    (tmp_path / "shared.json").write_text(json.dumps({"a.com": ["p", "q"], "b.com": ["r"], "c.com": []}))
    (tmp_path / "followers.json").write_text(json.dumps({"p": ["x", "y"], "q": ["y", "z"], "r": []}))
    command_line = [
        sys.executable, "-m", "examples.reach", "--json", "a.com", "b.com", "c.com", "d.com",
        "--shared", str(tmp_path / "shared.json"), "--followers", str(tmp_path / "followers.json"),
    ]  # fmt: skip
    for more in ([], ["--spark"]):
        done = subprocess.run(command_line + more, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == {"a.com": 3, "b.com": 0, "c.com": 0, "d.com": 0}


@pytest.mark.parametrize("text", [None, "", "nope", "[1]", '{"a": 1}', '{"a": [1]}', "[" * 100_000])
def test_the_example_refuses_a_file_without_a_graph(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "shared.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(
        ArgumentTypeError, match=r"shared\.json: expected a file of JSON, \{name: \[names\]\}"
    ):
        read(str(file))


@pytest.mark.parametrize("given", ["--shared", "--followers"])
def test_the_example_counts_in_no_graph_of_which_half_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    file = tmp_path / "half.json"
    file.write_text('{"a.com": ["p"]}')
    monkeypatch.setattr(sys, "argv", ["reach", "a.com", given, str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert f"both are needed, or neither, got only {given}" in said.err
    assert said.out == ""


def test_the_example_says_in_a_line_why_it_cannot_ask(
    topology: Topology, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    LinearDRPC("reach").step("other", fan, columns=N).gather("count", Count).register(topology)
    monkeypatch.setattr(sys, "argv", ["reach", "--url", topology.ledger.store.url, "a.com"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    [said] = capsys.readouterr().err.splitlines()
    assert "function 'reach' is registered otherwise" in said
