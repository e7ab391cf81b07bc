"""A step that keeps its process from saying that it lives: the first to end wins, and one does."""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
import redis

from acker.ledger.client import Ledger, open_ledger
from acker.lines import Out
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Reply, Request, command
from acker.streams import SpoutOptions, Stream, StreamReader, StreamSpout
from acker.streams.commits import chunks
from acker.streams.log.heartbeats import Lease
from acker.streams.spouts import settler
from acker.workers import leases
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.streaming import counters, slot_of
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import raw_client, wait_until

pytestmark = pytest.mark.slow

SLOW = """
import ctypes, sys
from pathlib import Path
from acker.ledger.client import open_ledger
from acker.lines import Gather, Line
from acker.store.client import Store
from acker.streams.commits import chunks
url, lock, begun, most = sys.argv[1:]
chunks.MOST = int(most)
line = Line(open_ledger(Store(url), "t"), "line", [Gather("waiting")])

@line.step("slow", reads="rows")
def slow(row, out):
    with open(lock) as held, open(begun, "a") as told:
        told.write(f"{row['id']}\\n")
        told.flush()
        ctypes.PyDLL(None).flock(held.fileno(), 2)  # it holds the interpreter
    out.emit("done", {"id": row["id"], "by": "the slow one"})

with line.work():
    input()
"""


