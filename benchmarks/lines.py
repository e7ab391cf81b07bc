"""The cost of lines: plain Python steps on one server.

    uv run python -m benchmarks.lines [--only flow,bytes,in-flight,release,celery] [--rounds 3] ...

    flow        requests of so many tuples through three steps: one makes them, one works on each, one adds
                up. Over a line, whose last step gathers, against the same steps over plain streams, where
                nobody knows when a request is complete. At most 1.3 by the clock, and 1.2 of the processor's
                time, are asked
    bytes       what the server holds of a request in flight, but for its rows, in groups of 1,024 and of 1:
                when it is tracked, at most 64 and 900 are asked; and when a row of it waits in a gather
    in-flight   processor time of a request, alone in its group, while few and while many others wait in the
                same gather. At most 1.3 is asked
    release     from the outcome of a group's last tree in a section until readers see the bundle, in PINGs of
                the same store, as redis-py sends them; at most 60 are asked
    celery      requests a second against Celery's chords, with as many children each and as many worker
                processes (benchmarks/peers.py); at least 20 are asked

Each round measures both ways of a ratio, one after the other, and the figure is the median of the rounds'
ratios. "processor" is the time of the program, which runs the steps, and of the server's main thread.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

from acker.lines.line import coordinate
from acker.store import keys
from acker.streams.spouts import settler
from acker.workers.wakeups import Bell
from benchmarks import peers
from benchmarks.figures import Missing, Sample, check_known, rows, text
from benchmarks.line_flows import Arrival, Flow, Gathering
from benchmarks.machine import describe
from benchmarks.options import type_of
from benchmarks.servers import client, cpu_seconds, serving

TITLE = "lines"
PARTS = ("flow", "bytes", "in-flight", "release", "celery")
_PINGS = 1_000
_WORKERS = 2


@dataclass(frozen=True)
class Sizes:
    """Options. few, many: requests in flight; measured: of these, how many are timed."""

    rounds: int = 3
    only: tuple[str, ...] = PARTS
    requests: int = 10_000
    tuples: int = 100
    held: int = 8_192
    few: int = 10
    many: int = 100_000
    measured: int = 200
    releases: int = 100
    parents: int = 500
    quick_parents: int = 20_000
    children: int = 10

    def __post_init__(self) -> None:
        check_known("only", self.only, PARTS)


def samples(sizes: Sizes) -> Iterator[Sample | Missing]:
    """Measures what is asked for."""
    made = {"flow": _flow, "bytes": _bytes, "in-flight": _in_flight, "release": _release, "celery": _celery}
    for name in sizes.only:
        yield from made[name](sizes)


def _flow(sizes: Sizes) -> Iterator[Sample]:
    names = {"over plain streams": False, "over a line": True}
    wanted = sizes.requests * sizes.tuples * (sizes.tuples + 1) // 2
    for number in range(sizes.rounds):
        # Whichever comes first: what else the machine does goes on during both.
        for name in sorted(names, reverse=bool(number % 2)):
            with serving() as url:
                flow = Flow(url, "bench", sizes.tuples, names[name])
                begun, used, server = time.perf_counter(), time.process_time(), cpu_seconds(url)
                flow.run(sizes.requests)
                seconds = time.perf_counter() - begun
                used = time.process_time() - used + cpu_seconds(url) - server
                flow.topology.close()
            if flow.seen != wanted or (names[name] and flow.complete != sizes.requests):
                raise RuntimeError(f"{name}: expected a sum of {wanted:,}, got {flow.seen:,}")
            for what, value in (("seconds", seconds), ("processor", used)):
                yield Sample(f"flow {name}, {what}", value, "s", f"flow over plain streams, {what}")


def _bytes(sizes: Sizes) -> Iterator[Sample]:
    for _ in range(sizes.rounds):
        for group in (1_024, 1):
            with serving() as url:
                own = Gathering(url, group)
                own.write(2 * group, held=True)
                own.gather()
                before = _ledger_bytes(url)
                own.write(sizes.held, held=True)
                tracked = (_ledger_bytes(url) - before) / sizes.held
                own.gather()
                waiting = (_ledger_bytes(url) - before) / sizes.held
                own.topology.close()
            yield Sample(f"groups of {group:,}: tracked", tracked, "bytes/request")
            yield Sample(f"groups of {group:,}: a row waits in a gather", waiting, "bytes/request")


def _ledger_bytes(url: str) -> int:
    """Bytes of all keys but rows in streams and rows that a spout keeps.

    The keys are asked one by one: what the server has in use as a whole falls when it frees something.
    """
    with client(url) as raw:
        keys = [
            key for key in raw.scan_iter(count=10_000) if b":payload:" not in key and b":rows:" not in key
        ]
        pipe = raw.pipeline(transaction=False)
        for key in keys:
            pipe.memory_usage(key, samples=0)
        return sum(size or 0 for size in pipe.execute())


def _in_flight(sizes: Sizes) -> Iterator[Sample]:
    base = f"in flight: {sizes.few:,}"
    for _ in range(sizes.rounds):
        for count in (sizes.few, sizes.many):
            with serving() as url:
                own = Gathering(url, None)
                own.write(count, held=True)
                own.gather()
                own.write(1, held=False, spout=own.single)
                own.gather()
                own.release()
                used, server = time.process_time(), cpu_seconds(url)
                for _ in range(sizes.measured):
                    own.write(1, held=False, spout=own.single)
                    own.gather()
                    own.release()
                server = cpu_seconds(url) - server
                used = time.process_time() - used + server
                if own.finished != sizes.measured + 1:
                    raise RuntimeError(f"expected {sizes.measured + 1} requests finished, got {own.finished}")
                own.topology.close()
            each = 1e6 / sizes.measured
            yield Sample(f"in flight: {count:,}", used * each, "us/request", base, server * each)


def _release(sizes: Sizes) -> Iterator[Sample]:
    with serving() as url:
        own = Gathering(url, None)
        stop = threading.Event()
        bell = Bell(own.ledger.store, stop)
        woken = bell.listen(own.reader.keys())
        threads = [
            threading.Thread(target=bell.run),
            threading.Thread(target=coordinate, args=(own.ledger, stop, woken)),
        ]
        for thread in threads:
            thread.start()
        try:
            outcomes = own.reader.keys()
            entries = [keys.Stream(own.core.config.name, "rows").entries]
            for _ in range(sizes.rounds):
                ping = _ping(url)
                taken = []
                for _ in range(sizes.releases):
                    with ExitStack() as stack:
                        acked, seen = (stack.enter_context(Arrival(url, one)) for one in (outcomes, entries))
                        own.write(1, held=False, spout=own.single)
                        own.gather()
                        taken.append(seen.at() - acked.at())
                    while own.second.work():
                        pass
                settler.settle(own.ledger, "singles")
                yield Sample("PING", ping * 1e6, "us")
                yield Sample(
                    "last ack until readers see the bundle", statistics.median(taken) * 1e6, "us", "PING"
                )
        finally:
            bell.end()
            for thread in threads:
                thread.join()
            own.topology.close()


def _ping(url: str) -> float:
    """Seconds of a PING, the median of many."""
    taken = []
    with client(url) as raw:
        for _ in range(_PINGS):
            begun = time.perf_counter()
            raw.ping()
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _celery(sizes: Sizes) -> Iterator[Sample | Missing]:
    with serving() as url, tempfile.TemporaryDirectory(prefix="acker-peers-") as scratch:
        try:
            peer = peers.prepared("celery", Path(scratch))
        except (OSError, subprocess.CalledProcessError) as error:
            yield Missing(f"celery can't be installed: {error}")
            return
        ways = {
            "celery's chords": (peer, sizes.parents),
            "lines": (peers.prepared("lines", Path(scratch)), sizes.quick_parents),
        }
        for _ in range(sizes.rounds):
            for name, (run, parents) in ways.items():
                with client(url) as raw:
                    raw.flushall()
                taken = run(url, parents, peers.Sizes(children=sizes.children, workers=_WORKERS))
                yield Sample(
                    f"requests of {name}",
                    parents / taken.seconds,
                    "requests/s",
                    "requests of celery's chords",
                )


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the report is to be written")
    for field in fields(Sizes):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type_of(field), default=field.default)
    asked = vars(parser.parse_args())
    file = asked.pop("json")
    try:
        wanted = Sizes(**asked)
    except ValueError as error:
        parser.error(str(error))
    machine, found, missing = describe(), [], []
    for one in samples(wanted):
        print(one, flush=True)
        if isinstance(one, Sample):
            found.append(one)
        else:
            missing.append(one.reason)
    part = {
        "title": TITLE,
        "command": "uv run python -m benchmarks.lines",
        "rows": rows(found),
        "missing": missing,
    }
    report = {"machine": machine, "parts": {"lines": part}}
    if file is not None:
        file.write_text(json.dumps(report, indent=1) + "\n")
    print("\n" + text(report))


if __name__ == "__main__":
    main()
