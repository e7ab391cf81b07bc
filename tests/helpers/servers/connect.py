"""A Spark Connect server: Spark in a process of its own, which clients reach by `sc://`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from acker.embedded.processes import tied
from tests.helpers.servers.servers import wait_until

ROOT = Path(__file__).parents[3]


@contextmanager
def server(directory: Path, master: str = "local[2,4]") -> Iterator[str]:
    """Its URL."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    settings = {
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
