"""The settings that acker recommends: Spark knows them, and a query does its work with them."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from acker.spark import Collector, bolt, tuned
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
def test_a_worker_takes_the_installed_packages_unless_the_zips_are_of_another_spark(
    tmp_path: Path, version: str
) -> None:
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
