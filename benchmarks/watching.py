"""Ticks and event streams of a service that many people watch: are both on time?

    uv run python -m benchmarks.watching [--streams 300] [--topologies 200] [--timeout 20] [--seconds 60]
                                         [--json]

Starts a store and an `acker serve`, makes topologies with a few trees each, and opens event streams on them,
as dashboards do, from one address for each fifteen streams. For so many seconds it then reads how old the
last tick of each topology is, asks /readyz every second, and counts the frames of each stream. Tells how many
streams were refused, the most that a tick was late beyond its period, the frames a second of the slowest and
the median stream, the longest /readyz, the processor time of the service, and how long its end by SIGTERM
took. It needs Linux, whose loopback has many addresses.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from acker.embedded import EmbeddedServer
from acker.inspect.topology.totals import totals
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.store.client import Store
from benchmarks.options import Number

_OF_ADDRESS = 15
_TREES = 5
_COMMAND = [sys.executable, "-c", "from acker.cli import main; main()", "serve", "--port", "0"]


@contextmanager
def served(url: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A service of the store, with its address. The caller ends it, or it is killed."""
    words = [*_COMMAND, "--url", url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def cpu_seconds(process: int) -> float:
    """The processor time of a process so far."""
    numbers = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


class Watchers:
    """Event streams. frames: the frames of each so far. refused: how many the service has not opened."""

    def __init__(self, address: str, paths: Sequence[str]) -> None:
        self._address = address
        self._paths = paths
        self._tasks: list[asyncio.Task[None]] = []
        self._moved = asyncio.Event()
        self.frames = [0] * len(paths)
        self.refused = 0

    async def open(self) -> None:
        """Opens all of them, and waits until each has a frame or was refused."""
        for number in range(len(self._paths)):
            self._tasks.append(asyncio.create_task(self._watch(number)))
            await asyncio.sleep(0.02)
        while sum(count > 0 for count in self.frames) + self.refused < len(self._paths):
            await self._moved.wait()
            self._moved.clear()

    async def _watch(self, number: int) -> None:
        by = httpx.AsyncHTTPTransport(local_address=f"127.0.1.{1 + number // _OF_ADDRESS}")
        try:
            async with (
                httpx.AsyncClient(timeout=None, transport=by) as client,
                client.stream("GET", f"{self._address}{self._paths[number]}") as answer,
            ):
                answer.raise_for_status()
                async for line in answer.aiter_lines():
                    self.frames[number] += line.startswith("data")
                    self._moved.set()
        except httpx.HTTPStatusError:
            self.refused += 1
            self._moved.set()

    async def close(self) -> None:
        """Closes them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def latest(ledgers: Sequence[Ledger]) -> float:
    """The most seconds by which a tick of a topology is late now."""
    ages = [ledger.run(totals(ledger.core)).rotation_age or 0.0 for ledger in ledgers]
    return max(0.0, max(ages) - ledgers[0].config.tick_ms / 1000)


async def measure(
    address: str, process: int, ledgers: Sequence[Ledger], streams: int, seconds: float
) -> dict[str, float]:
    """Opens the streams, and measures for so many seconds."""
    paths = [f"/api/v1/topologies/{ledgers[n % len(ledgers)].config.name}/events" for n in range(streams)]
    watchers, late, ready = Watchers(address, paths), 0.0, 0.0
    await watchers.open()
    before, began, busy = list(watchers.frames), time.monotonic(), cpu_seconds(process)
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        while time.monotonic() < began + seconds:
            asked = time.monotonic()
            (await client.get("/readyz")).raise_for_status()
            ready = max(ready, time.monotonic() - asked)
            late = max(late, await asyncio.to_thread(latest, ledgers))
            await asyncio.sleep(1.0)
    took = time.monotonic() - began
    rates = [(now - then) / took for now, then in zip(watchers.frames, before, strict=True)]
    busy = (cpu_seconds(process) - busy) / took
    await watchers.close()
    return {
        "streams refused": watchers.refused,
        "tick late, s": late,
        "frames a second, slowest": min(rates),
        "frames a second, median": statistics.median(rates),
        "readyz, s": ready,
        "processors of the service": busy,
    }


def run(streams: int, topologies: int, timeout: float, seconds: float) -> dict[str, float]:
    """Measures all of it; returns the figures by their names."""
    with EmbeddedServer(append_only=False) as server:
        ledgers = []
        for number in range(topologies):
            ledger = open_ledger(Store(server.url), f"t{number:03}", ackers=1, message_timeout=timeout)
            names = [b"%d" % index for index in range(_TREES)]
            ledger.track_slabs([NewSlab(ids.new_anchors(_TREES), ids.new_ids(_TREES), names)], spout="s")
            ledgers.append(ledger)
        with served(server.url) as (address, process):
            found = asyncio.run(measure(address, process.pid, ledgers, streams, seconds))
            asked = time.monotonic()
            process.send_signal(signal.SIGTERM)
            status = process.wait(60)
            assert status == 0, f"the service ended with status {status}"
            return found | {"end by SIGTERM, s": time.monotonic() - asked}


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=Number(), default=300)
    parser.add_argument("--topologies", type=Number(), default=200)
    parser.add_argument(
        "--timeout", type=Number(float, least=1.0), default=20.0, help="of messages, in seconds"
    )
    parser.add_argument("--seconds", type=Number(float), default=60.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.streams, asked.topologies, asked.timeout, asked.seconds)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:28} {value:10.2f}")


if __name__ == "__main__":
    main()
