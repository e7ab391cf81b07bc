"""Programs end within ten seconds when told to, also where the store has 200 topologies and is silent."""

import signal
import subprocess
import sys

import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.faces.serve import CLI
from tests.helpers.faults.proxy import proxied, silent

pytestmark = pytest.mark.slow

WITHIN = 10
"""Seconds; the store's own time-out is far longer."""
WORK = """
import sys
from acker.cli.shared.stopping import stop_on_signals, wait_until
from acker.ledger.client import open_ledger
from acker.lines import Gather, Line
from acker.store.client import Store
stop = stop_on_signals()
line = Line(open_ledger(Store(sys.argv[1], timeout=60.0), "t0"), "line", [Gather("waiting")])
line.step("pass", reads="rows")(lambda row, out: None)
with line.work(threads=4):
    print("it works", flush=True)
    wait_until(stop)
sys.exit(stop.status)
"""
SETTLE = """
import sys
from acker.cli.shared.stopping import stop_on_signals, wait_until
from acker.spark import settling
stop = stop_on_signals()
with settling(url=sys.argv[1], topology="t0"):
    print("it works", flush=True)
    wait_until(stop)
sys.exit(stop.status)
"""
PROGRAMS = {
    "tick": (*CLI, "tick", "--timeout", "60", "--url"),
    "serve": (*CLI, "serve", "--port", "0", "--url"),
    "work": (sys.executable, "-c", WORK),
    "settle": (sys.executable, "-c", SETTLE),
}


@pytest.mark.parametrize(
    ("program", "by"),
    [
        *((program, signal.SIGTERM) for program in PROGRAMS),
        *((name, signal.SIGINT) for name in ("tick", "serve")),
    ],
)
def test_a_program_ends_when_it_is_told_to_though_the_store_is_silent(
    valkey_url: str, program: str, by: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACKER_TIMEOUT", "60")
    for number in range(200):
        open_ledger(Store(valkey_url), f"t{number}", ackers=1)
    with proxied(valkey_url) as proxy:
        words = [*PROGRAMS[program], proxy.url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                told = process.stderr if program == "tick" else process.stdout
                assert told is not None
                assert told.readline()
                with silent(proxy) as asked:
                    assert asked.wait(60)
                    process.send_signal(by)
                    assert process.wait(WITHIN) in (0, 128 + by)
            finally:
                process.kill()
