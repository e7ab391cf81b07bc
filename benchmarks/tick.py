"""The cost of a tick for others: 10 million trees in flight expire while another client pings the server.

    uv run python -m benchmarks.tick [--trees 10000000] [--slab 1024] [--url redis://...] [--json]
    uv run python -m benchmarks tick [--tick-trees 100000,1000000,10000000] [--tick-rounds 5] ...

Tells how long the other client waited (percentiles of its round trips, and of those without any tick before),
the longest command by the server's own slow log, the most processor time of the server for a call, and how
many trees expired per second. The slow log counts also for how long the server waited for a processor in the
middle of a command, as where more processes are busy than there are processors; its processor time does not.
"""

import argparse
import json
import multiprocessing
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import redis

from acker.embedded import EmbeddedServer
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.store.operation import Reply, Request
from benchmarks.figures import Sample
from benchmarks.ledger import new_slabs, track
from benchmarks.options import Number, sized
from benchmarks.servers import serving

PART = 262_144
TITLE = "what a tick costs others, and how fast what expired is drained"


@dataclass(frozen=True)
class Sizes:
    """Options: trees in flight, trees to a slab, seconds of pinging before the tick."""

    rounds: int = 5
    trees: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    slab: int = sized(1024, most=ids.SLAB_TREES)
    before: int = sized(2, least=0)


def samples(sizes: Sizes) -> Iterator[Sample]:
    """The results of `measure`, for each number of trees."""
    with serving() as url:
        for _ in range(sizes.rounds):
            for trees in sizes.trees:
                found = measure(url, trees, sizes.slab, sizes.before)
                before, during = (
                    f"{trees:,} trees: another client, {when}" for when in ("without tick", "during ticks")
                )
                yield Sample(f"{trees:,} trees: drained", found["expired per second"], "trees/s")
                yield Sample(f"{trees:,} trees: longest command", found["slowest command (ms)"], "ms")
                most = found["most processor time of a call (ms)"]
                yield Sample(f"{trees:,} trees: most processor time of a call", most, "ms")
                for part in ("p50", "p99.9", "longest"):
                    value = found[f"another client without tick, {part} (ms)"]
                    yield Sample(f"{before}, {part}", value, "ms")
                    value = found[f"another client during ticks, {part} (ms)"]
                    yield Sample(f"{during}, {part}", value, "ms", f"{before}, {part}")


def ping(url: str, pipe: Connection) -> None:
    """Pings until it is to stop; sends the round trips in seconds."""
    host, port = url.removeprefix("redis://").split("/")[0].split(":")
    taken: list[float] = []
    with socket.create_connection((host, int(port))) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not taken or not pipe.poll():
            start = time.perf_counter()
            server.sendall(b"PING\r\n")
            server.recv(64)
            taken.append(time.perf_counter() - start)
            if len(taken) == 1:
                pipe.send(None)
            time.sleep(0.0005)
    pipe.send(np.array(taken))


class Pinger:
    """Another client, in a process of its own."""

    def __init__(self, url: str) -> None:
        self._pipe, child = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=ping, args=(url, child))
        self._process.start()
        self._pipe.recv()  # it has begun

    def stop(self) -> dict[str, float]:
        """Percentiles of its round trips, in milliseconds."""
        self._pipe.send(None)
        taken = self._pipe.recv() * 1000
        self._process.join()
        return {
            "p50": float(np.percentile(taken, 50)),
            "p99.9": float(np.percentile(taken, 99.9)),
            "longest": float(taken.max()),
        }


class Metered(Store):
    """A store that notes the most processor time which a server of this machine took for a batch of requests.

    most: seconds. The kernel counts nanoseconds of the server's main thread; INFO is a call itself.
    """

    def __init__(self, url: str, server: int) -> None:
        super().__init__(url, timeout=60)
        self.most = 0.0
        self._spent = Path(f"/proc/{server}/task/{server}/schedstat")

    def send(self, requests: Sequence[Request]) -> list[Reply]:
        """Sends like any store."""
        before, replies, after = self._seconds(), super().send(requests), self._seconds()
        self.most = max(self.most, after - before)
        return replies

    def _seconds(self) -> float:
        return int(self._spent.read_text().split()[0]) / 1e9


def measure(url: str, trees: int, slab: int, before: float = 5.0) -> dict[str, float]:
    """Tracks, ticks three times, drains; what it cost."""
    raw = redis.Redis.from_url(url)
    raw.flushall()
    raw.config_set("slowlog-log-slower-than", 1000)
    raw.config_set("slowlog-max-len", 1000)
    ledger = open_ledger(Store(url, timeout=60), "bench", ackers=4, high_water_mark=1_000_000_000)
    for first in range(0, trees, PART):
        track(ledger, new_slabs(min(PART, trees - first), slab))
    pinger = Pinger(url)
    time.sleep(before)
    quiet = pinger.stop()
    raw.slowlog_reset()
    pinger = Pinger(url)
    metered = Metered(url, raw.info("server")["process_id"])
    ticking = Ledger(metered, ledger.core)
    start = time.perf_counter()
    expired = sum(ticking.tick(force=True).expired for _ in range(3))
    seconds = time.perf_counter() - start
    during = pinger.stop()
    assert expired == trees, (expired, trees)
    slowest = max((entry["duration"] for entry in raw.slowlog_get(1000)), default=0) / 1000
    return {
        "trees": trees,
        "expired per second": expired / seconds,
        "slowest command (ms)": slowest,
        "most processor time of a call (ms)": metered.most * 1000,
        **{f"another client without tick, {name} (ms)": value for name, value in quiet.items()},
        **{f"another client during ticks, {name} (ms)": value for name, value in during.items()},
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", type=Number(), default=10_000_000)
    parser.add_argument("--slab", type=Number(most=ids.SLAB_TREES), default=1024)
    parser.add_argument("--url")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with ExitStack() as stack:
        url = asked.url or stack.enter_context(EmbeddedServer(append_only=False)).url
        found = measure(url, asked.trees, asked.slab)
    if asked.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"{name:48} {value:14,.2f}")


if __name__ == "__main__":
    main()
