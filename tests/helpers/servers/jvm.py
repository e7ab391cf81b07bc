"""Options with which the JVMs of the tests start faster: a whole run has a hundred of them, or more."""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from acker.embedded.java import Java

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
"""They live for minutes: what they would compile well they hardly use, on cores that they share.

On their standard output, which Spark's own scripts read, they do not even say that an archive does not fit.
"""
_JOB = """
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()

def work(batch, number):
    batch.groupBy("value").count().collect()
    texts = batch.selectExpr("cast(value as string) as text")
    texts.mapInArrow(lambda rows: rows, "text string").collect()

rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
rows.writeStream.foreachBatch(work).trigger(availableNow=True).start().awaitTermination()
session.stop()
"""


def use_archive(java: Java, directory: Path) -> None:
    """Has the JVMs that are started from now on map Spark's classes, which are loaded and checked already.

    directory: where the archive is kept, for later runs, too.
    """
    options = os.environ["JDK_JAVA_OPTIONS"]
    if "-XX:SharedArchiveFile=" not in options:  # this run was not started by one that has it
        archive = _archive(java, directory)
        if archive.stat().st_size:
            os.environ["JDK_JAVA_OPTIONS"] = f'{options} "-XX:SharedArchiveFile={archive}"'


def _archive(java: Java, directory: Path) -> Path:
    """The archive of this Java and this Spark, made once; it is empty where this Java can make none."""
    made_of = [(java.home / "bin" / "java").resolve(), *sorted((_spark() / "jars").iterdir())]
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in made_of]
    archive = directory / f"spark-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in directory.glob("spark-*"):
                old.unlink()
            _make(java, archive)
    return archive


def _spark() -> Path:
    """The folder of pyspark, which few tests need to import."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _make(java: Java, archive: Path) -> None:
    job, new = archive.with_name("job.py"), archive.with_suffix(".new")
    job.write_text(_JOB)
    submit = [_spark() / "bin" / "spark-submit", "--conf", "spark.ui.enabled=false", "--driver-java-options"]
    variables = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(
        [*map(str, submit), f"-XX:ArchiveClassesAtExit={new}", "--master", "local[2]", str(job)],
        cwd=archive.parent,
        env={**os.environ, **variables},
        check=False,  # tests run without it, too
        capture_output=True,
    )
    new.touch()
    new.rename(archive)
