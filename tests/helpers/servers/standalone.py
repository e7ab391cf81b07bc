"""A standalone cluster: a master, and two workers under two host names, which speculation asks for."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from acker.embedded.processes import tied
from acker.embedded.server import free_port
from tests.helpers.servers.servers import wait_until

ROOT = Path(__file__).parents[3]


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """The master's URL. Workers have two cores and 2 GB each."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_NO_DAEMONIZE": "1",
    }
    spark_class = str(home / "bin" / "spark-class")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    log = (directory / "cluster.log").open("wb")

    def start(role: str, *arguments: str) -> None:
        command = tied([spark_class, f"org.apache.spark.deploy.{role}", *arguments])
        started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    try:
        start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        for host in ("127.0.0.1", "localhost"):
            work = directory / f"work-{host}"
            options = ["--host", host, "--cores", "2", "--memory", "2g", "--webui-port", "0"]
            start("worker.Worker", *options, "--work-dir", str(work), url)
        registered = b"Successfully registered with master"
        wait_until(
            lambda: (directory / "cluster.log").read_bytes().count(registered) == 2, timeout=120, interval=0.2
        )
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
        log.close()
