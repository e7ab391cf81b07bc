"""Drivers that are killed in a batch, for tests."""

import os
import subprocess
import sys
from pathlib import Path

import redis

from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers import standalone

LINES = [f"a{n} b{n}" for n in range(500)]


def start(pipeline: Pipeline, checkpoint: Path, *arguments: object) -> "subprocess.Popen[bytes]":
    """Starts a driver of its own (tests/helpers/faults/driver.py)."""
    program = [sys.executable, "-m", "tests.helpers.faults.driver", "--url", pipeline.url]
    command = [*program, "--checkpoint", checkpoint, *arguments]
    environment = {
        **os.environ,
        "PYTHONPATH": str(standalone.ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.Popen([str(word) for word in command], env=environment, cwd=standalone.ROOT)


def run(pipeline: Pipeline, checkpoint: Path, *arguments: object) -> int:
    """Runs one, and returns its status."""
    driver = start(pipeline, checkpoint, *arguments)
    try:
        return driver.wait(400)
    finally:
        driver.kill()


def staged(pipeline: Pipeline) -> int:
    """The number of staged vectors."""
    with redis.Redis.from_url(pipeline.url) as client:
        return sum(1 for _ in client.scan_iter("*staged*", count=1000))


def assert_exact(pipeline: Pipeline, rows: int | None = None, numbers: int = 0) -> None:
    """The words are there once, the lines are acked, and so are all trees once the words are.

    numbers: trees of another spout, whose rows were emitted, too.
    """
    words = [str(row["word"]) for row in pipeline.rows("words")]
    assert len(words) == len(set(words))
    assert rows is None or len(words) == rows
    assert pipeline.rows("lines") == []
    # Each line has two words, or was dropped and is acked with its batch.
    dropped = 500 - len(words) // 2
    assert pipeline.counters() == {"tracked": 500 + numbers, **({"acked": dropped} if dropped else {})}
    if numbers:
        assert sorted(str(row["id"]) for row in pipeline.rows("numbers")) == sorted(map(str, range(numbers)))
        pipeline.consume("numbers")
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 500 + numbers, "acked": 500 + numbers}
    kinds = ("staged", "payload", "failing", "notes", "effects", "unacked", "tracked:")
    assert not pipeline.without_time_to_live(*kinds)
