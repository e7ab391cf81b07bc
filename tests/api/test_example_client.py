"""The example clients in TypeScript, on Node, against a real service: it is restarted, or they are killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from acker import Topology
from acker.inspect.topology.totals import totals
from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.faces import patient
from tests.helpers.faces.api import OPERATE, TOKENS, serving
from tests.helpers.servers.servers import wait_until

ROOT = Path(__file__).parents[2]
BUILD = [sys.executable, str(ROOT / "dashboard" / "build.py")]
SETTINGS = {"tokens": TOKENS, "ticker": False, "history": False, "writes_per_second": 1000}
ENVIRONMENT = {**os.environ, "ACKER_TOKEN": OPERATE}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the examples, compiled."""
    folder = tmp_path_factory.mktemp("examples")
    subprocess.run([*BUILD, "install"], check=True)
    subprocess.run([*BUILD, "npm", "run", "--silent", "examples", "--", "--outDir", folder], check=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_a_spout_in_typescript_hears_of_all_its_lines_and_survives_a_restart(
    valkey_url: str, tmp_path: Path, programs: Path
) -> None:
    ledger = open_ledger(Store(valkey_url), "lines", ackers=2, message_timeout=60.0)
    said = tmp_path / "said"
    with said.open("w") as output, ExitStack() as ending:
        with serving(valkey_url, **SETTINGS) as address:  # type: ignore[arg-type]
            run = subprocess.Popen(
                [*BUILD, "node", str(programs / "spout.js"), address, "lines"],
                stdin=subprocess.PIPE,
                stdout=output,
                text=True,
                env=ENVIRONMENT,
            )
            ending.callback(run.kill)
            assert run.stdin is not None
            print("the first line\n\nthe third", file=run.stdin, flush=True)
            wait_until(lambda: said.read_text().count("\n") == 3 or run.poll() is not None)
        print("a line while nobody serves\n!", file=run.stdin, flush=True)
        port = int(address.rpartition(":")[2])
        with serving(valkey_url, port=port, **SETTINGS):  # type: ignore[arg-type]
            run.stdin.close()
            assert run.wait(120) == 0
    assert sorted(said.read_text().splitlines()) == [
        "line 1 acked",
        "line 2 failed Error: no words",
        "line 3 acked",
        "line 4 acked",
        "line 5 failed Error: no words",
    ]
    counts = ledger.counters()
    assert (counts["tracked"], counts["acked"], counts["failed"]) == (5, 3, 2)
    assert sum(shard.outstanding for shard in ledger.run(totals(ledger.core)).shards) == 0


class Forwarding(ThreadingHTTPServer):
    """Forwards requests to a service, and kills the client at one of them: before it is sent, or answered."""

    def __init__(self, service: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = httpx.Client(base_url=service, timeout=patient.SECONDS)
        self.victim: subprocess.Popen[str] | None = None
        self.at: tuple[str, str] = ("", "")
        self.spared = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def kill(self, path: str, moment: str) -> bool:
        """Kills the client if this is the moment of its death; so many moments before it are `spared`."""
        if self.victim is None or (path.rpartition("/")[2], moment) != self.at:
            return False
        self.spared -= 1
        if self.spared >= 0:
            return False
        os.killpg(self.victim.pid, signal.SIGKILL)
        self.victim.wait()
        return True


class _Handler(BaseHTTPRequestHandler):
    def _forward(self) -> None:
        server = self.server
        assert isinstance(server, Forwarding)
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if server.kill(self.path, "before"):
            return
        kept = {name: self.headers[name] for name in ("Authorization", "Content-Type", "Idempotency-Key")}
        answer = server.service.request(self.command, self.path, content=content, headers=kept)
        assert answer.status_code < 300, answer.text
        if server.kill(self.path, "after"):
            return
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_PUT = do_POST = _forward  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def forwarding(service: str) -> Iterator[Forwarding]:
    with Forwarding(service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.service.close()


def test_a_step_in_typescript_may_be_killed_between_any_two_calls(
    valkey_url: str, tmp_path: Path, programs: Path
) -> None:
    topology = Topology(valkey_url, "files", ackers=2, message_timeout=60.0, linger=None)
    topology.incoming("lines", subscription="split")

    def run(address: str, folder: Path, role: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*BUILD, "node", str(programs / "external.js"), address, "files", str(folder), role],
            text=True, env=ENVIRONMENT | {"ACKER_ONCE": "1"}, start_new_session=True,
        )  # fmt: skip

    calls = [(call, moment) for call in ("rows", "stamps", "commits") for moment in ("before", "after")]
    moments = [("split", 0, at) for at in calls]
    # In its second batch: the counts of the first are noted.
    moments += [("count", 1, at) for at in (calls[0], *calls[-2:])]
    with serving(valkey_url, **SETTINGS) as address, forwarding(address) as forwarded:  # type: ignore[arg-type]
        for number, moment in enumerate(moments, 1):
            victim, forwarded.spared, forwarded.at = moment
            folder = tmp_path / str(number)
            folder.mkdir()
            texts = ["two words", "...", "one " * (1 + 150 * forwarded.spared), "the last line"]
            write_lines(topology, folder / "lines.jsonl", texts)
            if victim == "count":
                assert run(address, folder, "split").wait(60) == 0
            forwarded.victim = run(forwarded.address, folder, victim)
            assert forwarded.victim.wait(60) == -signal.SIGKILL, moment
            for role in ("split", "count", "count"):
                assert run(address, folder, role).wait(60) == 0, moment
            counts = topology.counters()
            assert (counts["acked"], counts["failed"]) == (3 * number, number), moment
            rows = map(json.loads, (folder / "words.jsonl").read_text().splitlines())
            counted = json.loads((folder / "count.json").read_text())["counts"]
            assert set(counted) == {"two", "words", "one", "the", "last", "line"}
            assert counted == Counter(row["text"] for row in rows), moment
    for _ in range(6):
        topology.tick(force=True)
    assert topology.counters()["expired"] == 0
    topology.close()


def write_lines(topology: Topology, file: Path, texts: list[str]) -> None:
    """Rows of a spout in Python, as the example has them in its files."""
    spout, out = topology.spout("python"), topology.outgoing("lines")
    rows: list[dict[str, Any]] = []
    for text in texts:
        [tracked] = spout.emit(f"{file.parent.name} {text}")
        rows.append({"text": text, "stamp": out.stamp(tracked)})
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    topology.flush()


def test_the_steps_in_typescript_check_themselves(valkey_url: str, tmp_path: Path, programs: Path) -> None:
    with serving(valkey_url, **SETTINGS) as address:  # type: ignore[arg-type]
        run = subprocess.run(
            [*BUILD, "node", str(programs / "external.js"), address, "files", str(tmp_path / "q"), "--check"],
            capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False,
        )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "30 records have their outcome\n"), run.stderr
