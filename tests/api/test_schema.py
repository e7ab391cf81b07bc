"""The schema is what the service does: schemathesis with every check on, and what clients are made from."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from acker.drpc import LinearDRPC, Out
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from api import openapi
from api.main import create_app
from api.settings.settings import Settings
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces import patient
from tests.helpers.faces.api import OPERATE, TOKENS, serving


class _Topology:
    """The topology in which a function works."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger


class Repeat:
    """Gives back what it was asked."""

    def __init__(self, _: object) -> None:
        self.args = ""

    def execute(self, row: dict[str, Any]) -> None:
        self.args = row["args"]

    def finished(self, out: Out) -> None:
        out.result(self.args)


def repeating() -> LinearDRPC:
    """A function under the name of the schema's examples."""
    function = LinearDRPC("wordcount", idempotent=True)
    function.step(
        "as_text", lambda row, out: out.emit({"args": str(row["args"])}), columns={"args": pa.string()}
    )
    return function.gather("repeat", Repeat)


LATE = """
[[operations]]
include-name = ["POST /api/v1/drpc/{function}", "GET /api/v1/drpc/{function}/{request_id}"]
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503, 504]
"""
"""A call may be given 10 ms, or wait for workers that another request has left without their subscription."""


def schema() -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    found: dict[str, dict[str, dict[str, dict[str, object]]]] = openapi.build(create_app(Settings()))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("tokens", "examples", "phases"),
    [(TOKENS, 10, "examples,coverage,fuzzing,stateful"), ("", 3, "examples,fuzzing")],
    ids=["with tokens", "without"],
)
def test_schemathesis_finds_nothing(
    valkey_url: str, tmp_path: Path, tokens: str, examples: int, phases: str
) -> None:
    ledger = open_ledger(Store(valkey_url), "words", ackers=2)
    trees = Trees(50).track(ledger)
    ledger.fail(trees.anchors[:5], "<script>")
    known = ["-H", f"Authorization: Bearer {OPERATE}"] if tokens else []
    limits = {"writes_per_second": 1e6, "reads_per_second": 1e6, "stream_seconds": 1}
    with (
        serving(valkey_url, tokens=tokens, ticker=False, **limits) as address,  # type: ignore[arg-type]
        repeating().work(_Topology(ledger)),
    ):
        headers = {"Authorization": f"Bearer {OPERATE}"}
        served = patient.get(f"{address}/api/v1/openapi.json", headers=headers).json()
        (tmp_path / "schema.json").write_text(json.dumps(served))
        (tmp_path / "schemathesis.toml").write_text(LATE)
        run = subprocess.run(
            [
                str(Path(sys.executable).with_name("st")), "--no-color", "run", "schema.json", "--url",
                address, *known, "--checks", "all", "--max-examples", str(examples),
                "--phases", phases, "--continue-on-failure", "--seed", "1",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )  # fmt: skip
    shown = "\n".join(line[:300] for line in run.stdout.splitlines()[-150:])
    assert run.returncode == 0, shown
    assert "Errors" not in shown


def test_the_schema_can_be_printed_without_a_store(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-m", "api"], cwd=root, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == json.loads(json.dumps(schema()))


def test_every_operation_is_named_and_declares_its_problems() -> None:
    names = []
    without = openapi.build(create_app(Settings()), tokens=False)
    for path, operations in schema()["paths"].items():
        for method, operation in operations.items():
            names.append(operation["operationId"])
            responses = operation["responses"]
            assert isinstance(responses, dict)
            assert responses.keys() & {"200", "204"}
            if path.startswith("/api/"):
                assert {"401", "403", "422", "503"} <= responses.keys(), path
                assert operation["security"] == [{"token": []}]
                assert without["paths"][path][method]["security"] == [{"token": []}, {}]
            for status, response in responses.items():
                if status >= "400":
                    assert list(response["content"]) == ["application/problem+json"], (path, status)
    assert len(set(names)) == len(names)


def test_head_answers_as_get_without_a_body(address: str, client: httpx.Client) -> None:
    for path in ("/topologies", "/openapi.json", "/topologies/nobody"):
        wanted, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (wanted.status_code, b""), path
        assert head.headers["content-type"] == wanted.headers["content-type"]


def test_head_of_an_event_stream_ends(client: httpx.Client, valkey_url: str) -> None:
    open_ledger(Store(valkey_url), "words", ackers=1)
    answer = client.head("/topologies/words/events")
    assert (answer.status_code, answer.headers["content-type"][:17]) == (200, "text/event-stream")


def test_parameters_that_a_route_does_not_have_are_named(client: httpx.Client) -> None:
    answer = client.get("/access", params={"x": 1})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"location": ["query", "x"], "detail": "Extra inputs are not permitted"}
    ]
