"""Runs the demo: starts the store, the service, both Spark applications and the spout; watches and checks."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from acker import Topology
from acker.demo.check import check
from acker.demo.children import READY, Child, ChildFailed, Children
from acker.demo.directory import temporary_directory
from acker.demo.options import ATTEMPTS, Options
from acker.demo.progress import Progress
from acker.demo.records import Status
from acker.demo.report import PERCENTILES, Report
from acker.demo.service import Service, check_port
from acker.demo.sink import Sink
from acker.demo.spout import SPOUT
from acker.demo.text import find_files, read_lines
from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.errors import AckerError, UnknownTopology
from acker.ledger.client import Ledger, open_ledger
from acker.store.address import parse, shown
from acker.store.client import Store
from acker.streams.spouts import dead_letters
from acker.streams.spouts.dead_letters import DeadLetter

_READY_WITHIN = 300.0
_LOOK_EVERY = 0.1
_GRACE = 10.0
_MOST_CORES = 4
_GRACE_INTERRUPTED = 3.0


class Interrupted(BaseException):
    """The demo was asked to stop by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextmanager
def starting(options: Options, progress: Progress) -> Iterator["Demo"]:
    """The demo with its store. Leaves no process and no directory behind, however it ends.

    Enter it in the main thread. Raises AckerError, and `Interrupted` on SIGINT, SIGTERM and SIGHUP; after
    ChildFailed the logs are kept.
    """
    started = time.monotonic()
    files = find_files(options.inputs)
    if options.url is not None:
        parse(options.url)
    check_port(options.port)
    with _signals(), temporary_directory() as directory, ExitStack() as stack:
        java = ensure_java()
        url = options.url
        if url is None:
            url = stack.enter_context(EmbeddedServer(directory / "server")).url
        progress.say(f"store {shown(url)}, Java {java.version}, {len(files):,} files of text")
        name = options.topology or f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        _refuse_known(url, name)
        topology = stack.enter_context(Topology(url, name, **options.settings))
        demo = Demo(options, progress, directory, topology, files, started)
        try:
            yield demo
        except BaseException:
            demo.children.stop(_GRACE_INTERRUPTED)
            raise
        demo.children.stop(_GRACE)


class Demo:
    """The processes of a run, and what comes of it."""

    def __init__(
        self,
        options: Options,
        progress: Progress,
        directory: Path,
        topology: Topology,
        files: list[tuple[str, Path]],
        started: float,
    ) -> None:
        self.options = options
        self.progress = progress
        self.directory = directory
        self.topology = topology
        self.files = files
        self.children = Children()
        self._started = started
        # The URL may hold a password, which arguments would show to everyone on the machine.
        self._environment = {**os.environ, "ACKER_URL": topology.ledger.store.url}
        self._status = Status()
        self._service = Service(self._log("service"), self._environment, options.port, progress.say)
        self.children.add(self._service.child)

    def run(self) -> Report:
        """Runs the job to its end, and checks it. Of its processes only the service goes on."""
        startup = self._work()
        self.children.stop(_GRACE, but=self._service.child)
        wall = time.monotonic() - self._started
        self.progress.say("checking the sink against the text")
        dead = tuple(_dead_letters(self.topology.ledger))
        sink = Sink(self._sink)
        lines = read_lines(self.files, self.options.lines)
        counters = self.topology.counters()
        return Report(
            url=shown(self.topology.ledger.store.url),
            topology=self.topology.name,
            status=self._status,
            counters=counters,
            dead=dead,
            latencies=tuple(self.topology.ledger.latency(*PERCENTILES)),
            wall=wall,
            startup=startup,
            most_frequent=tuple(sink.most_frequent(10)),
            check=check(lines, sink, dead, self._status, counters, self.options.faults, ATTEMPTS),
        )

    def keep(self) -> None:
        """Keeps the service and the store up until a signal."""
        self.progress.say(f"dashboard {self._service.address} stays, with store and ticker; Ctrl-C ends it")
        try:
            while True:
                self._service.look()
                time.sleep(_LOOK_EVERY)
        except Interrupted:
            return

    @property
    def _sink(self) -> Path:
        return self.directory / "words.db"

    def _work(self) -> float:
        """Returns the seconds until Spark was ready."""
        self.progress.say("starting two Spark applications")
        split = self._spark("split")
        count = self._spark("count", "--sink", str(self._sink), *self.options.faults.arguments())
        self._wait_ready(split, count)
        startup = time.monotonic() - self._started
        self.progress.say("Spark is ready: split reads lines, count reads words; the spout starts")
        source = self._spout()
        reader = threading.Thread(target=self._follow, args=(source,), name="acker-demo-status", daemon=True)
        reader.start()
        while not source.ended:
            split.check()
            count.check()
            self._service.look()
            self.progress.show(self._status)
            time.sleep(_LOOK_EVERY)
        reader.join(_GRACE)
        if not self._status.finished:
            raise source.failure()
        self.progress.show(self._status)
        return startup

    def _wait_ready(self, *applications: Child) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while not (self._service.address and all(one.line(READY) for one in applications)):
            self._service.look()
            for application in applications:
                application.check()
            if time.monotonic() > deadline:
                what = "Spark" if self._service.address else "the service"
                raise ChildFailed(f"{what} was not ready within {_READY_WITHIN:.0f} s")
            time.sleep(_LOOK_EVERY)

    def _spark(self, name: str, *arguments: str) -> Child:
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        # So short a run does not pay for a compiler that optimises, nor for a collector with threads.
        java = (
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            f'"-Djava.io.tmpdir={temporary}"',
        )
        environment = {
            **self._environment,
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": " ".join([os.environ.get("JDK_JAVA_OPTIONS", ""), *java]).strip(),
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [
            sys.executable, "-m", f"acker.demo.{name}",
            "--topology", self.topology.name,
            "--checkpoint", str(self.directory / "checkpoints" / name),
            # Half of the cores for each of the two.
            "--master", f"local[{max(1, min(_MOST_CORES, (os.cpu_count() or 2) // 2))}]", *arguments,
        ]  # fmt: skip
        log = self._log(name)
        return self.children.add(Child(name, command, log, environment=environment, directory=self.directory))

    def _spout(self) -> Child:
        command = [
            sys.executable, "-m", "acker.demo.spout",
            "--topology", self.topology.name, "--lines", str(self.options.lines),
            "--max-spout-pending", str(self.options.max_spout_pending),
            "--input", *self.options.inputs,
        ]  # fmt: skip
        # In the directory of the user, whose paths may be relative.
        child = Child("spout", command, self._log("spout"), environment=self._environment, piped=True)
        return self.children.add(child)

    def _log(self, name: str) -> Path:
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{name}.log"

    def _follow(self, source: Child) -> None:
        assert source.process.stdout is not None
        for text in source.process.stdout:
            self._status = Status(**json.loads(text))


def _dead_letters(ledger: Ledger) -> Iterator[DeadLetter]:
    asked, cursor = dead_letters.Filter(spout=SPOUT), None
    while True:
        page = ledger.run(dead_letters.page(ledger.core, asked, limit=dead_letters.PAGE, cursor=cursor))
        yield from page.letters
        if (cursor := page.cursor) is None:
            return


def _refuse_known(url: str, name: str) -> None:
    try:
        open_ledger(Store(url), name, create=False)
    except UnknownTopology:
        return
    raise AckerError(f"the store has a topology {name!r} already: the demo needs one of its own")


@contextmanager
def _signals() -> Iterator[None]:
    """Raises `Interrupted` for the first signal to end; further ones do not disturb the end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, frame: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    before = [(number, signal.signal(number, stop)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
