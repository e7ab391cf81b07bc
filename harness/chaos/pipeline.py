"""The pipeline that is harmed: a store, a source, two Spark applications, two tickers and the service.

Each process is supervised: whatever ends it, it is started again. All are children of one thread, to which
the kernel ties them, so this is for one thread.
"""

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark

from acker.cli.demo.processes import READY, Child, Children
from acker.cli.demo.sink import Sink
from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.embedded.server import free_port
from harness.chaos import clock
from harness.chaos.network import Network
from harness.chaos.plan import CLIENT_TIMEOUT, Store
from harness.chaos.records import Records
from harness.chaos.rival import Rival
from tests.helpers.servers.clocks import ShiftedClock
from tests.helpers.servers.clusters import Cluster
from tests.helpers.servers.servers import binary

ROOT = Path(__file__).parent.parent.parent
TOPOLOGY = "chaos"
HANG = 1.6
"""Message timeouts for which the bolt hangs."""
_PAUSE = 0.5
_GRACE = 15.0


class Supervised:
    """A process that is started again when it has ended.

    make: starts one whose log has that number. mark: how the line begins in which it says that it is ready.
    """

    def __init__(self, name: str, make: Callable[[int], Child], mark: str = READY) -> None:
        self.name = name
        self._mark = mark
        self._make = make
        self._children = Children()
        self._at = 0.0
        self.starts = 0
        self.kills = 0
        self.ends = 0
        """The number of times that it ended by itself."""
        self._child: Child | None = None
        self._said = False

    @property
    def running(self) -> bool:
        """True if it runs."""
        return self._child is not None and not self._child.ended

    @property
    def ready(self) -> bool:
        """True if it runs and has said that it is ready."""
        if self._child is None or self._child.ended:
            return False
        self._said = self._said or self._child.line(self._mark) is not None
        return self._said

    def members(self) -> list[int]:
        """Its processes, Spark's among them."""
        return self._child.members() if self._child is not None else []

    def look(self) -> None:
        """Starts it again where it has ended, half a second later."""
        if self._child is not None and self._child.ended:
            self.ends += 1
            self._reap(_PAUSE)
        if self._child is None and time.monotonic() >= self._at:
            self.starts += 1
            self._child = self._children.add(self._make(self.starts))

    def kill(self, pause: float = 0.0) -> bool:
        """Kills it and all that it has started (SIGKILL); False where it was not there. It is back later."""
        if not self.running:
            return False
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kills += 1
        self._reap(pause)
        return True

    def _reap(self, pause: float) -> None:
        self._children.stop(0.0)
        self._child, self._said = None, False
        self._at = time.monotonic() + pause

    def stop(self, timeout: float = _GRACE) -> None:
        """Ends it in good order."""
        self._children.stop(timeout)
        self._child = None


