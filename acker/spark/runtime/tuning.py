"""Spark's settings that matter to jobs that hand records to each other."""

from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

_STREAMING = "org.apache.spark.sql.execution.streaming"
PIP_WORKERS = {"spark.executorEnv.PYTHONPATH": str(Path(__file__).parent / "startup")}
"""What lets workers start sooner; see `tuned`."""


def settings(*, local_checkpoints: bool = False, pip_workers: bool = False) -> dict[str, str]:
    """What `tuned` sets: name -> value."""
    found = {
        # Otherwise Spark adds up the size of an Arrow batch anew after each row: much of the time that it
        # takes to hand rows to Python, the more the more columns they have. Its 10,000 rows are a limit, too.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    }
    if local_checkpoints:
        # Spark's own choice runs `chmod` for each file, several for each micro-batch.
        package = _STREAMING if pyspark.__version__.startswith("4.0.") else f"{_STREAMING}.checkpointing"
        manager = f"{package}.FileSystemBasedCheckpointFileManager"
        found["spark.sql.streaming.checkpointFileManagerClass"] = manager
    if pip_workers:
        found |= PIP_WORKERS
    return found


def tuned(
    builder: SparkSession.Builder, *, local_checkpoints: bool = False, pip_workers: bool = False
) -> SparkSession.Builder:
    """Gives the builder of a session what makes handing records to each other faster, and returns it.

        spark = tuned(SparkSession.builder.appName("split")).getOrCreate()

    What is set on the builder afterwards wins. Not for rows of more than some 100 KB: 10,000 of them are an
    Arrow batch, which is in memory as a whole, and no column of it can have more than 2 GiB.
    local_checkpoints: the queries' checkpoints lie on a local disk. Not for other file systems: there Spark
    would rename a checkpoint's files in a way that may not be atomic.
    pip_workers: the workers' Python has pyspark from pip, as it has in local mode, and acker at the same
    place as here. A query starts a second sooner then (acker/spark/runtime/startup/sitecustomize.py). Sets
    the workers' PYTHONPATH (`spark.executorEnv.PYTHONPATH`), so not where something else does: YARN, for one.
    """
    for name, value in settings(local_checkpoints=local_checkpoints, pip_workers=pip_workers).items():
        builder = builder.config(name, value)
    return builder
