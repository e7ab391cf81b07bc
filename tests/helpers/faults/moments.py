"""Moments of a commit, by the requests that pass a proxy: a writer commits in a process of Spark's own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from socket import socket
from threading import Barrier, Event, Lock
from typing import TypeAlias

import redis
from pyspark.sql import SparkSession

from acker.store import scripts
from tests.helpers.faults.attempts import wait_for
from tests.helpers.faults.proxy import Proxy, proxied

Asked: TypeAlias = Callable[[bytes], bool]
"""True of the requests to look for."""
_MANY = 100
LONG = 240.0
"""Seconds that anything may take."""


def keys_of(url: str, pattern: str) -> int:
    """The number of keys that match."""
    with redis.Redis.from_url(url) as client:
        return sum(1 for _ in client.scan_iter(pattern, count=1000))


def stores(request: bytes) -> bool:
    """Stores a commit: all is staged, and nobody knows of it yet."""
    begins, chain = scripts.get("begin_commit"), scripts.get("chain").sha
    alone = begins.sha in request and b"\r\n[" in request  # with no text it only looks
    return alone or (chain in request and b"\r\nbegin_commit\r\n" in request)


def publishes(request: bytes) -> bool:
    """Publishes segments: the trees know of their tuples by then."""
    return _runs("publish", request)


def ends(request: bytes) -> bool:
    """Notes that a commit is done."""
    return _runs("advance_commit", request) and b"\r\ndone\r\n" in request


def _runs(name: str, request: bytes) -> bool:
    own, chain = scripts.get(name).sha, scripts.get("chain").sha
    return own in request or (chain in request and b"\r\n%b\r\n" % name.encode() in request)


class Held:
    """Holds the first request back that is looked for, until it may go on: a `Proxy.passed`."""

    def __init__(self, asked: Asked) -> None:
        self.reached, self.go = Event(), Event()
        self._asked = asked
        self._lock = Lock()

    def __call__(self, _: socket, request: bytes) -> None:
        """Takes its time where it is that one."""
        if self._asked(request) and self._first():
            assert self.go.wait(LONG)

    def _first(self) -> bool:
        with self._lock:
            first = not self.reached.is_set()
            self.reached.set()
            return first


class Meeting:
    """Holds two requests that are looked for back until both are there: a `Proxy.passed`."""

    def __init__(self, asked: Asked) -> None:
        self.met = Event()
        self._asked = asked
        self._barrier = Barrier(2, self.met.set, LONG)

    def __call__(self, _: socket, request: bytes) -> None:
        """Waits for the other."""
        if self._asked(request) and not self.met.is_set():
            self._barrier.wait()


def threads(spark: SparkSession, count: int) -> ThreadPoolExecutor:
    """Threads that can write: Spark knows a data source only where its session is the active one."""
    activate = partial(spark.createDataFrame, [(0,)], "n int")
    return ThreadPoolExecutor(count, initializer=activate)


def run_with_pauses(
    spark: SparkSession,
    run: Callable[[], object],
    proxy: Proxy,
    *pauses: tuple[Asked, Callable[[], object]],
) -> None:
    """Runs something in a thread of its own, and raises what it raises.

    pauses: a request that is looked for, and what is done meanwhile in this thread, which may start processes
    (`acker.embedded.processes.tied`): the request goes on after that. One after the other.
    """
    held = [Held(asked) for asked, _ in pauses]

    def passed(client: socket, request: bytes) -> None:
        for one in held:
            one(client, request)

    proxy.passed = passed
    with threads(spark, 1) as thread:
        done = thread.submit(run)
        try:
            for one, (_, what) in zip(held, pauses, strict=True):
                wait_for(lambda one=one: one.reached.is_set() or done.done(), LONG)  # type: ignore[misc]
                if not done.done():
                    what()
                one.go.set()
        finally:
            for one in held:
                one.go.set()
        done.result()
    assert all(one.reached.is_set() for one in held)


@contextmanager
def refused_from(url: str, asked: Asked) -> Iterator[str]:
    """A URL of the store where a request that is looked for is lost, and all after it, as if the process had
    ended there: the caller gets StoreError ("on purpose") at once."""
    begun = Event()

    def refuse(client: socket, request: bytes) -> None:
        if begun.is_set() or asked(request):
            begun.set()
            client.sendall(b"-ERR on purpose\r\n" * _MANY)  # for each request of its flight
            raise OSError("the request is lost")

    with proxied(url) as proxy:
        proxy.passed = refuse
        yield proxy.url
    assert begun.is_set()