class Slow:
    """A program whose step holds the interpreter until it is let go."""

    def __init__(self, url: str, folder: Path, most: int = chunks.MOST) -> None:
        self._begun, lock = folder / "begun", folder / "lock"
        self._lock: IO[str] = lock.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        arguments = [url, str(lock), str(self._begun), str(most)]
        self.program = subprocess.Popen([sys.executable, "-c", SLOW, *arguments], stdin=subprocess.PIPE)

    @property
    def begun(self) -> list[str]:
        return self._begun.read_text().split() if self._begun.exists() else []

    def let_go(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        self._lock.close()


@pytest.fixture(params=[chunks.MOST, 0], ids=["at once", "phase by phase"])
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(chunks, "MOST", request.param)
    return int(request.param)


@pytest.fixture(autouse=True)
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease of a worker in this process is over before a test says so: a program may start slowly."""
    monkeypatch.setattr(leases, "LEASE", 300.0)


@contextmanager
def slow(url: str, folder: Path, most: int = chunks.MOST) -> Iterator[Slow]:
    one = Slow(url, folder, most)
    try:
        yield one
    finally:
        one.let_go()
        one.program.communicate(b"\n", 60)
        one.close()


def ask(ledger: Ledger, *names: str, segments: int = 1) -> None:
    spout = StreamSpout(ledger, SpoutOptions("rows", "rows", "id"))
    spout.write(pa.table({"id": list(names)}), segments=segments)


def lapse(ledger: Ledger, spared: str = "") -> None:
    """Ends the leases of all workers but one, as if ten minutes had passed."""
    key = keys.Stream("t", "rows").workers(slot_of(ledger, "rows", "slow")).decode()
    with raw_client(ledger.store.url) as client:
        for reader, text in client.hgetall(key).items():
            if reader.decode() != spared and (lease := Lease.parse(text)) is not None:
                client.hset(key, reader, b"%d %d" % (lease.until - 600_000, lease.length))


class Other:
    """A worker of the step in this process, whose function waits until it is let go."""

    def __init__(self, ledger: Ledger, name: str = "the other one") -> None:
        self.begun, self.go, self.rows = threading.Event(), threading.Event(), list[str]()
        self.worker = Worker(ledger, FunctionStep("slow", "rows", self._run))
        self.worked = list[int]()
        self.name = name
        self.ident: int | None = None
        self._thread = threading.Thread(target=lambda: self.worked.append(self.worker.work()))

    def _run(self, row: dict[str, Any], out: Out) -> None:
        self.rows.append(row["id"])
        self.begun.set()
        assert self.go.wait(120)
        out.emit("done", {"id": row["id"], "by": self.name})

    def subscribe(self) -> None:
        assert self.worker.work() == 0

    def begin(self) -> None:
        self._thread.start()
        self.ident = self._thread.ident
        assert self.begun.wait(60)

    def end(self) -> int:
        self.go.set()
        self._thread.join()
        return self.worked[0]


@contextmanager
def overtaken(url: str, folder: Path, most: int) -> Iterator[tuple[Ledger, Other, Slow]]:
    """A program that has begun a row, and a worker that takes the program for dead."""
    ledger = open_ledger(Store(url), "t", ackers=2)
    Stream(ledger, "done").subscribe("look")
    other = Other(ledger)
    other.subscribe()
    ask(ledger, "a")
    with slow(url, folder, most) as first:
        wait_until(lambda: first.begun == ["a"], 60)
        lapse(ledger, other.worker.reader)
        assert other.worker.recover() == 1
        yield ledger, other, first


def made(ledger: Ledger) -> list[tuple[str, str]]:
    return [(str(row["id"]), str(row["by"])) for row in StreamReader(ledger, "done", "look").rows()]


def published(ledger: Ledger) -> int:
    [segments] = ledger.store.send([command("XLEN", keys.Stream("t", "done").entries)])
    return int(segments)


def all_acked(ledger: Ledger) -> bool:
    """Acks what was published, too."""
    StreamReader(ledger, "done", "look").ack_all()
    found = counters(ledger)
    return found["acked"] == found["tracked"] and not {"failed", "late", "orphaned"} & set(found)


@pytest.mark.parametrize("begun_anew", [True, False])
def test_a_worker_that_was_taken_for_dead_and_ends_first_is_the_one_that_counts(
    valkey_url: str, valkey_raw: "redis.Redis", tmp_path: Path, most: int, begun_anew: bool
) -> None:
    with overtaken(valkey_url, tmp_path, most) as (ledger, other, first):
        if begun_anew:
            other.begin()
        first.let_go()
        wait_until(lambda: published(ledger) == 1, 60)
    if begun_anew:
        assert other.end() == 0
    assert other.worker.work() == 0
    assert made(ledger) == [("a", "the slow one")]
    assert all_acked(ledger)
    other.worker.end()
    settler.settle(ledger, "rows")
    for _ in range(3):
        ledger.tick(force=True)
    assert_settled(valkey_raw)


def test_a_worker_that_ends_second_commits_nothing(valkey_url: str, tmp_path: Path, most: int) -> None:
    with overtaken(valkey_url, tmp_path, most) as (ledger, other, first):
        other.begin()
        assert other.end() == 1
        first.let_go()
        ask(ledger, "b")
        wait_until(lambda: published(ledger) == 2, 60)
    assert sorted(made(ledger)) == [("a", "the other one"), ("b", "the slow one")]
    assert all_acked(ledger)


def test_rows_of_another_go_to_the_next_worker(valkey_url: str, tmp_path: Path, most: int) -> None:
    """A batch is committed as a whole: of it the other one has lost a part."""
    with overtaken(valkey_url, tmp_path, most) as (ledger, other, first):
        ask(ledger, "b")  # it takes both: what was given back comes first
        other.begin()
        first.let_go()
        wait_until(lambda: published(ledger) == 1, 60)
        assert other.end() == 0
        wait_until(lambda: published(ledger) == 2, 60)
    assert sorted(one for one, _ in made(ledger)) == ["a", "b"]
    assert all_acked(ledger)


def racing(monkeypatch: pytest.MonkeyPatch, one: Other, at: int, other: Other) -> bool:
    """Ends one, and the other before an exchange of it; False where it has not so many."""
    send, sent = Store.send, 0

    def counted(store: Store, requests: Sequence[Request]) -> list[Reply]:
        nonlocal sent
        if threading.get_ident() == one.ident:
            sent += 1
            if sent == at:
                other.end()
        return send(store, requests)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "send", counted)
        one.end()
    return sent >= at


@pytest.mark.parametrize("dead_first", [True, False])
def test_of_two_that_commit_the_same_exactly_one_does_whatever_comes_between(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, most: int, dead_first: bool
) -> None:
    """One was taken for dead and ends while the other one commits, and the other way round."""
    del most
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    Stream(ledger, "done").subscribe("look")
    winners, at, more = set[str](), 0, True
    while more:
        at += 1
        dead, other = Other(ledger, "dead"), Other(ledger, "other")
        other.subscribe()
        ask(ledger, str(at))
        dead.begin()
        lapse(ledger, other.worker.reader)
        assert other.worker.recover() == 1
        other.begin()
        one, between = (dead, other) if dead_first else (other, dead)
        more = racing(monkeypatch, one, at, between)
        if not more:
            between.end()
        found = made(ledger)
        assert [name for name, _ in found] == [str(at)], (at, found)
        assert sorted(dead.worked + other.worked) == [0, 1]
        assert all_acked(ledger), counters(ledger)
        winners |= {by for _, by in found}
        dead.worker.end()
        other.worker.end()
    assert winners == {"dead", "other"}
