"""Every loop of acker ends soon after its stop, also while the store is silent or refuses connections."""

import ast
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acker.collectors.topology import Topology
from acker.drpc.answer_all import Answering
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.loops import Threads
from acker.ledger.tick.ticker import Ticker
from acker.lines.coordinate_all import Coordinating
from acker.spark.bolts.keep_alive import Resets
from acker.spark.queries.heartbeat import Heartbeat
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.loops import Heartbeats
from acker.store.operation import Operation, Request
from acker.streams import Stream
from acker.streams.dead_letters.sending import LetterSender
from acker.streams.spouts import wait_notes
from acker.streams.spouts.rereading import Rereader
from acker.streams.spouts.settler import Settler
from acker.streams.spouts.wait_notes import WaitNote
from api.background import background
from api.service.service import Service
from api.settings.settings import Settings
from api.streams.live import Live
from tests.helpers.builders.counting import counting
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.proxy import Proxy, proxied, refusing, silent

Running = AbstractContextManager[object]
ROOT = Path(__file__).parent.parent
TIMEOUT = 60.0
"""Seconds of the stores here: a stop that waits for one takes far longer than a stop that does not."""
WITHIN = 30.0
"""Seconds that a stop takes at most, on a busy machine."""
BEAT = Request(b"beat", ["PING"], every=0.05)


def ledger(store: Store) -> Ledger:
    return open_ledger(store, "t", ackers=2, message_timeout=1.0)


def topology(store: Store) -> Topology:
    return Topology(store.url, "t", ackers=2, message_timeout=1.0, timeout=TIMEOUT)


@contextmanager
def in_a_thread(run: Callable[[threading.Event], object]) -> Iterator[None]:
    """A loop that an event stops, in a thread as the commands and the service have it."""
    threads = Threads()
    threads.start(run, threads.stop)
    yield
    threads.end()


@contextmanager
def on_an_event_loop(running: AbstractAsyncContextManager[object]) -> Iterator[None]:
    """Runs an asynchronous block on an event loop in a thread of its own."""
    over, begun = threading.Event(), threading.Event()

    async def until_over() -> None:
        async with running:
            begun.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(until_over(),), daemon=True)
    thread.start()
    assert begun.wait(TIMEOUT)
    yield
    over.set()
    thread.join(TIMEOUT)


def line(store: Store) -> Running:
    return Job(ledger(store)).line.work()


def function(store: Store) -> Running:
    return counting().work(topology(store))


@contextmanager
def caller(store: Store) -> Iterator[None]:
    asking = topology(store)
    counting().register(asking)
    answer = asking.drpc("count").submit(1)
    yield
    answer.cancel()
    asking.close()


@contextmanager
def query(store: Store) -> Iterator[None]:
    Stream(ledger(store), "lines").subscribe("default")
    heartbeat = Heartbeat(ledger(store), "lines")
    heartbeat.of(0, "reader")
    yield
    heartbeat.stop()


def batch(store: Store) -> Running:
    return Resets(ledger(store), "split", 1).keeping(np.array([1]))


@contextmanager
def call(store: Store) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wait_notes, "SLOW", 0.05)
        with WaitNote("unread", "s", "rows of spout 's'").calling(ledger(store), "`reread`"):
            yield


@contextmanager
def operation(store: Store) -> Iterator[None]:
    beats = Heartbeats(store.send)
    beats.note([BEAT])
    yield
    beats.end()


@asynccontextmanager
async def task(store: Store) -> Any:
    def asking() -> Operation[None]:
        while True:
            yield [BEAT]

    running = asyncio.create_task(AsyncStore(store.url, timeout=TIMEOUT).run(asking()))
    yield
    running.cancel()
    await asyncio.wait([running])


@asynccontextmanager
async def service(store: Store) -> Any:
    settings = Settings(url=store.url, timeout=TIMEOUT, otel=True)  # type: ignore[arg-type]
    async with Service(settings) as serving, background.running(serving, Live(serving)):
        yield


