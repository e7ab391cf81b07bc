"""The cost of a call of a function: steps in plain Python, on one server.

    uv run python -m benchmarks.drpc [--calls 50] [--many 2000] [--callers 200] [--rounds 3] [--json]

First `examples/reach.py`, four steps. The workers, and who calls, are threads of one process, which is idle
but for that. Printed are:

    one by one   the median of a call, in milliseconds and in PINGs of the same server by redis-py, which are
                 sent one after the other, and each after a rest of 10 ms: a processor that has slept answers
                 later; at most 250 are asked. With it the flights of a call, and the processor's time of the
                 program and of the server
    together     requests a second of `execute_many`
    side by side requests a second of so many callers at once, each with a group of its own

Then a function that makes ten rows of each request, and counts them, against Celery's chords of ten children,
in rounds (none with --rounds 0): `execute_many` against chords that are enqueued and then worked off by two
processes (benchmarks/peers.py), at least 20 times are asked; and one by one, at least 2 times.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from acker import Topology
from acker.drpc import LinearDRPC, Out
from acker.drpc.calling.client import Client
from acker.embedded import EmbeddedServer
from acker.embedded.processes import tied
from acker.store.client import Store
from acker.store.operation import Reply, Request
from benchmarks import peers
from benchmarks.options import Number
from benchmarks.servers import client as plain
from benchmarks.servers import cpu_seconds, serving
from examples.reach import direct, function, generated

_PINGS = 1_000
_PING_NAMES = "ping", "rested_ping"
_CHILDREN = 10
_CHORDS = 500
_WORKERS = 2


def seconds(action: Callable[[], object]) -> float:
    """The seconds that an action takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _after_a_rest(action: Callable[[], object]) -> float:
    time.sleep(0.01)
    return seconds(action)


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Gets an entry for each flight of this process; a wait for something to come is no flight."""
    send, flights = Store.send, list[int]()

    def counted(store: Store, requests: Sequence[Request]) -> list[Reply]:
        if not any(one.blocks for one in requests):
            flights.append(len(requests))
        return send(store, requests)

    Store.send = counted  # type: ignore[method-assign, assignment]
    try:
        yield flights
    finally:
        Store.send = send  # type: ignore[method-assign]


def run(calls: int, many: int, callers: int) -> dict[str, float]:
    """The figures of reach. Raises SystemExit where an answer is wrong."""
    shared, followers = generated()
    urls = list(shared)
    expected = {url: direct(url, shared, followers) for url in urls}
    with EmbeddedServer(append_only=False) as server, Topology(server.url, "bench") as topology:
        reach = function(shared, followers, spark=False)
        with reach.work(topology):
            client = topology.drpc(reach.name)
            client.execute(urls[-1])
            with plain(server.url) as raw:
                ping = statistics.median(seconds(raw.ping) for _ in range(_PINGS))
                rested = statistics.median(_after_a_rest(raw.ping) for _ in range(_PINGS // 10))
            with _counting() as flights:
                program, served = time.process_time(), cpu_seconds(server.url)
                alone = statistics.median(seconds(lambda: client.execute(urls[-1])) for _ in range(calls))
                program, served = time.process_time() - program, cpu_seconds(server.url) - served
            asked = [urls[number % len(urls)] for number in range(many)]
            answers: list[object] = []
            together = seconds(lambda: answers.extend(client.execute_many(asked)))
            if answers != [expected[url] for url in asked]:
                raise SystemExit("execute_many: expected the reach of each URL as it is worked out directly")
            futures: list[Future[object]] = []

            def side_by_side() -> None:
                futures.extend(client.submit(urls[number % len(urls)]) for number in range(callers))
                for future in futures:
                    future.result()

            beside = seconds(side_by_side)
    return {
        "ping_ms": 1000 * ping,
        "rested_ping_ms": 1000 * rested,
        "call_ms": 1000 * alone,
        "call_pings": alone / ping,
        "call_rested_pings": alone / rested,
        "call_flights": len(flights) / calls,
        "call_program_ms": 1000 * program / calls,
        "call_server_ms": 1000 * served / calls,
        "together_per_second": many / together,
        "side_by_side_per_second": callers / beside,
    }


class _Count:
    def __init__(self, _: object) -> None:
        self.children = 0

    def execute(self, _: dict[str, Any]) -> None:
        self.children += 1

    def finished(self, out: Out) -> None:
        out.result(self.children)


def _fan(_: dict[str, Any], out: Out) -> None:
    for number in range(_CHILDREN):
        out.emit({"number": number})


def _child(row: dict[str, Any], out: Out) -> None:
    out.emit(row)


def _counted() -> LinearDRPC:
    """A function with the steps of a chord: children, and who learns that they are done."""
    columns = {"number": pa.int64()}
    return (
        LinearDRPC("fan", idempotent=True)
        .step("fan", _fan, columns=columns)
        .step("child", _child, columns=columns)
        .gather("parent", _Count)
    )


def against_chords(calls: int, many: int, rounds: int, chords: int = _CHORDS) -> dict[str, float]:
    """The medians of the rounds' ratios, and of what each way took.

    Raises FileNotFoundError or CalledProcessError where Celery can't be installed.
    """
    found: dict[str, list[float]] = {}

    def note(**taken: float) -> None:
        for name, value in taken.items():
            found.setdefault(name, []).append(value)

    with serving() as url, tempfile.TemporaryDirectory(prefix="acker-peers-") as scratch:
        peer = peers.prepared("celery", Path(scratch))
        sizes = peers.Sizes(children=_CHILDREN, workers=_WORKERS)
        with plain(url) as raw:
            for _ in range(rounds):
                raw.flushall()
                theirs = chords / peer(url, chords, sizes).seconds
                raw.flushall()
                one_of_theirs = _one_by_one(url, Path(scratch), calls)
                raw.flushall()
                with _working(url) as client:
                    ours = many / seconds(lambda client=client: _ask(client, many))  # type: ignore[misc]
                    one = statistics.median(seconds(lambda: client.execute(0)) for _ in range(calls))
                note(
                    chords_per_second=theirs,
                    together_per_second=ours,
                    together_ratio=ours / theirs,
                    chord_ms=1000 * one_of_theirs,
                    call_ms=1000 * one,
                    one_by_one_ratio=one_of_theirs / one,
                )
    return {name: statistics.median(values) for name, values in found.items()}


@contextmanager
def _working(url: str) -> Iterator[Client]:
    with Topology(url, "bench") as topology, _counted().work(topology):
        client = topology.drpc("fan")
        client.execute(0)
        yield client


def _ask(client: Client, many: int) -> None:
    if client.execute_many(range(many)) != [_CHILDREN] * many:
        raise SystemExit(f"execute_many: expected {_CHILDREN} of each")


def _one_by_one(url: str, scratch: Path, calls: int) -> float:
    """Seconds of a chord when its worker is idle."""
    program = [shutil.which("uv") or "uv", "run", "--quiet", "--script"]
    program.append(str(peers.PROGRAMS / peers.SLOW["celery"]))
    arguments = [url, str(scratch), str(calls), str(_CHILDREN), str(_WORKERS)]
    environment = {**os.environ, "PYTHONPATH": str(peers.ROOT)}
    work = subprocess.Popen(
        tied([*program, "work", *arguments]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        asked = subprocess.run(
            [*program, "ask", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=peers.TIMEOUT,
        )
    finally:
        peers.end_group(work)
    return statistics.median(float(line) for line in asked.stdout.split())


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=Number(), default=50)
    parser.add_argument("--many", type=Number(), default=2_000)
    parser.add_argument("--callers", type=Number(), default=200)
    parser.add_argument("--rounds", type=Number(least=0), default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.calls, asked.many, asked.callers)
    beside: dict[str, float] = {}
    if asked.rounds:
        try:
            beside = against_chords(asked.calls, asked.many, asked.rounds)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            print(f"not measured: celery can't be installed: {error}", file=sys.stderr)
    if asked.json:
        print(json.dumps({**found, "chords": beside}))
        return
    pings = [
        f"{found[f'call_{name}s']:.0f} PING of {1000 * found[f'{name}_ms']:.0f} us" for name in _PING_NAMES
    ]
    print(f"one by one: {found['call_ms']:.1f} ms a call: {', '.join(pings)}")
    took = [f"{found[f'call_{who}_ms']:.1f} ms of the {who}" for who in ("program", "server")]
    print(f"  {found['call_flights']:.0f} flights, {', '.join(took)}")
    print(f"together: {found['together_per_second']:,.0f} requests/s")
    print(f"side by side: {found['side_by_side_per_second']:,.0f} requests/s")
    if beside:
        both = f"{beside['together_per_second']:,.0f} requests/s, {beside['chords_per_second']:,.0f} chords/s"
        print(f"against chords, together: {both}, ratio {beside['together_ratio']:.1f}")
        both = f"{beside['call_ms']:.1f} ms, {beside['chord_ms']:.1f} ms a chord"
        print(f"against chords, one by one: {both}, ratio {beside['one_by_one_ratio']:.2f}")


if __name__ == "__main__":
    main()
