"""`acker serve` and `uvicorn api.app:app`, as processes."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import trustme

from acker.collectors.topology import Topology
from acker.embedded import EmbeddedServer
from acker.ledger.client import open_ledger
from acker.store import function_keys
from acker.store.client import Store
from acker.store.operation import command
from tests.helpers.builders.counting import counting
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces import patient
from tests.helpers.faces.serve import CLI, running
from tests.helpers.servers.servers import wait_until

# The first to serve builds the dashboard, where that is not done.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def refused(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [*CLI, "serve", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=patient.SECONDS,
        env={**os.environ, "ACKER_URL": "", **environment},
        check=False,
    )
    assert done.returncode in (2, 3)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return line


def test_it_brings_its_own_store_ticks_and_ends_in_time_with_open_streams() -> None:
    with running("--embedded", ACKER_URL="") as service:
        assert patient.get(f"{service.address}/readyz").status_code == 200
        url = service.log.read_text().split("store ")[1].split(",")[0]
        ledger = open_ledger(Store(url), "words", message_timeout=1.0, ackers=1)
        Trees(5).track(ledger)
        path = f"{service.address}/api/v1/topologies/words"
        wait_until(lambda: patient.get(path).json()["counters"]["expired"] == 5)
        with patient.stream("GET", f"{path}/events") as answer:
            lines = answer.iter_lines()
            while not next(lines).startswith("event: sample"):
                pass
            service.process.send_signal(signal.SIGTERM)
            for _ in lines:
                pass  # the stream comes to its end, and is not cut: httpx would raise
        assert service.process.wait(60) == 0
        assert "exceeded" not in service.log.read_text()  # uvicorn, of its time for requests to end


def test_calls_that_wait_are_told_where_to_ask_again_when_it_ends(valkey_url: str) -> None:
    topology = Topology(valkey_url, "t", ackers=1)
    counting().register(topology)  # nobody works on it
    waiting = [command("HLEN", function_keys.Function("t", "count").calls)]
    with running("--url", valkey_url) as service, ThreadPoolExecutor(1) as threads:
        path = f"{service.address}/api/v1/drpc/count"
        call = threads.submit(patient.post, path, json={"args": 3, "wait": 300})
        wait_until(lambda: topology.ledger.store.send(waiting) == [1])
        assert service.end(signal.SIGTERM) == 0
        answer = call.result()
        assert answer.status_code == 202
        assert answer.headers["Location"] == f"/api/v1/drpc/count/{answer.json()['request']}"
        assert "exceeded" not in service.log.read_text()


def test_logs_are_json_lines_and_hold_no_secret(new_server: Callable[..., EmbeddedServer]) -> None:
    url = new_server().url
    token = "a-token-of-an-operator"
    with running("--url", url, ACKER_TOKENS=f"operate:{token}", ACKER_LOG_LEVEL="debug") as service:
        path = f"{service.address}/api/v1/topologies/x%0a%22y/fail"
        patient.post(path, headers={"Authorization": f"Bearer {token}"}, json={"anchors": ["1"]})
        for query in (
            f"token={token}",
            f"limit=1&access%5Ftoken={token}",
            f"X-Pass%77ord={token}&TOKEN={token}",
        ):
            assert patient.get(f"{service.address}/api/v1/topologies?{query}").status_code == 401
        assert service.end(signal.SIGINT) == 130
        log = service.log.read_text()
    records = [json.loads(line) for line in log.splitlines()]
    [request] = [record for record in records if record.get("path") == '/api/v1/topologies/x\n"y/fail']
    assert (request["status"], request["method"]) == (422, "POST")
    queries = [record["query"] for record in records if "query" in record]
    assert queries == ["token=...", "limit=1&access%5Ftoken=...", "X-Pass%77ord=...&TOKEN=..."]
    assert token not in log


def test_the_log_tells_changes_and_refusals(new_server: Callable[..., EmbeddedServer]) -> None:
    url = new_server().url
    ledger = open_ledger(Store(url), "words", ackers=1)
    trees = Trees(30).track(ledger)
    anchors = [str(anchor) for anchor in trees.anchors]
    ann = {"Authorization": "Bearer the-token-of-ann"}
    with running("--url", url, ACKER_TOKENS="ann=operate:the-token-of-ann") as service:
        path = f"{service.address}/api/v1/topologies/words"
        patient.post(f"{path}/fail", json={"anchors": anchors, "reason": "by ann"}, headers=ann)
        message = {"type": "ack", "anchor": anchors[3], "value": "1"}
        patient.post(f"{path}/messages", json={"messages": [message] * 3}, headers=ann)
        forged = {"X-Forwarded-For": "203.0.113.9", "Authorization": "Bearer wrong-wrong-wrong-wrong"}
        assert patient.get(path, headers=forged).status_code == 401
        assert patient.delete(f"{path}?force=true", headers=ann).status_code == 200
        assert service.end(signal.SIGINT) == 130
        reported = [json.loads(line) for line in service.log.read_text().splitlines()]
    fail, messages, refused, removal = (record for record in reported if record["logger"] == "api.requests")
    assert (fail["client"], fail["reason"], fail["trees"]) == ("ann", "by ann", 30)
    assert fail["anchors"] == anchors[:20]
    assert (messages["messages"], messages["trees"]) == ({"ack": 3}, 1)
    assert (refused["status"], refused["client"], refused["level"]) == (401, "127.0.0.1", "warning")
    assert (removal["method"], removal["query"], removal["level"]) == ("DELETE", "force=true", "info")


def test_a_log_of_text_names_author_and_refusal_too(new_server: Callable[..., EmbeddedServer]) -> None:
    url = new_server().url
    open_ledger(Store(url), "words", ackers=1)
    tokens = "ann=operate:the-token-of-ann bob=read:the-token-of-bob"
    with running("--url", url, ACKER_TOKENS=tokens, ACKER_LOG_FORMAT="text") as service:
        path = f"{service.address}/api/v1/topologies/words/mutes/failing"
        for name, status in (("ann", 200), ("bob", 403)):
            headers = {"Authorization": f"Bearer the-token-of-{name}"}
            assert patient.put(path, json={"reason": "a bad file"}, headers=headers).status_code == status
        assert service.end(signal.SIGINT) == 130
        lines = [line for line in service.log.read_text().splitlines() if "api.requests" in line]
    assert ['client="ann"' in lines[0], 'action="mute"' in lines[0]] == [True, True]
    assert ["WARNING" in lines[1], 'client="bob"' in lines[1]] == [True, True]


def test_it_speaks_tls_by_its_certificate(new_server: Callable[..., EmbeddedServer], tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "service.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    trust = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    words = ("--ssl-certfile", str(certificate), "--ssl-keyfile")
    with running("--url", new_server().url, *words, str(key)) as service:
        assert service.address.startswith("https://127.0.0.1:")
        with httpx.Client(base_url=service.address, verify=trust, timeout=patient.SECONDS) as client:
            assert client.get("/readyz").status_code == 200
            assert client.get("/api/v1/topologies").status_code == 200
        assert service.end(signal.SIGTERM) == 0
    assert "expected PEM files" in refused("--embedded", *words, str(certificate))
    assert "goes with --ssl-certfile" in refused("--embedded", "--ssl-keyfile", str(key))


def test_only_a_named_proxy_is_believed(new_server: Callable[..., EmbeddedServer]) -> None:
    url = new_server().url
    with running("--url", url, ACKER_PROXIES="127.0.0.1", ACKER_LOG_LEVEL="debug") as service:
        patient.get(f"{service.address}/healthz", headers={"X-Forwarded-For": "203.0.113.9"})
        assert service.end(signal.SIGINT) == 130
        assert '"client": "203.0.113.9"' in service.log.read_text()


def test_a_log_that_nobody_reads_does_not_hold_the_service_up(valkey_url: str) -> None:
    with (
        running("--url", valkey_url, stderr=subprocess.PIPE, ACKER_LOG_LEVEL="debug") as service,
        httpx.Client(base_url=service.address, timeout=patient.SECONDS) as client,
    ):
        for _ in range(200):  # a pipe takes some 60 of these lines
            assert client.get(f"/api/v1/{'x' * 1000}").status_code == 404
        assert service.end(signal.SIGTERM) == 0


def test_what_is_missing_is_said_in_one_line() -> None:
    assert "no store" in refused()
    away = refused("--url", "redis://:hidden@127.0.0.1:1/0", ACKER_TIMEOUT="0.3")
    assert "did not answer" in away
    assert "hidden" not in away
    assert "ACKER_TOKENS" in refused("--embedded", "--host", "0.0.0.0")
    assert "ACKER_TOKENS: " in refused("--embedded", ACKER_TOKENS="operate:short")


def test_a_port_that_is_taken_ends_it(valkey_url: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        done = subprocess.run(
            [*CLI, "serve", "--url", valkey_url, "--port", str(listener.getsockname()[1])],
            capture_output=True,
            text=True,
            timeout=patient.SECONDS,
            check=False,
        )
    assert done.returncode == 2
    assert "Address already in use" in done.stderr


@pytest.mark.parametrize("stop", [signal.SIGTERM])
def test_uvicorn_runs_the_app_by_itself(valkey_url: str, stop: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "api.app:app", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ACKER_URL": valkey_url, "ACKER_LOG_FORMAT": "text"},
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "running on " in line)
        address = line.split("running on ")[1].split(" ")[0].strip()
        assert patient.get(f"{address}/api/v1/topologies").json()["topologies"] == []
        process.send_signal(stop)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()


def test_what_it_is_made_of_is_no_work_for_the_garbage_collector(valkey_url: str) -> None:
    reported = subprocess.run(
        [sys.executable, "-c", "import gc, api.app; print(gc.get_freeze_count(), len(gc.get_objects()))"],
        env={**os.environ, "ACKER_URL": valkey_url},
        capture_output=True,
        text=True,
        check=True,
        timeout=patient.SECONDS,
    )
    frozen, left = map(int, reported.stdout.split())
    assert frozen > 20 * left


def test_it_keeps_answering_while_the_store_is_away(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server()
    open_ledger(Store(server.url), "words", ackers=1)
    with ExitStack() as stack:
        service = stack.enter_context(running("--url", server.url, ACKER_TIMEOUT="3"))
        address, path = service.address, f"{service.address}/api/v1/topologies/words"

        def status(suffix: str = "") -> int:
            return patient.get(path + suffix).status_code

        wait_until(lambda: status() == 200)
        live = stack.enter_context(patient.stream("GET", f"{path}/events"))
        samples = (line for line in live.iter_lines() if line == "event: sample")
        assert next(samples)
        server.kill()
        answer = patient.get(path)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:acker:store-unavailable")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["content-type"] == "application/problem+json"
        open_paths = ("/healthz", "/livez", "/t/words")
        assert [patient.get(address + open_path).status_code for open_path in open_paths] == [200] * 3
        with ThreadPoolExecutor() as threads:
            found = threads.map(status, ("/trees", "/stats", "/outcomes", "/events"))
            assert list(found) == [503] * 4
        assert patient.get(f"{address}/readyz").status_code == 503
        server.restart()
        wait_until(lambda: status() == 200)
        assert patient.get(f"{address}/readyz").status_code == 200
        before = len(patient.get(f"{path}/stats").json()["at"])
        wait_until(lambda: len(patient.get(f"{path}/stats").json()["at"]) > before)
        assert next(samples)  # the stream lived through it