@dataclass(frozen=True)
class Loops:
    """Loops that one stop ends. of: the functions and classes that run them."""

    running: Callable[[Store], Running]
    of: frozenset[str]

    def __init__(self, running: Callable[[Store], Running], *of: str) -> None:
        object.__setattr__(self, "running", running)
        object.__setattr__(self, "of", frozenset(of))


LINE = "acker.lines.line"
LOOPS = {
    "ticker": Loops(lambda store: in_a_thread(Ticker(store).run), "acker.ledger.tick.ticker.Ticker"),
    "settler": Loops(
        lambda store: in_a_thread(Settler(store).run),
        "acker.streams.spouts.settler.Settler",
        "acker.ledger.loops.Rounds",
    ),
    "rereading": Loops(
        lambda store: in_a_thread(Rereader(ledger(store), "s", lambda ids: ids).run),
        "acker.streams.spouts.rereading.Rereader",
    ),
    "sending": Loops(
        lambda store: in_a_thread(LetterSender(ledger(store), "s", lambda letters: None).run),
        "acker.streams.dead_letters.sending.LetterSender",
    ),
    "coordinating": Loops(
        lambda store: in_a_thread(Coordinating(store).run), "acker.lines.coordinate_all.Coordinating"
    ),
    "answering": Loops(lambda store: in_a_thread(Answering(store).run), "acker.drpc.answer_all.Answering"),
    "line": Loops(
        line,
        *(f"{LINE}.{name}" for name in ("coordinate", "_run", "_look_after", "_renew")),
        "acker.workers.wakeups.Bell",
    ),
    "function": Loops(function, "acker.drpc.answers.run"),
    "caller": Loops(caller, "acker.drpc.calling.answer_listener.Waiting"),
    "query": Loops(query, "acker.spark.queries.heartbeat._run"),
    "batch": Loops(batch, "acker.spark.bolts.keep_alive.Resets"),
    "call": Loops(call, "acker.streams.spouts.wait_notes.WaitNote"),
    "operation": Loops(operation, "acker.store.loops.Heartbeats"),
    "task": Loops(lambda store: on_an_event_loop(task(store)), "acker.store.loops.AsyncHeartbeats"),
    "service": Loops(
        lambda store: on_an_event_loop(service(store)),
        "acker.ledger.tick.async_ticker.AsyncTicker",
        "api.background.otel.Exporter",
        "api.streams.live.Live",
    ),
}


def users() -> Iterator[str]:
    """The functions and classes of acker and its service that run a loop, or are one by their base."""
    for path in (path for top in ("acker", "api") for path in (ROOT / top).rglob("*.py")):
        module, text = ".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text()
        if "loops" not in f"{module} {text}":
            continue
        tree = ast.parse(text)
        names = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in ("acker.store.loops", "acker.ledger.loops")
            for alias in node.names
        }
        inside = module == "acker.store.loops"
        for top in tree.body:
            if not isinstance(top, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            uses = {ast.unparse(node) for node in ast.walk(top) if isinstance(node, ast.Name | ast.Attribute)}
            wanted = {"loops.run", "loops.run_async"} | ({"run_async", "Rounds"} & names)
            if uses & wanted or (inside and uses & {"run", "run_async"}):
                yield f"{module}.{top.name}"


def test_every_loop_is_stopped_here() -> None:
    assert {*users()} == {name for loops in LOOPS.values() for name in loops.of}


@pytest.mark.parametrize("away", [silent, refusing])
@pytest.mark.parametrize("loops", LOOPS)
def test_a_stop_ends_a_loop_soon_though_the_store_is_away(
    valkey_url: str, loops: str, away: Callable[[Proxy], "AbstractContextManager[threading.Event]"]
) -> None:
    with proxied(valkey_url) as proxy:
        running = LOOPS[loops].running(Store(proxy.url, timeout=TIMEOUT))
        running.__enter__()
        with away(proxy) as asked:
            assert asked.wait(TIMEOUT)
            stopped = time.monotonic()
            running.__exit__(None, None, None)
            assert time.monotonic() - stopped < WITHIN
