"""The fixtures of `acker.testing`, in a pytest of their own, as who asks for them runs them."""

import subprocess
import sys
from pathlib import Path

TESTS = """
from acker import Topology
from acker.collectors.topology import Topology as Opened

def test_a_bolt(acker_topology: Opened, acker_url: str) -> None:
    spout, bolt = acker_topology.spout("lines"), acker_topology.basic_bolt("upper")
    seen = []

    @bolt
    def upper(collector, line):
        seen.append(line.upper())

    [tuple_] = spout.emit("m1")
    upper(tuple_, "a")
    [outcome] = spout.outcomes(timeout=10.0)
    assert (outcome.status, seen) == ("acked", ["A"])
    spout.emit("m2")
    acker_topology.flush()
    for _ in range(3):
        acker_topology.tick(force=True)
    assert {one.status for one in spout.outcomes(timeout=10.0)} == {"expired"}
    with Topology(acker_url, "test") as again:
        assert again.counters()["tracked"] == 2

def test_another_test_has_a_store_of_its_own(acker_topology: Opened) -> None:
    assert acker_topology.counters()["tracked"] == 0
"""


def test_a_plain_bolt_is_tested_on_a_store_of_its_own_without_spark(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["acker.testing"]\n')
    (tmp_path / "test_own.py").write_text(TESTS)
    program = f"""
import sys, pytest
status = pytest.main(["-q", "-W", "error", "-p", "no:asyncio", {str(tmp_path)!r}])
assert status == 0, status
assert "pyspark" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_bolt_can_be_tried_without_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; from acker.testing import run_bolt; print(run_bolt)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
