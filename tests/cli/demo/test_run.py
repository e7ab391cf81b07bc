"""`acker demo` as it is run: what it tells at its end, and that nothing of it is left behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from acker.cli.demo.text import words
from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.streams.dead_letters import dead_letters
from api.asgi.dashboard import prepare
from tests.helpers.faces.demo_run import PROGRAM, Run
from tests.helpers.servers import kafka
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.spark

READY = "reads words and counts them"


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path, java_home: Path) -> Iterator[Start]:
    started: list[Run] = []

    def run(*arguments: str) -> Run:
        started.append(Run(tmp_path, *arguments))
        return started[-1]

    yield run
    for one in started:
        one.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_main_job_counts_the_standard_library_and_finds_nothing_wrong(start: Start) -> None:
    """And its dashboard is there meanwhile, and stays when it is to be kept."""
    prepare()
    run = start("--lines", "2000", "--poison-every", "100", "--json", "--keep")
    address = wait_until(lambda: run.said("dashboard http:"), timeout=400).split()[-1]
    assert "/assets/" in httpx.get(address, timeout=60).text, (
        "the built page, not the one that says that there is none"
    )
    wait_until(lambda: run.said(READY), timeout=400)
    said = run.errors.read_text()
    assert said.index("the first lines have their trees") < said.index(READY)
    topologies = f"{address}/api/v1/topologies"
    [card] = httpx.get(topologies, timeout=60).json()["topologies"]
    wait_until(lambda: run.said(f"dashboard {address} stays"), timeout=400)
    kept = httpx.get(f"{topologies}/{card['topology']}", timeout=60).json()
    run.process.send_signal(signal.SIGINT)
    found = run.result()
    assert run.process.returncode == 0, run.errors.read_text()
    assert found["topology"] == card["topology"]
    assert found["check"] == {"ok": True, "problems": []}
    assert found["lines"] == 2000
    outcomes, dead = found["outcomes"], found["dead_letters"]
    assert isinstance(outcomes, dict)
    assert isinstance(dead, dict)
    assert dead["count"] > 0
    assert set(dead["reasons"]) == {"this record fails always"}
    assert outcomes["acked"] == kept["counters"]["acked"] == 2000 - dead["count"]
    assert outcomes["failed"] > 3 * dead["count"], "flaky words fail at first, too"
    assert found["trees"] == sum(outcomes.values())
    assert found["replays"] == sum(outcomes.values()) - 2000
    run.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_own_text_goes_through_an_own_store(start: Start, new_server: NewServer, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number} of the flaky kind\n\n" for number in range(100)) + "++\n")
    server = new_server(append_only=False)
    run = start(
        "--url", server.url, "--topology", "own", "--input", str(text), "--lines", "0",
        "--flaky", "kind", "--poison-every", "10", "--max-spout-pending", "50", "--json",
    )  # fmt: skip
    found = run.result()
    assert run.process.returncode == 0, run.errors.read_text()
    assert found["lines"] == 101
    ledger = open_ledger(Store(server.url), "own", create=False)
    letters = ledger.run(dead_letters.page(ledger.core)).letters
    assert letters
    assert {letter.attempts for letter in letters} == {3}
    assert ledger.counters()["failed"] == 100 + 2 * len(letters)
    assert found["words"] == (100 - len(letters)) * len(words("line of the flaky kind"))
    again = start_again(run, "--url", server.url, "--topology", "own", "--lines", "1")
    assert again.returncode == 1
    assert "has a topology 'own' already" in again.stderr
    again = start_again(run, "--url", server.url, "--wait-fsync", "1")
    assert again.returncode == 3
    assert "WAITAOF" in again.stderr, "a server without an append-only file has nothing to wait for"
    again = start_again(run, "--wait-replicas", "17")
    assert again.returncode == 2
    assert again.stderr == "acker: wait_replicas: expected int from 0 to 16, got 17\n"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        again = start_again(run, "--port", port)
    assert again.returncode == 2
    assert again.stderr == f"acker: --port {port}: Address already in use\n"
    run.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_words_in_files_are_all_counted_and_failed_lines_are_replayed(start: Start) -> None:
    run = start("--transport", "parquet", "--lines", "500", "--poison-every", "50", "--json")
    found = run.result()
    assert run.process.returncode == 0, run.errors.read_text()
    assert found["check"] == {"ok": True, "problems": []}
    assert found["lines"] == 500
    run.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_words_go_by_a_topic_of_kafka_where_a_broker_answers_and_spark_has_its_connector(
    start: Start, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = start_again(None, "--transport", "kafka://127.0.0.1:1")
    assert again.returncode == 1
    assert "--transport kafka://127.0.0.1:1: no broker answers there: " in again.stderr
    root = tmp_path_factory.getbasetemp()
    with kafka.broker((root.parent if root.name.startswith("popen-") else root) / "kafka") as broker:
        jars = kafka.connector()
        if jars is None or not broker.real:
            pytest.skip("no Maven to fetch Kafka with (apt-get install maven)")
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {','.join(map(str, jars))} pyspark-shell")
        run = start(
            "--transport", f"kafka://{broker.servers}", "--lines", "500", "--poison-every", "50", "--json"
        )
        found = run.result()
        assert run.process.returncode == 0, run.errors.read_text()
        assert found["check"] == {"ok": True, "problems": []}
        assert found["lines"] == 500
        assert broker.end(f"acker-{found['topology']}") > 0
    run.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_signal_while_it_starts_ends_all_processes_and_files(start: Start) -> None:
    run = start("--lines", "0")
    wait_until(lambda: run.said("two Spark applications are starting"), timeout=400)
    wait_until(lambda: len(run.processes()) >= 4, timeout=180)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(180) == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in run.errors.read_text()
    run.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_processes_end_when_the_first_is_killed_and_the_next_run_removes_its_files(start: Start) -> None:
    run = start("--lines", "0")
    wait_until(lambda: run.said(READY), timeout=400)
    run.process.kill()
    wait_until(lambda: not run.processes(), timeout=180, interval=0.2)
    assert any(run.temporary.iterdir())
    assert "did not answer" in start_again(run, "--url", "redis://127.0.0.1:1/0").stderr
    run.assert_nothing_is_left()


def start_again(run: Run | None, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **({} if run is None else {"TMPDIR": str(run.temporary)})}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "demo", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
