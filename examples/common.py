"""Shared parts of the Spark examples: a store, a session, and queries that run until all is done."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.spark import register, tuned


def start(what: Callable[[SparkSession, str, Path], object], about: str) -> None:
    """Runs an example as a program: on the store at --url, or on a server of its own."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--url", help="default: a server of its own")
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    spark = session(options.master)
    with tempfile.TemporaryDirectory() as directory:
        if options.url:
            print(what(spark, options.url, Path(directory)))
        else:
            with EmbeddedServer(Path(directory) / "server") as server:
                print(what(spark, server.url, Path(directory)))
    spark.stop()


def session(master: str) -> SparkSession:
    """A session with few partitions, for few rows."""
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = master.startswith("local[")
    builder = tuned(SparkSession.builder, local_checkpoints=local, pip_workers=local)
    spark = builder.master(master).config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_json(directory: Path, name: str, records: Iterable[dict[str, object]]) -> None:
    """A file of one JSON object for each line."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))


def finish(writer: DataStreamWriter, checkpoint: Path) -> None:
    """Runs a query until it has worked on all there is."""
    register(SparkSession.active())
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
