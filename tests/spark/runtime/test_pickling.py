"""A driver and executors of different versions of acker are distinguished from other trouble."""

import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from acker.spark.runtime.pickling import Shipped, version
from tests.helpers.builders.pipeline import Pipeline

ROOT = Path(__file__).parents[3]
UNPACK = "import pickle, sys; print(pickle.load(sys.stdin.buffer).value)"


class Thing(Shipped):
    def __init__(self, value: int) -> None:
        self.value = value


def unpack(packed: bytes, *folders: Path) -> "subprocess.CompletedProcess[bytes]":
    """Unpacks in a process that finds acker in the first folder."""
    environment = {"PYTHONPATH": ":".join(map(str, folders))}
    return subprocess.run(
        [sys.executable, "-c", UNPACK],
        cwd=folders[0],
        input=packed,
        env=environment,
        capture_output=True,
        check=False,
    )


def test_only_the_same_version_unpacks_what_was_packed(tmp_path: Path) -> None:
    packed = pickle.dumps(Thing(7))
    assert pickle.loads(packed).value == 7
    assert unpack(packed, ROOT).stdout.split() == [b"7"]
    for folder in ("acker", "lua"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert unpack(packed, tmp_path, ROOT).stdout.split() == [b"7"]
    with (tmp_path / "lua" / "ledger" / "calls" / "track.lua").open("a") as script:
        script.write("-- another version\n")
    reported = unpack(packed, tmp_path, ROOT).stderr.decode()
    assert f"VersionMismatch: the driver runs acker {version()}, this executor on " in reported
    assert "give both the same wheel" in reported


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_without_acker_need_its_wheel_and_tell_when_it_is_another(
    pipeline: Pipeline, wheel: Path, tmp_path: Path
) -> None:
    zipped = tmp_path / "acker.zip"  # Spark takes no other name
    shutil.copy(wheel, zipped)
    other = tmp_path / "other.zip"
    shutil.copy(wheel, other)
    with zipfile.ZipFile(other, "a") as archive:
        archive.writestr("acker/spark/another.py", "another = True")
    # All packages but acker, which is installed as a path to the checkout: a .pth file, which -S leaves out.
    python = tmp_path / "python"
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    alone = subprocess.run(
        [python, "-c", "import redis, acker"], cwd=tmp_path, capture_output=True, check=False
    )
    assert b"No module named 'acker'" in alone.stderr

    def run(files: Path) -> "subprocess.CompletedProcess[str]":
        """Runs a driver of its own (tests/helpers/faults/driver.py) whose executors get these files."""
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_SUBMIT_ARGS": f"--py-files {files} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("PYTHONPATH", None)
        program = [sys.executable, "-m", "tests.helpers.faults.driver", "--url", pipeline.url]
        more = ["--checkpoint", str(tmp_path / "checkpoint"), "--master", "local-cluster[2,1,1024]"]
        return subprocess.run(
            [*program, *more], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    pipeline.spout(["a b"] * 100, segments=2)
    failed = run(other)
    assert f"VersionMismatch: the driver runs acker {version()}, this executor on " in failed.stderr
    assert pipeline.rows("words") == []
    done = run(zipped)
    assert done.returncode == 0, done.stderr
    assert len(pipeline.rows("words")) == 200
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 100, "acked": 100}
