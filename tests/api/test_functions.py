"""Functions by HTTP: each call has its one answer, at once or when it is asked for again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out
from acker.errors import FailedException
from tests.helpers.faces import patient
from tests.helpers.faces.api import READ, calling, serving

CALL = "token-that-only-calls"


class Echo:
    """Gives back what it was asked, when it may."""

    may = threading.Event()

    def __init__(self, _: object) -> None:
        self.rows = list[str]()

    def execute(self, row: dict[str, Any]) -> None:
        self.rows.append(row["args"])

    def finished(self, out: Out) -> None:
        self.may.wait()
        out.result(self.rows)


def split(row: dict[str, Any], out: Out) -> None:
    if row["args"] == "bad":
        raise FailedException("bad arguments")
    for part in row["args"]:
        out.emit({"args": str(part)})


def echo(**how: Any) -> LinearDRPC:
    return LinearDRPC("echo", **how).step("split", split, columns={"args": pa.string()}).gather("all", Echo)


@pytest.fixture
def topology(valkey_url: str) -> Topology:
    return Topology(valkey_url, "t", ackers=2)


@contextmanager
def working(topology: Topology, **how: Any) -> Iterator[None]:
    Echo.may.set()
    with echo(**how).work(topology):
        yield


def kind(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("urn:acker:")


def test_a_call_waits_for_its_answer(client: httpx.Client, topology: Topology) -> None:
    with working(topology):
        answer = client.post("/drpc/echo", json={"args": [1, "ü"]})
        assert (answer.status_code, answer.json()["result"]) == (200, ["1", "ü"])
        again = client.get(f"/drpc/echo/{answer.json()['request']}")
        assert (again.status_code, again.json()) == (200, answer.json())
        failed = client.post("/drpc/echo", json={"args": "bad"})
        assert kind(failed) == (422, "drpc-failed")
        assert failed.json()["detail"] == "in step split: bad arguments"


def test_who_does_not_wait_comes_again(client: httpx.Client, topology: Topology) -> None:
    with working(topology):
        Echo.may.clear()
        accepted = client.post("/drpc/echo", json={"args": [1], "wait": 0})
        assert accepted.status_code == 202
        location = accepted.headers["location"].removeprefix("/api/v1")
        while (pending := client.get(location).json())["waits_for"] != ["all"]:
            assert client.get(location).status_code == 202
        assert pending["deadline"] > "2026"
        Echo.may.set()
        while (found := client.get(location)).status_code == 202:
            pass
        assert found.json()["result"] == ["1"]


def test_what_cannot_be_answered_is_a_problem(client: httpx.Client, topology: Topology) -> None:
    echo(max_pending=1).register(topology)
    short = {"args": [1], "timeout": 0.01}
    assert kind(client.post("/drpc/echo", json=short)) == (504, "drpc-timeout")
    brief = client.post("/drpc/echo", json={"args": [1], "timeout": 0.01, "wait": 0})
    place = brief.headers["location"].removeprefix("/api/v1")
    while (late := client.get(place)).status_code == 202:
        pass
    assert kind(late) == (504, "drpc-timeout")
    none = client.post("/drpc/echo", json={"args": [1], "wait": 0.1})
    assert kind(none) == (503, "no-workers")
    location = none.headers["location"].removeprefix("/api/v1")
    assert client.get(location).status_code == 202
    full = client.post("/drpc/echo", json={"args": [1]})
    assert (kind(full), full.headers["retry-after"]) == ((429, "drpc-full"), "1")
    assert client.delete(location).json()["cancelled"]
    assert not client.delete(location).json()["cancelled"]
    assert kind(client.get(location)) == (422, "drpc-failed")
    assert client.get("/drpc/echo").json()["pending"] == 0


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/drpc/nobody", {"args": 1}, (404, "unknown-function")),
        ("/drpc/echo", {}, (422, "invalid-request")),
        ("/drpc/echo", {"args": "x" * (1 << 20)}, (413, "body-too-large")),
        ("/drpc/echo", {"args": 1, "timeout": 0}, (422, "invalid-request")),
        ("/drpc/echo", {"args": 1, "timeout": True}, (422, "invalid-request")),
        ("/drpc/echo", {"args": 1, "wait": 301}, (422, "invalid-request")),
    ],
)
def test_a_call_that_is_none_is_refused(
    client: httpx.Client, topology: Topology, path: str, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    echo().register(topology)
    assert kind(client.post(path, json=body)) == expected
    assert client.get("/drpc/echo").json()["pending"] == 0


@pytest.mark.parametrize("args", ["NaN", "-Infinity", '"\\ud800"', "[" * 100_000 + "]" * 100_000])
def test_args_that_json_has_not_are_refused(client: httpx.Client, topology: Topology, args: str) -> None:
    echo().register(topology)
    headers = {"Content-Type": "application/json"}
    answer = client.post("/drpc/echo", content=f'{{"args": {args}}}', headers=headers)
    assert 400 <= answer.status_code < 500, answer.text


def test_the_order_of_a_lines_sections_is_no_record(client: httpx.Client, topology: Topology) -> None:
    echo().register(topology)
    request = client.post("/drpc/echo", json={"args": [1], "wait": 0}).json()["request"]
    [record] = client.get("/topologies/t/records", params={"message_id": request}).json()["records"]
    assert record["spout"] == "echo"
    for nameless in ({}, {"message_id": ""}):
        assert client.get("/topologies/t/records", params=nameless).json()["records"] == []
    assert client.get("/topologies/t/trees", params={"message_id": ""}).json()["trees"] == []
    assert {one["spout"] for one in client.get("/topologies/t/trees").json()["trees"]} == {
        "acker.sections",
        "echo",
    }


def test_a_request_that_is_not_known_is_404(client: httpx.Client, topology: Topology) -> None:
    echo().register(topology)
    for ask in (client.get, client.delete):
        assert kind(ask(f"/drpc/echo/{'0' * 32}")) == (404, "unknown-request")
        assert kind(ask("/drpc/echo/x")) == (422, "invalid-request")


def test_a_function_tells_who_works_on_it(client: httpx.Client, topology: Topology) -> None:
    echo(idempotent=True).register(topology)
    assert [one["workers"] for one in client.get("/drpc/echo").json()["steps"]] == [0, 0]
    with working(topology, idempotent=True):
        client.post("/drpc/echo", json={"args": [1]})
        [function] = client.get("/drpc").json()["functions"]
        assert [one["workers"] for one in function["steps"]] == [1, 1]
    assert [one["workers"] for one in client.get("/drpc/echo").json()["steps"]] == [0, 0]
    assert (function["function"], function["topology"], function["attempts"]) == ("echo", "t", 3)


def test_a_function_tells_what_became_of_its_calls(client: httpx.Client, topology: Topology) -> None:
    with working(topology):
        for args in ([1], [2], "bad"):
            client.post("/drpc/echo", json={"args": args})
    [function] = client.get("/drpc").json()["functions"]
    for counted in (function["recent"], function["total"]):
        assert (counted["answered"], counted["failed"], counted["timed_out"]) == (2, 1, 0)
        assert 0 < counted["latency"]["p50"] <= counted["latency"]["p99"]
        assert counted["causes"] == [
            {
                "status": "failed",
                "steps": ["split"],
                "cause": "bad arguments",
                "calls": 1,
            }
        ]
    assert function["recent"]["rate"] == pytest.approx(3 / function["recent"]["seconds"])
    assert (function["total"]["rate"], sum(function["minutes"]), function["late"]) == (None, 3, 0)


def test_calls_are_listed_with_their_steps(client: httpx.Client, topology: Topology) -> None:
    with working(topology):
        client.post("/drpc/echo", json={"args": "bad"})
        Echo.may.clear()
        request = client.post("/drpc/echo", json={"args": [1], "wait": 0}).json()["request"]
        [pending] = client.get("/drpc/echo/calls/pending").json()["calls"]
        assert (pending["request"], pending["status"]) == (request, "pending")
        assert pending["at"] < pending["deadline"]
        while (call := client.get(f"/drpc/echo/{request}/steps").json())["steps"][1]["state"] != "working":
            pass
        assert [(one["name"], one["section"]) for one in call["steps"]] == [("split", 1), ("all", 2)]
        assert call["steps"][0]["state"] == "finished"
        line = client.get(f"/topologies/t/lines/requests/{call['anchor']}").json()
        assert (line["line"], line["request"], line["sections"][0]["over"]) == ("echo", call["anchor"], True)
        Echo.may.set()
    [failed] = client.get("/drpc/echo/calls/ended", params={"limit": 500}).json()["calls"][-1:]
    assert (failed["status"], failed["steps"]) == ("failed", ["split"])
    assert failed["reason"] == "bad arguments"
    assert kind(client.get("/drpc/echo/calls/ended", params={"limit": 501})) == (422, "invalid-request")
    assert kind(client.get(f"/drpc/echo/{'0' * 32}/steps")) == (404, "unknown-request")
    request = client.post("/drpc/echo", json={"args": [1], "wait": 0}).json()["request"]
    steps = client.get(f"/drpc/echo/{request}/steps").json()["steps"]
    assert [one["state"] for one in steps] == ["no workers", "waiting"]


def test_a_function_made_anew_is_called_as_it_is(client: httpx.Client, topology: Topology) -> None:
    with working(topology):
        client.post("/drpc/echo", json={"args": [1]})
    topology.remove(force=True)
    assert kind(client.post("/drpc/echo", json={"args": [1]})) == (404, "unknown-function")
    with Topology(topology.ledger.store.url, "other", ackers=1) as other, working(other):
        assert client.post("/drpc/echo", json={"args": [2]}).json()["result"] == ["2"]


def test_the_same_key_from_two_services_is_worked_out_once(
    valkey_url: str, client: httpx.Client, topology: Topology
) -> None:
    with working(topology), serving(valkey_url, ticker=False) as address, calling(address, "") as other:
        answers = [
            one.post("/drpc/echo", json={"args": [1]}, headers={"Idempotency-Key": "k"}).json()
            for one in (client, other)
        ]
    assert answers[0] == answers[1]


def test_what_a_token_allows(valkey_url: str, topology: Topology) -> None:
    tokens = f"read:{READ} call:{CALL}"
    with working(topology), serving(valkey_url, tokens=tokens, ticker=False) as address:
        with calling(address, CALL) as caller:
            answer = caller.post("/drpc/echo", json={"args": [1]})
            assert answer.status_code == 200
            location = f"/drpc/echo/{answer.json()['request']}"
            assert caller.get(location).status_code == 200
            assert caller.get("/access").json() == {"scope": "call", "rows": False}
            for method, path in (("GET", "/topologies"), ("DELETE", location), ("DELETE", "/topologies/t")):
                assert kind(caller.request(method, path)) == (403, "calls-only")
        with calling(address, READ) as reader:
            assert reader.get(location).status_code == 200
            assert kind(reader.post("/drpc/echo", json={"args": [1]})) == (403, "read-only")


def test_a_caller_that_leaves_cancels_nothing(valkey_url: str, topology: Topology) -> None:
    with working(topology), serving(valkey_url, ticker=False, streams=1) as address:
        Echo.may.clear()
        with calling(address, "") as client:
            with pytest.raises(httpx.ReadTimeout):
                client.post(
                    "/drpc/echo", json={"args": [1]}, timeout=httpx.Timeout(patient.SECONDS, read=0.5)
                )
            while kind_of_second(client) == (429, "too-many-streams"):
                pass
            Echo.may.set()
            while client.get("/drpc/echo").json()["pending"]:
                pass


def kind_of_second(client: httpx.Client) -> object:
    answer = client.post("/drpc/echo", json={"args": [2], "wait": 0})
    return kind(answer) if answer.status_code != 202 else None
