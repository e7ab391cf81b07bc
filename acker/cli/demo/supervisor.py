"""Runs the demo: starts the store, the service and both Spark applications, is the spout, and checks."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from acker import Topology
from acker.cli.demo.check import check
from acker.cli.demo.options import ATTEMPTS, KAFKA, Options
from acker.cli.demo.processes import READY, Child, ChildFailed, Children, temporary_directory
from acker.cli.demo.progress import Progress
from acker.cli.demo.report import PERCENTILES, Report
from acker.cli.demo.sink import Sink
from acker.cli.demo.text import find_files, read_lines
from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.embedded.server import check_port
from acker.errors import AckerError, UnknownTopology
from acker.ledger.client import Ledger, open_ledger
from acker.store.address import parse, shown
from acker.store.client import Store
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters.dead_letters import DeadLetter

_HOST = "127.0.0.1"
_PROGRAM = "from acker.cli import main; main()"
_READY_WITHIN = 300.0
_LOOK_EVERY = 0.1
_BROKER_SECONDS = 10.0
_GRACE = 10.0
_MOST_CORES = 4
_GRACE_INTERRUPTED = 3.0


class Interrupted(BaseException):
    """The demo was asked to stop by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Signals:
    """The first signal to end, which may come where an exception is lost: where an object is thrown away."""

    def __init__(self) -> None:
        self.first: int | None = None

    def check(self) -> None:
        """Raises `Interrupted` where there was one."""
        if self.first is not None:
            raise Interrupted(self.first)


@contextmanager
def starting(options: Options, progress: Progress) -> Iterator["Demo"]:
    """The demo with its store. Leaves no process and no directory behind, however it ends.

    Enter it in the main thread. Raises AckerError, and `Interrupted` on SIGINT, SIGTERM and SIGHUP; after
    ChildFailed the logs are kept.
    """
    started = time.monotonic()
    if options.url is not None:
        parse(options.url)
    check_port(options.port)
    if options.servers:
        _check_answer(options.servers)
    files = find_files(options.inputs)
    with catching() as signals, temporary_directory() as directory, ExitStack() as stack:
        java = ensure_java()
        url = options.url
        if url is None:
            url = stack.enter_context(EmbeddedServer(directory / "server")).url
        name = options.topology or f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        _refuse_known(url, name)
        topology = stack.enter_context(Topology(url, name, **options.settings))
        progress.say(f"store {shown(url)}, Java {java.version}, {len(files):,} files of text")
        demo = Demo(options, progress, directory, topology.ledger, files, started, signals)
        try:
            yield demo
        except BaseException:
            demo.children.stop(_GRACE_INTERRUPTED)
            raise
        demo.children.stop(_GRACE)


