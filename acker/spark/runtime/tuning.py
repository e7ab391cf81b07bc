"""Settings of Spark for jobs that pass records to each other."""

from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

_STREAMING = "org.apache.spark.sql.execution.streaming"
PIP_WORKERS = {"spark.executorEnv.PYTHONPATH": str(Path(__file__).parent / "startup")}
"""Settings that let Python workers start sooner; see `tuned`."""


def settings(*, local_checkpoints: bool = False, pip_workers: bool = False) -> dict[str, str]:
    """Returns the settings of `tuned` by name."""
    options = {
        # Otherwise Spark adds up the size of an Arrow batch anew after each row: much of the time that it
        # takes to hand rows to Python, the more the more columns they have. Its 10,000 rows are a limit, too.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    }
    if local_checkpoints:
        # Spark's own choice runs `chmod` for each file, several for each micro-batch.
        package = _STREAMING if pyspark.__version__.startswith("4.0.") else f"{_STREAMING}.checkpointing"
        manager = f"{package}.FileSystemBasedCheckpointFileManager"
        options["spark.sql.streaming.checkpointFileManagerClass"] = manager
    if pip_workers:
        options |= PIP_WORKERS
    return options


def tuned(
    builder: SparkSession.Builder, *, local_checkpoints: bool = False, pip_workers: bool = False
) -> SparkSession.Builder:
    """Sets options on the builder of a session that make passing records between jobs faster.

        spark = tuned(SparkSession.builder.appName("split")).getOrCreate()

    Settings that are made on the builder afterwards win. Not for rows over some 100 KB: 10,000 of them are an
    Arrow batch, which is in memory as a whole, and none of its columns can have more than 2 GiB.

    Args:
        builder: The builder of a session.
        local_checkpoints: True if the checkpoints are on a local disk. On other file systems Spark would
            rename files of a checkpoint in a way that may not be atomic.
        pip_workers: True if the workers' Python has pyspark from pip, as in local mode, and acker at the same
            path as here. A query then starts a second sooner (acker/spark/runtime/startup/sitecustomize.py).
            This sets `spark.executorEnv.PYTHONPATH`, so not with YARN, which sets it, too.

    Returns:
        The builder.
    """
    for name, value in settings(local_checkpoints=local_checkpoints, pip_workers=pip_workers).items():
        builder = builder.config(name, value)
    return builder
