"""Tests marked "everywhere", "older" or "masters", on the kinds of cluster that they do not run on anyway.

A process has one Spark, so they run in a pytest of their own; an older Spark is in an environment of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.servers import connect, older_spark, standalone

ROOT = Path(__file__).parent.parent.parent
LOCAL = "local[2,4]"
"""Spark's own way to say: two cores, and four attempts of a task."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.usefixtures("java_home")]


def run_tests(
    directory: Path,
    where: str,
    marks: str,
    python: list[str] | None = None,
    options: list[str] | None = None,
) -> None:
    """Runs the tests of these marks on a master, or with the Spark Connect server of a URL."""
    command = [*(python or [sys.executable]), "-m", "pytest", "tests/spark", "-q", "-x", "-n0"]
    command += ["-m", marks, "-p", "no:cacheprovider", "--color=no"]
    command += ["--basetemp", str(directory / "inner"), *(options or [])]
    environment = {**os.environ, "ACKER_TEST_SPARK": where, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    reported = done.stdout.splitlines()
    assert done.returncode == 0, "\n".join(reported[-200:])
    assert "passed" in reported[-1]
    assert "skipped" not in reported[-1]


def test_local(tmp_path: Path) -> None:
    run_tests(tmp_path, LOCAL, "masters")


def test_a_standalone_cluster_of_two_workers(tmp_path: Path) -> None:
    with standalone.cluster(tmp_path) as master:
        run_tests(tmp_path, master, "masters")


def test_spark_connect(tmp_path: Path) -> None:
    with connect.server(tmp_path, LOCAL) as url:
        run_tests(tmp_path, url, "everywhere or connect")


@pytest.mark.parametrize("version", older_spark.VERSIONS)
def test_an_older_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    python, variables = older_spark.python(version)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run_tests(tmp_path, LOCAL, "everywhere or older", python, older_spark.UNCLOSED)
