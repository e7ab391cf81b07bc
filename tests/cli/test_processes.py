"""The command line as real processes."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acker.embedded import EmbeddedServer
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from tests.helpers.faces.cli import track
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

# Real processes


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts `acker` as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", "from acker.cli import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Unbuffered, Python takes a write that was cut short for a whole one.
            env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_program_is_installed(ledger: Ledger) -> None:
    program = Path(sys.executable).parent / "acker"
    run = subprocess.run(
        [program, "stats", "words", "--json"],
        env={**os.environ, "ACKER_URL": ledger.store.url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout)["topology"] == "words"


@pytest.mark.parametrize(
    "words", [("lines", "words"), ("stats", "words", "--json"), ("drpc", "list"), ("--help",), ("--version",)]
)
@pytest.mark.parametrize(
    ("where", "status", "said"),
    [(">/dev/full", 5, "acker: [Errno 28] No space left on device\n"), (">&-", 0, "")],
)
def test_output_that_cannot_be_written_is_told_in_a_line(
    ledger: Ledger, words: tuple[str, ...], where: str, status: int, said: str
) -> None:
    program = shlex.join([sys.executable, "-c", "from acker.cli import main; main()", *words])
    run = subprocess.run(
        f"{program} {where}",
        shell=True,
        env={**os.environ, "ACKER_URL": ledger.store.url},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (status, said)


def test_a_closed_pipe_ends_quietly(ledger: Ledger, start: Callable[..., "subprocess.Popen[str]"]) -> None:
    for _ in range(3):
        track(ledger, *["x" * 1000] * 300)
    process = start("trees", "words", "--limit", "1000", "--json", ACKER_URL=ledger.store.url)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(30) == 5


def test_the_ticker_is_a_process_that_ticks_and_stops_when_reported(
    url: str, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    ledger = open_ledger(Store(url), "brief", ackers=2, message_timeout=1.0)
    track(ledger, "a")
    process = start("tick", "--json", "brief", ACKER_URL=url)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "ticking brief" in process.stderr.readline()
    assert json.loads(process.stdout.readline())["topology"] == "brief"
    wait_until(lambda: ledger.counters()["expired"] == 1, timeout=60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_a_signal_that_another_thread_gets_stops_the_command() -> None:
    program = """
import signal, threading, time
from acker.cli.shared.stopping import stop_on_signals, wait_until
stop = stop_on_signals()
signals = lambda: (time.sleep(0.2), signal.pthread_kill(threading.get_ident(), signal.SIGINT), time.sleep(60))
threading.Thread(target=signals, daemon=True).start()
wait_until(stop)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_a_ticker_of_no_topology_says_so(url: str, start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start("tick", "nobody", ACKER_URL=url)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (4, "acker: the store holds no topology 'nobody'\n")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_server_runs_until_it_is_stopped_and_keeps_its_data(
    tmp_path: Path, start: Callable[..., "subprocess.Popen[str]"], how: signal.Signals
) -> None:
    for times in range(2):
        process = start("server", "--port", "0", "--dir", str(tmp_path / "data"))
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        store = Store(url)
        ledger = open_ledger(store, "kept", ackers=1)
        assert ledger.counters()["tracked"] == times
        track(ledger, "a")
        process.send_signal(how)
        assert process.wait(30) == (130 if how == signal.SIGINT else 0)


def test_a_dead_server_ends_a_command(tmp_path: Path, start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start("server", "--port", "0", "--json", "--no-append-only", "--dir", str(tmp_path))
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        text += process.stdout.readline()
    reported = json.loads(text)
    os.kill(reported["pid"], signal.SIGKILL)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 3
    assert re.fullmatch(r"acker: the server ended by itself[^\n]+\n", error)


def test_a_taken_port_is_one_line(
    tmp_path: Path, server: EmbeddedServer, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    process = start("server", "--port", str(server.port), "--dir", str(tmp_path))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error == f"acker: --port {server.port}: Address already in use\n"


def test_without_its_extra_the_command_line_names_it(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    program = """
import sys
sys.modules["typer"] = None
from acker.cli import main
main()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "acker: the command line is not installed: install acker with its extra 'cli'\n"


def test_an_interruption_while_the_command_line_is_still_loading_says_nothing() -> None:
    interrupted = "import builtins, sys; from acker.cli import main; load = builtins.__import__\n"
    interrupted += "def stop(name, *how):\n    if name == 'acker.cli.app': raise KeyboardInterrupt\n"
    interrupted += "    return load(name, *how)\nbuiltins.__import__ = stop; main(['demo'])"
    run = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")
