"""The cost of an update as the work grows, against the smallest size: at most 1.3 times as much is asked.

    uv run python -m benchmarks growth [--growth-dimensions trees,tuples] [--growth-trees 10000,1000000] ...

Four dimensions, of which one at a time grows; each size has a server of its own, filled before. In a round
each size is measured in turn, by one client that sends one call after the other:

    trees        in flight, in slabs of 1,024 and of one. A call updates 8,192 trees of slabs picked at
                 random, or 4,096 slabs of one. "fields of a hash" is the server without acker: HINCRBY of
                 random fields among as many, by redis-benchmark; what it loses is the processor's waiting
                 for memory
    tuples       of each of 4,096 trees, one after the other: a call updates all trees by one tuple each, the
                 last one completes them. Tracking is not timed
    shards       of a topology with ten million trees; one update names all of them, and becomes at least one
                 script call for each shard. A call costs some 60 us by itself, which its up to 16,384 trees
                 share: with --growth-shard-trees 1000000, 256 shards have no more than 3,900 for each
    topologies   on one server, of 16,384 trees each; a call updates 8,192 of one of them, in turn

Figures are microseconds for each update, by the clock and of the server's main thread.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from benchmarks.clients import opened
from benchmarks.figures import Sample, check_known
from benchmarks.ledger import new_slabs, track
from benchmarks.servers import Took, client, cpu_seconds, redis_benchmark, serving

TITLE = "what an update costs as work grows"
SLAB = 1024
CALL_SLABS = 8
CALL_SINGLES = 4096
TUPLE_TREES = 4096
TOPOLOGY_TREES = 16_384
PART = 262_144
VECTORS = 16
DIMENSIONS = ("trees", "singles", "fields", "tuples", "shards", "topologies")


@dataclass(frozen=True)
class Sizes:
    """Options: the sizes of each dimension, and how many updates each is measured by."""

    rounds: int = 5
    dimensions: tuple[str, ...] = DIMENSIONS
    trees: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    singles: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    fields: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    tuples: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    shards: tuple[int, ...] = (1, 4, 16, 64, 256)
    topologies: tuple[int, ...] = (1, 10, 100)
    shard_trees: int = 10_000_000
    updates: int = 2_000_000
    single_updates: int = 200_000
    commands: int = 1_000_000

    def __post_init__(self) -> None:
        check_known("dimensions", self.dimensions, DIMENSIONS)


Work = Callable[[], tuple[Took, int]]
"""Updates for a while: how long it took, and how many updates it were."""


def samples(sizes: Sizes) -> Iterator[Sample]:
    """Measures one dimension after the other."""
    makers: dict[str, tuple[str, Callable[[str, int, Sizes], Work]]] = {
        "trees": ("trees in flight, slabs of 1,024", _in_slabs),
        "singles": ("trees in flight, slabs of one", _singles),
        "fields": ("fields of a hash, HINCRBY", _fields),
        "tuples": ("tuples per tree", _tuples),
        "shards": ("shards", _shards),
        "topologies": ("topologies", _topologies),
    }
    for dimension in sizes.dimensions:
        title, make = makers[dimension]
        steps: tuple[int, ...] = getattr(sizes, dimension)
        with ExitStack() as stack:
            works = {}
            for step in steps:
                url = stack.enter_context(serving())
                works[step] = make(url, step, sizes)
                works[step]()  # memory of both sides that is touched for the first time
            for _ in range(sizes.rounds):
                for step, work in works.items():
                    took, updates = work()
                    yield Sample(
                        f"{title}: {step:,}",
                        took.seconds * 1e6 / updates,
                        "us/update",
                        f"{title}: {steps[0]:,}",
                        took.cpu * 1e6 / updates,
                    )


class _Clock:
    """Adds up what was timed: with it, and not what lies between."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.took = Took(0.0, 0.0)

    def __enter__(self) -> None:
        self._cpu = cpu_seconds(self._url)
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._start
        self.took += Took(seconds, cpu_seconds(self._url) - self._cpu)


def _filled(ledger: Ledger, trees: int, slab: int) -> Ids:
    """The anchors of trees that are tracked."""
    found = []
    for first in range(0, trees, PART):
        anchors, _ = track(ledger, new_slabs(min(PART, trees - first), slab))
        found.append(anchors)
    return np.concatenate(found)


