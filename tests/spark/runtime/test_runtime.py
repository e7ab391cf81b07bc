"""Settings that acker recommends, and drivers and executors of different versions of acker."""

import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from acker.spark import Collector, bolt, tuned
from acker.spark.runtime.pickling import Shipped, version
from acker.spark.runtime.tuning import PIP_WORKERS, settings
from tests.helpers.builders.pipeline import Pipeline


def test_what_is_set_on_the_builder_afterwards_wins() -> None:
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    builder = tuned(SparkSession.Builder())

    assert builder._options[name] == str(2**31 - 1)
    assert builder.config(name, "64m")._options[name] == "64m"


def test_a_query_with_all_settings_works_and_goes_on_from_its_checkpoint(
    spark: SparkSession, pipeline: Pipeline, valkey_url: str, tmp_path: Path
) -> None:
    @bolt(url=valkey_url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="copies")

    chosen = settings(local_checkpoints=True)
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        for part in (["a", "b"], ["c"]):
            pipeline.spout(part)
            pipeline.run("copying", "lines", copy)
    finally:
        for name in chosen:
            spark.conf.unset(name)

    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == ["a", "b", "c"]
    assert sorted(path.name for path in (tmp_path / "copying" / "commits").glob("[0-9]*")) == ["0", "1"]


@pytest.mark.parametrize("version", ["same", "other"])
def test_a_worker_takes_installed_packages_unless_the_zips_differ(tmp_path: Path, version: str) -> None:
    installed = Path(pyspark.__file__).parent
    home = installed if version == "same" else tmp_path / "pyspark"
    library = home / "python" / "lib"
    if version == "other":
        (home / "jars").mkdir(parents=True)
        library.mkdir(parents=True)
        with zipfile.ZipFile(library / "pyspark.zip", "w") as packed:
            packed.writestr("pyspark/__init__.py", "")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.custom = 'its own'")
    mine = PIP_WORKERS["spark.executorEnv.PYTHONPATH"]
    before = [library / "pyspark.zip", library / "py4j-1-src.zip", home / "jars" / "spark-core.jar"]

    reported = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, pyspark; print(sys.custom, *sys.path, pyspark.__file__, sep='\\n')",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*before, mine, tmp_path]))},
        capture_output=True,
        text=True,
        check=True,
    )

    custom, *path, found = reported.stdout.splitlines()
    assert custom == "its own"
    assert mine not in path
    assert str(tmp_path) in path
    assert [str(entry) in path for entry in before] == [version == "other"] * 3
    assert (found == str(installed / "__init__.py")) == (version == "same")


def test_workers_of_the_tests_take_the_installed_spark(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [pyspark.__file__]})

    [row] = spark.range(1).mapInArrow(where, "path string").collect()
    assert row["path"] == pyspark.__file__


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
        script.write("return 'another version'\n")
    reported = unpack(packed, tmp_path, ROOT).stderr.decode()
    assert f"VersionMismatch: the driver runs acker {version()}, this executor on " in reported
    assert "give both the same wheel" in reported


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_need_the_wheel_of_the_driver(pipeline: Pipeline, wheel: Path, tmp_path: Path) -> None:
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

    def run(files: Path, *more: str) -> "subprocess.CompletedProcess[str]":
        """Runs a driver of its own (tests/helpers/faults/driver.py) whose executors get these files."""
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_SUBMIT_ARGS": " ".join(["--py-files", str(files), *more, "pyspark-shell"]),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("PYTHONPATH", None)
        program = [sys.executable, "-m", "tests.helpers.faults.driver", "--url", pipeline.url]
        options = ["--checkpoint", str(tmp_path / "checkpoint"), "--master", "local-cluster[1,1,1024]"]
        return subprocess.run(
            [*program, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    pipeline.spout(["a b"] * 100, segments=2)
    failed = run(other, "--conf", "spark.task.maxFailures=1")  # another attempt would find no other wheel
    assert f"VersionMismatch: the driver runs acker {version()}, this executor on " in failed.stderr
    assert pipeline.rows("words") == []
    done = run(zipped)
    assert done.returncode == 0, done.stderr
    assert len(pipeline.rows("words")) == 200
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 100, "acked": 100}
