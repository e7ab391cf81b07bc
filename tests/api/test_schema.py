"""The schema is what the service does: schemathesis with every check on, and what clients are made from."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from acker.ledger import open_ledger
from acker.store import Store
from api.main import create_app
from api.settings import Settings
from tests.api.conftest import OPERATE, TOKENS, serving
from tests.ledgers import Trees


def schema() -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    found: dict[str, dict[str, dict[str, dict[str, object]]]] = create_app(Settings()).openapi()
    return found


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_schemathesis_finds_nothing(valkey_url: str, tmp_path: Path) -> None:
    ledger = open_ledger(Store(valkey_url), "words", ackers=2)
    trees = Trees(50).track(ledger)
    ledger.fail(trees.anchors[:5], "<script>")
    (tmp_path / "schema.json").write_text(json.dumps(schema()))
    with serving(valkey_url, tokens=TOKENS, ticker=False, writes_per_second=1e6, stream_seconds=1) as address:
        run = subprocess.run(
            [
                str(Path(sys.executable).with_name("st")), "--no-color", "run", "schema.json", "--url",
                address,
                "-H", f"Authorization: Bearer {OPERATE}", "--checks", "all", "--max-examples", "20",
                "--phases", "examples,coverage,fuzzing,stateful", "--continue-on-failure", "--seed", "1",
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
    run = subprocess.run(
        [sys.executable, "-m", "api.openapi"], cwd=root, capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == json.loads(json.dumps(schema()))


def test_every_operation_is_named_and_declares_its_problems() -> None:
    names = []
    for path, operations in schema()["paths"].items():
        for operation in operations.values():
            names.append(operation["operationId"])
            responses = operation["responses"]
            assert isinstance(responses, dict)
            assert "200" in responses
            if path.startswith("/api/"):
                assert {"401", "403", "422", "503"} <= responses.keys(), path
                assert operation["security"] == [{"token": []}]
            for status, response in responses.items():
                if status >= "400":
                    assert list(response["content"]) == ["application/problem+json"], (path, status)
    assert len(set(names)) == len(names)