def _calls(url: str, calls: list[tuple[Ledger, Ids, Ids]]) -> Work:
    """Sends the same calls each time: what they XOR in comes out again the next time."""

    def work() -> tuple[Took, int]:
        clock = _Clock(url)
        with clock:
            for ledger, anchors, deltas in calls:
                ledger.update(anchors, deltas)
        return clock.took, sum(len(anchors) for _, anchors, _ in calls)

    return work


def _whole(trees: int) -> int:
    """So many trees, or a few more, in whole slabs, and no fewer than a call updates."""
    return max(CALL_SLABS, -(-trees // SLAB)) * SLAB


def _in_slabs(url: str, trees: int, sizes: Sizes) -> Work:
    ledger = opened(url, ackers=4)
    slabs = _filled(ledger, _whole(trees), SLAB).reshape(-1, SLAB)
    random, calls = np.random.default_rng(1), []
    for _ in range(max(1, sizes.updates // (CALL_SLABS * SLAB))):
        picked = slabs[random.choice(len(slabs), CALL_SLABS, replace=False)].ravel()
        calls.append((ledger, picked, ids.new_ids(len(picked))))
    return _calls(url, calls)


def _singles(url: str, trees: int, sizes: Sizes) -> Work:
    ledger = opened(url, ackers=4, slab_limit=1)
    anchors = _filled(ledger, trees, 1)
    random, calls = np.random.default_rng(1), []
    count = min(trees, CALL_SINGLES)
    for _ in range(max(1, sizes.single_updates // count)):
        picked = anchors[random.choice(len(anchors), count, replace=False, shuffle=False)]
        calls.append((ledger, picked, ids.new_ids(count)))
    return _calls(url, calls)


def _fields(url: str, fields: int, sizes: Sizes) -> Work:
    with client(url) as raw:
        for first in range(0, fields, PART):
            some = range(first, min(first + PART, fields))
            raw.hset("h", mapping={f"{number:012}": 1 for number in some})

    def work() -> tuple[Took, int]:
        words = ("-r", str(fields), "HINCRBY", "h", "__rand_int__", "1")
        return redis_benchmark(url, sizes.commands, *words), sizes.commands

    return work


def _tuples(url: str, tuples: int, sizes: Sizes) -> Work:
    vectors = [ids.new_ids(TUPLE_TREES) for _ in range(VECTORS)]
    times = max(1, sizes.updates // (TUPLE_TREES * tuples))

    def work() -> tuple[Took, int]:
        with client(url) as raw:
            raw.flushall()
        ledger = opened(url, ackers=4)
        clock = _Clock(url)
        for _ in range(times):
            anchors, left = track(ledger, new_slabs(TUPLE_TREES, SLAB))
            with clock:
                for number in range(tuples - 1):
                    deltas = vectors[number % VECTORS]
                    ledger.update(anchors, deltas)
                    left = left ^ deltas
                ledger.update(anchors, left)
        acked = ledger.counters()["acked"]
        if acked != times * TUPLE_TREES:
            raise RuntimeError(f"{times * TUPLE_TREES} trees should be acked, not {acked}")
        return clock.took, times * TUPLE_TREES * tuples

    return work


def _shards(url: str, shards: int, sizes: Sizes) -> Work:
    ledger = opened(url, ackers=shards)
    anchors = _filled(ledger, _whole(sizes.shard_trees), SLAB)
    times = max(1, sizes.updates // len(anchors))
    return _calls(url, [(ledger, anchors, ids.new_ids(len(anchors))) for _ in range(times)])


def _topologies(url: str, topologies: int, sizes: Sizes) -> Work:
    ledgers = [opened(url, f"bench{number}", ackers=4) for number in range(topologies)]
    held = [_filled(ledger, TOPOLOGY_TREES, SLAB) for ledger in ledgers]
    calls = []
    for number in range(max(1, sizes.updates // (CALL_SLABS * SLAB))):
        anchors = held[number % topologies][: CALL_SLABS * SLAB]
        calls.append((ledgers[number % topologies], anchors, ids.new_ids(len(anchors))))
    return _calls(url, calls)