class Pipeline:
    """The processes, and what they share.

    rollbacks: spans of time in which the store may have lost what it had answered.
    """

    def __init__(
        self, directory: Path, store: Store, kind: str, message_timeout: float, rate: float, stack: ExitStack
    ) -> None:
        self.directory = directory
        self.message_timeout = message_timeout
        self.clock = directory / "clock"
        clock.make(self.clock)
        self._hangs = directory / "hangs"
        self._hangs.mkdir()
        self.hangs_wished = 0
        self.sink = Sink(directory / "words.db")
        self.sink.count()
        self.records = Records(directory / "records.db")
        stack.callback(self.records.close)
        self.rollbacks: list[tuple[float, float]] = []
        self.server: EmbeddedServer | None = None
        self.cluster: Cluster | None = None
        self.network: Network | None = None
        self.server_clock: ShiftedClock | None = None
        self._stack = stack
        self._servers = 0
        if store == "server":
            # Debian's Redis takes no clock of ours.
            self.server_clock = ShiftedClock(directory / "server-clock") if kind == "valkey" else None
            self._binary = self.server_clock.binary if self.server_clock else binary(kind)
            self.server = self.another_server()
            self.url = self.server.start().url
            self.network = Network(self.url)
            stack.callback(self.network.close)
            source, applications = self.network.urls
        else:
            self.cluster = Cluster(directory / "cluster", binary=binary(kind))
            stack.enter_context(self.cluster)
            self.url = source = applications = self.cluster.url
        self.rival = Rival(self.url, TOPOLOGY, message_timeout, self.records)
        stack.callback(self.rival.close)
        self.port = free_port()
        self._home = _spark_home(directory)
        self._java = _java_home(directory, self._home)
        self._rate = rate
        self.source = Supervised("source", lambda n: self._source(source, n))
        self.split = Supervised(
            "split", lambda n: self._spark("split", "local-cluster[2,1,768]", n, applications)
        )
        self.count = Supervised("count", lambda n: self._spark("count", "local[1]", n, applications))
        self.tickers = [
            Supervised(f"ticker-{place}", self._ticker(place), "acker: ticking") for place in range(2)
        ]
        self.service = Supervised("service", self._service, "INFO:     Uvicorn running")
        stack.callback(self._stop)

    @property
    def processes(self) -> list[Supervised]:
        """All that is supervised."""
        return [self.split, self.count, *self.tickers, self.service, self.source]

    def look(self) -> None:
        """Starts what has ended."""
        for process in self.processes:
            process.look()

    def servers(self) -> list[EmbeddedServer]:
        """The servers of the store, whether they run or not."""
        if self.cluster is not None:
            return self.cluster.servers
        assert self.server is not None
        return [self.server]

    def another_server(self, directory: Path | None = None, **how: Any) -> EmbeddedServer:
        """A single server, not started, in a directory of its own or in one that is there."""
        self._servers += 1
        options = {
            "auto-aof-rewrite-min-size": "16mb",
            "repl-diskless-sync-delay": "0",
            **how.pop("options", {}),
        }
        made = EmbeddedServer(
            directory or self.directory / f"server-{self._servers}",
            binary=self._binary, options=options, start_timeout=120.0, **how,
        )  # fmt: skip
        self._stack.callback(made.close)
        return made

    def hangs(self) -> int:
        """At how many records the bolt has hung."""
        return sum(1 for _ in self._hangs.iterdir())

    def _stop(self) -> None:
        # The source first: it still has a store to flush to.
        for process in reversed(self.processes):
            process.stop()

    def _start(self, name: str, number: int, url: str, command: list[str], **more: str) -> Child:
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "ACKER_URL": url,
            clock.VARIABLE: str(self.clock),
            "PYTHONPATH": str(ROOT),
            **more,
        }
        log = logs / f"{name}-{number}.log"
        return Child(name, command, log, environment=environment, directory=self.directory)

    def _source(self, url: str, number: int) -> Child:
        command = [
            sys.executable, "-m", "harness.chaos.source", "--topology", TOPOLOGY,
            "--message-timeout", str(self.message_timeout), "--rate", str(self._rate),
            "--records", str(self.directory / "records.db"), "--sink", str(self.sink.path),
        ]  # fmt: skip
        return self._start("source", number, url, command)

    def _ticker(self, place: int) -> Callable[[int], Child]:
        command = [sys.executable, "-m", "harness.chaos.clock", "tick", "--timeout", str(CLIENT_TIMEOUT)]
        return lambda number: self._start(f"ticker-{place}", number, self.url, command)

    def _service(self, number: int) -> Child:
        command = [
            sys.executable, "-m", "uvicorn", "api.app:app", "--host", "127.0.0.1", "--port", str(self.port),
            "--no-access-log",
        ]  # fmt: skip
        # Where it ticked, too, nobody could kill every ticker and see what comes of it.
        return self._start("service", number, self.url, command, ACKER_TICKER="false")

    def _spark(self, name: str, master: str, number: int, url: str) -> Child:
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        java = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "-Djava.io.tmpdir={temporary}"'
        settings = {"spark.executor.memory": "512m", "spark.deploy.maxExecutorRetries": "-1"}
        submit = " ".join(f"--conf {setting}={value}" for setting, value in settings.items())
        command = [
            sys.executable, "-m", "harness.chaos.application", name, "--topology", TOPOLOGY,
            "--checkpoint", str(self.directory / "checkpoints" / name), "--master", master,
            "--sink", str(self.sink.path), "--hang", str(HANG * self.message_timeout),
            "--hangs", str(self._hangs), "--message-timeout", str(self.message_timeout),
        ]  # fmt: skip
        return self._start(
            name, number, url, command,
            JAVA_HOME=str(self._java),
            PYSPARK_PYTHON=sys.executable,
            PYSPARK_SUBMIT_ARGS=f"{submit} pyspark-shell",
            SPARK_HOME=str(self._home),
            SPARK_LOCAL_DIRS=str(temporary),
            SPARK_LOCAL_IP="127.0.0.1",
            TMPDIR=str(temporary),
            JDK_JAVA_OPTIONS=f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {java}".strip(),
        )  # fmt: skip


def _spark_home(directory: Path) -> Path:
    """A Spark of our own, by links: executors of a local cluster work in its directory."""
    home = directory / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def _java_home(directory: Path, home: Path) -> Path:
    """A Java that takes Spark's classes from where pyspark is: an archive of them fits no links to them."""
    java = directory / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    links, installed = shlex.quote(str(home)), shlex.quote(str(Path(pyspark.__file__).parent))
    java.write_text(
        f"#!/usr/bin/env bash\nlinks={links} installed={installed}\n"
        f'exec {shlex.quote(str(ensure_java().home / "bin" / "java"))} "${{@//"$links"/"$installed"}}"\n'
    )
    java.chmod(0o755)
    return java.parent.parent


@contextmanager
def pipeline(
    directory: Path, store: Store, kind: str, message_timeout: float, rate: float
) -> Iterator[Pipeline]:
    """A pipeline whose store runs; its processes start with the first `look`. Leaves none behind.

    kind: of server, as of tests/helpers/servers/servers.py. directory: must be there, and empty. rate:
    records per second.
    """
    ensure_java()
    with ExitStack() as stack:
        yield Pipeline(directory, store, kind, message_timeout, rate, stack)
