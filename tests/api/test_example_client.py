"""The example client in TypeScript, on Node, against a real service that is restarted meanwhile."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from acker.inspect.topology.totals import totals
from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.faces.api import OPERATE, TOKENS, serving
from tests.helpers.servers.servers import wait_until

ROOT = Path(__file__).parents[2]
BUILD = [sys.executable, str(ROOT / "dashboard" / "build.py")]


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """The command that runs it, compiled."""
    subprocess.run([*BUILD, "install"], check=True)
    subprocess.run([*BUILD, "npm", "run", "--silent", "examples", "--", "--outDir", tmp_path], check=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return [*BUILD, "node", str(tmp_path / "spout.js")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_spout_in_typescript_hears_of_all_its_lines_and_survives_a_restart(
    valkey_url: str, tmp_path: Path, program: list[str]
) -> None:
    ledger = open_ledger(Store(valkey_url), "lines", ackers=2, message_timeout=60.0)
    settings = {"tokens": TOKENS, "ticker": False, "history": False, "writes_per_second": 1000}
    said = tmp_path / "said"
    with said.open("w") as output, ExitStack() as ending:
        with serving(valkey_url, **settings) as address:  # type: ignore[arg-type]
            run = subprocess.Popen(
                [*program, address, "lines"],
                stdin=subprocess.PIPE,
                stdout=output,
                text=True,
                env={**os.environ, "ACKER_TOKEN": OPERATE},
            )
            ending.callback(run.kill)
            assert run.stdin is not None
            print("the first line\n\nthe third", file=run.stdin, flush=True)
            wait_until(lambda: said.read_text().count("\n") == 3 or run.poll() is not None)
        print("a line while nobody serves\n!", file=run.stdin, flush=True)
        port = int(address.rpartition(":")[2])
        with serving(valkey_url, port=port, **settings):  # type: ignore[arg-type]
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
    assert sum(shard.held for shard in ledger.run(totals(ledger.core)).shards) == 0
