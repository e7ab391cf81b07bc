"""One record at a time: from the emit of a tree of three tuples to its outcome, against a PING.

    uv run python -m benchmarks single [--single-trees 2000] [--single-rounds 5]

A spout emits a record, a bolt emits two tuples anchored to it and acks all three, and the spout learns the
outcome; then the next one. Spout and bolt have a `Topology` each, as they would in processes of their own;
the PING is sent by redis-py, which acker uses too.

    flushed            what each has buffered is sent at once by `Topology.flush`: three round trips (track,
                       update, outcome) and the code around them
    linger of 0, 5 ms  nothing is flushed: spout and bolt send after the linger, 5 ms by default, each by a
                       thread of its own
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from acker import Topology
from acker.collectors.bolt import Bolt
from acker.collectors.spout import Spout
from benchmarks.figures import Sample
from benchmarks.servers import client, serving

TITLE = "from emit to outcome, one tree of three tuples at a time"
WAYS = {"flushed": (0.005, True), "linger of 0 ms": (0.0, False), "linger of 5 ms": (0.005, False)}


@dataclass(frozen=True)
class Sizes:
    """Options: trees of each way in a round."""

    rounds: int = 5
    trees: int = 2_000


def samples(sizes: Sizes) -> Iterator[Sample]:
    """Measures PING and the ways, round by round."""
    with ExitStack() as stack:
        url = stack.enter_context(serving())
        raw = stack.enter_context(client(url))
        ways = {}
        for name, (linger, flush) in WAYS.items():
            topologies = [
                stack.enter_context(Topology(url, name.replace(" ", "-"), linger=linger)) for _ in range(2)
            ]
            ways[name] = topologies[0].spout("records"), topologies[1].bolt("split"), flush
        for _ in range(sizes.rounds):
            yield from _percentiles("PING", [_ping(raw) for _ in range(sizes.trees)])
            for name, (spout, bolt, flush) in ways.items():
                taken = [_tree(spout, bolt, number, flush) for number in range(sizes.trees)]
                yield from _percentiles(name, taken)


def _ping(raw: object) -> float:
    start = time.perf_counter()
    raw.ping()  # type: ignore[attr-defined]
    return time.perf_counter() - start


def _tree(spout: Spout, bolt: Bolt, number: int, flush: bool) -> float:
    start = time.perf_counter()
    [record] = spout.emit(b"%d" % number)
    if flush:
        spout.topology.flush()
    first, second = bolt.emit([record], targets=2)
    for one in (record, first, second):
        bolt.ack(one)
    if flush:
        bolt.topology.flush()
    [outcome] = spout.outcomes(timeout=60.0)
    taken = time.perf_counter() - start
    if outcome.status != "acked":
        raise RuntimeError(f"the tree should be acked: {outcome}")
    spout.confirm(outcome)
    return taken


def _percentiles(name: str, taken: list[float]) -> Iterator[Sample]:
    for part in (50, 99):
        value = float(np.percentile(taken, part)) * 1000
        yield Sample(f"{name}, p{part}", value, "ms", f"PING, p{part}")
