"""The examples in the docstrings of the calls that a user makes first, run as they are printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acker import Topology
from tests.helpers import docstrings

PLAIN = (
    "acker:AsyncTopology",
    "acker:Topology",
    "acker:Topology.spout",
    "acker:Topology.bolt",
    "acker:Topology.flush",
    "acker:Topology.tick",
    "acker:Topology.why",
    "acker.collectors.spout:Spout.emit",
    "acker.collectors.spout:Spout.outcomes",
    "acker.collectors.spout:Spout.confirm",
    "acker.collectors.bolt:Bolt.emit",
    "acker.collectors.bolt:Bolt.ack",
    "acker.collectors.bolt:Bolt.fail",
    "acker.streams:StreamWriter.publish",
    "acker.streams:StreamReader.rows",
    "acker.lines:Line",
    "acker.drpc",
    "acker.testing:Transport",
)


@pytest.mark.parametrize("name", PLAIN)
def test_the_example_of_a_docstring_prints_what_it_says(valkey_url: str, name: str) -> None:
    with Topology(valkey_url, "examples", ackers=1) as topology:
        assert docstrings.run(name, docstrings.plain_names(valkey_url, topology)) == ""


@pytest.mark.slow
@pytest.mark.spark
def test_the_examples_for_spark_jobs_print_what_they_say(valkey_url: str, java_home: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.helpers.docstrings", valkey_url],
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