class Demo:
    """A run: its processes, and what comes of it."""

    def __init__(
        self,
        options: Options,
        progress: Progress,
        directory: Path,
        ledger: Ledger,
        files: list[tuple[str, Path]],
        started: float,
        signals: Signals,
    ) -> None:
        self.options = options
        self.progress = progress
        self.directory = directory
        self.ledger = ledger
        self.files = files
        self.children = Children()
        self._started = started
        self._signals = signals
        self._sink = Sink(directory / "words.db")
        self._address = ""
        self._ready: list[float] = []
        (directory / "logs").mkdir()
        (directory / "tmp").mkdir()
        # The service ticks the demo's topology, whatever other services tick.
        command = [sys.executable, "-c", _PROGRAM, "serve", "--host", _HOST, "--port", str(options.port)]
        self._service = self._start("service", command, {"ACKER_TICKER": "true", "ACKER_HISTORY": "true"})
        self.children.await_line(self._service, "http://", self._serves)
        self.children.await_line(self._service, "acker: no dashboard", self._tell_trouble)

    def run(self) -> Report:
        """Runs the job to its end, and checks it."""
        words = self._words()
        transport = ("--words", words) if words else ()
        self._spark("split", "reads lines and emits their words", *transport)
        faults = self.options.faults
        poison = ("--flaky", ",".join(faults.flaky), "--poison-every", str(faults.poison_every))
        self._spark(
            "count", "reads words and counts them", "--sink", str(self._sink.path), *poison, *transport
        )
        self.progress.say("two Spark applications are starting, which takes them some 20 s")
        # Not before: what jobs need of Spark takes a moment to import.
        from acker.cli.demo.jobs import TextSpout

        spout = TextSpout(
            self.ledger, read_lines(self.files, self.options.lines), self.options.max_spout_pending
        )
        status = spout.records.status
        while not spout.finished:
            fresh = not status.lines
            spout.step()
            if fresh and status.lines:
                self.progress.say("the first lines have their trees, which wait for Spark")
            self._look()
            self.progress.show(status)
        spout.close()
        wall = time.monotonic() - self._started
        self.progress.say("checking the sink against the text")
        dead = tuple(_dead_letters(self.ledger))
        counters = self.ledger.counters()
        lines = read_lines(self.files, self.options.lines)
        return Report(
            url=shown(self.ledger.store.url),
            topology=self.ledger.config.name,
            status=status,
            counters=counters,
            dead=dead,
            latencies=tuple(self.ledger.latency(*PERCENTILES)),
            wall=wall,
            startup=max(self._ready, default=wall),
            most_frequent=tuple(self._sink.most_frequent(10)),
            check=check(lines, self._sink, dead, status, counters, self.options.faults, ATTEMPTS),
        )

    def _words(self) -> str:
        """The place of the words, for both applications; "" for the store."""
        if self.options.transport == "parquet":
            return str(self.directory / "words")
        if not self.options.servers:
            return ""
        topic = f"acker-{self.ledger.config.name}"
        self.progress.say(f"words go by the topic {topic}, which stays in Kafka")
        return f"{self.options.transport}/{topic}"

    def keep(self) -> None:
        """Ends Spark, and keeps the service and the store up until a signal."""
        self.children.stop(_GRACE, but=self._service)
        self.progress.say(f"dashboard {self._address} stays, with store and ticker; Ctrl-C ends it")
        try:
            while True:
                self._signals.check()
                self.children.look()
                time.sleep(_LOOK_EVERY)
        except Interrupted:
            return

    def _look(self) -> None:
        self._signals.check()
        self.children.look()
        if time.monotonic() - self._started > _READY_WITHIN and not (self._address and len(self._ready) == 2):
            what = "Spark" if self._address else "the service"
            raise ChildFailed(f"{what} was not ready within {_READY_WITHIN:.0f} s")

    def _serves(self, address: str) -> None:
        self._address = address
        self.progress.say(f"dashboard {address}")

    def _tell_trouble(self, line: str) -> None:
        # No reason to fail: the rest of the service does without.
        self.progress.say(line.removeprefix("acker: "))

    def _spark(self, name: str, does: str, *arguments: str) -> None:
        temporary = self.directory / "tmp"
        # So short a run does not pay for a compiler that optimises, nor for a collector with threads.
        java = (
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            f'"-Djava.io.tmpdir={temporary}"',
        )
        environment = {
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": " ".join([os.environ.get("JDK_JAVA_OPTIONS", ""), *java]).strip(),
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [
            sys.executable, "-m", "acker.cli.demo.jobs", name,
            "--topology", self.ledger.config.name,
            "--checkpoint", str(self.directory / "checkpoints" / name),
            # Half of the cores for each of the two.
            "--master", f"local[{max(1, min(_MOST_CORES, (os.cpu_count() or 2) // 2))}]", *arguments,
        ]  # fmt: skip

        def ready(line: str) -> None:
            self._ready.append(time.monotonic() - self._started)
            self.progress.say(f"Spark application {name!r} {does}")

        self.children.await_line(self._start(name, command, environment), READY, ready)

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> Child:
        # The URL may hold a password, which arguments would show to everyone on the machine.
        given = {**os.environ, "ACKER_URL": self.ledger.store.url, **environment}
        log = self.directory / "logs" / f"{name}.log"
        return self.children.add(Child(name, command, log, environment=given, directory=self.directory))


def _dead_letters(ledger: Ledger) -> Iterator[DeadLetter]:
    cursor = None
    while True:
        page = ledger.run(dead_letters.page(ledger.core, limit=dead_letters.PAGE, cursor=cursor))
        yield from page.letters
        if (cursor := page.cursor) is None:
            return


def _refuse_known(url: str, name: str) -> None:
    try:
        open_ledger(Store(url), name, create=False)
    except UnknownTopology:
        return
    raise AckerError(f"the store has a topology {name!r} already: the demo needs one of its own")


def _check_answer(servers: str) -> None:
    """Raises AckerError if none of several brokers answers."""
    why = ""
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _BROKER_SECONDS).close()
        except (OSError, OverflowError) as error:
            why = str(error)
        else:
            return
    raise AckerError(f"--transport {KAFKA}{servers}: no broker answers there: {why}")


@contextmanager
def catching() -> Iterator[Signals]:
    """Raises `Interrupted` for the first signal to end; further ones do not disturb the end."""
    numbers, signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), Signals()

    def stop(number: int, frame: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        signals.first = number
        raise Interrupted(number)

    before = [(number, signal.signal(number, stop)) for number in numbers]
    try:
        yield signals
    finally:
        for number, handler in before:
            signal.signal(number, handler)
