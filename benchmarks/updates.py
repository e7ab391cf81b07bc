"""The ledger: updates per second by the size of slabs, against raw pipelined HINCRBY and a script of nothing.

    uv run python -m benchmarks updates [--updates-trees 1000000] [--updates-slabs 1,1024] ...

On the embedded Valkey, and on the redis-server of PATH if there is one. In each round redis-benchmark sends
HINCRBY, and then calls of a script that does nothing, 64 to a pipeline. Then trees are tracked in slabs of
each size, and updated by one client process and by four:

    tracked    the trees of one shard are tracked, until it is at its high-water mark
    rejected   as many are sent again, and rejected
    dense      every tree is emitted to, in the order of the slabs, and then acked, which completes it
    scattered  trees picked at random among all, 1,000 to a call: 1 % and less of the trees of a slab
    early      whole slabs of which none is tracked yet: what comes before its track waits for it
    finished   slabs some of whose trees, picked at random, are finished: all others are emitted to. Each is a
               slab here, and ratios are against slabs of which none is finished

Ratios are against HINCRBY of the same round; the ratios of rejected trees are against tracked ones. "server
us each" is processor time of the server's main thread for each update (tree, command, call): with four
clients on a machine of two cores the clock tells of the clients' waiting for a core too, this does not. Bytes
are the server's memory for each tree with an empty message id.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from acker.ledger import ids
from benchmarks.clients import Clients, opened
from benchmarks.figures import Sample
from benchmarks.ledger import new_slabs, track
from benchmarks.options import sized
from benchmarks.servers import (
    Took,
    binaries,
    client,
    cpu_seconds,
    memory,
    redis_benchmark,
    serving,
    version,
)

TITLE = "updates by the size of slabs"
_TURNS = 8


@dataclass(frozen=True)
class Sizes:
    """Options: trees in slabs of more than one; slabs of one; scattered updates; per cent; commands."""

    rounds: int = 5
    trees: int = 1_000_000
    singles: int = 200_000
    scattered: int = 100_000
    slabs: tuple[int, ...] = sized((1, 64, 256, 1024, 4096), most=ids.SLAB_TREES)
    clients: tuple[int, ...] = (1, 4)
    finished: tuple[int, ...] = sized((25, 50, 90), most=99)
    commands: int = 1_000_000

    def trees_of(self, slab: int) -> int:
        """Trees in slabs of one size: whole slabs."""
        return self.singles if slab == 1 else max(slab, self.trees // slab * slab)


def samples(sizes: Sizes) -> Iterator[Sample]:
    """Measures round by round, on one server after the other."""
    for binary in binaries():
        yield from _on_server(binary, sizes)


def _on_server(binary: Path, sizes: Sizes) -> Iterator[Sample]:
    with ExitStack() as stack:
        url = stack.enter_context(serving(binary))
        workers = {count: stack.enter_context(Clients(url, count)) for count in sizes.clients}
        server = version(url)
        for _ in range(sizes.rounds):
            for sample in _round(url, workers, sizes):
                against = f"{server}: {sample.against}" if sample.against else ""
                yield replace(sample, name=f"{server}: {sample.name}", against=against)


def _round(url: str, workers: dict[int, Clients], sizes: Sizes) -> Iterator[Sample]:
    with client(url) as raw:
        script = raw.script_load("return 1")
    for name, unit, words in (
        ("HINCRBY", "commands/s", ("HINCRBY", "h", "f", "1")),
        ("script of nothing", "calls/s", ("EVALSHA", script, "0")),
    ):
        yield _rate(name, unit, redis_benchmark(url, sizes.commands, *words), sizes.commands)
    for slab in sizes.slabs:
        yield from _tracks(url, slab, sizes)
        if slab > 1:
            yield from _partly_finished(url, slab, sizes)
            yield _early(url, slab, sizes)
        for count, clients in workers.items():
            yield from _slabs(url, clients, slab, count, sizes)


def _tracks(url: str, slab: int, sizes: Sizes) -> Iterator[Sample]:
    """Tracks up to the high-water mark, and as many trees again."""
    with client(url) as raw:
        raw.flushall()
    trees = sizes.trees_of(slab)
    ledger = opened(url, ackers=1, slab_limit=slab, high_water_mark=trees)
    for name in ("tracked", "rejected"):
        slabs = new_slabs(trees, slab)
        cpu, start = cpu_seconds(url), time.perf_counter()
        track(ledger, slabs)
        took = Took(time.perf_counter() - start, cpu_seconds(url) - cpu)
        against = f"slabs of {slab:,}, tracked"
        yield replace(_rate(f"slabs of {slab:,}, {name}", "trees/s", took, trees), against=against)
    counters = ledger.counters()
    if (counters["tracked"], counters["rejected"]) != (trees, trees):
        raise RuntimeError(f"{trees} trees should be tracked, and as many rejected: {counters}")


def _partly_finished(url: str, slab: int, sizes: Sizes) -> Iterator[Sample]:
    """Whole updates of slabs some trees of which are finished."""
    against = f"slabs of {slab:,}, none finished, dense"
    for share in (0, *sizes.finished):
        with client(url) as raw:
            raw.execute_command("FLUSHALL", "SYNC")
        slabs = max(1, sizes.trees // slab // 8)
        ledger = opened(url, ackers=1, slab_limit=slab)
        anchors, values = track(ledger, new_slabs(slabs * slab, slab))
        order = np.random.default_rng(1).random((slabs, slab)).argsort(axis=1).ravel()
        done = order < slab * share // 100
        ledger.update(anchors[done], values[done])
        cpu, start = cpu_seconds(url), time.perf_counter()
        for _ in range(_TURNS):
            ledger.update(anchors[~done], ids.new_ids(int((~done).sum())))
        took = Took(time.perf_counter() - start, cpu_seconds(url) - cpu)
        name = f"slabs of {slab:,}, {share} % finished, dense" if share else against
        yield replace(_rate(name, "slabs/s", took, _TURNS * slabs), against=against)
        if ledger.counters()["late"]:
            raise RuntimeError(f"nothing should be late: {ledger.counters()}")


def _early(url: str, slab: int, sizes: Sizes) -> Sample:
    """Whole updates of slabs that are tracked after that."""
    with client(url) as raw:
        raw.execute_command("FLUSHALL", "SYNC")
    ledger = opened(url, ackers=1, slab_limit=slab)
    slabs = new_slabs(max(1, sizes.trees // slab // _TURNS) * slab, slab)
    anchors = np.concatenate([one.anchors for one in slabs])
    values = np.concatenate([one.values for one in slabs])
    cpu, start = cpu_seconds(url), time.perf_counter()
    for _ in range(_TURNS - 1):
        emitted = ids.new_ids(len(anchors))
        values ^= emitted
        ledger.update(anchors, emitted)
    ledger.update(anchors, values)
    took = Took(time.perf_counter() - start, cpu_seconds(url) - cpu)
    track(ledger, slabs)
    counters = ledger.counters()
    if (counters["acked"], counters["orphaned"]) != (len(anchors), 0):
        raise RuntimeError(f"all that came early should be acked when it is tracked: {counters}")
    against = f"slabs of {slab:,}, none finished, dense"
    return replace(
        _rate(f"slabs of {slab:,}, early, dense", "slabs/s", took, _TURNS * len(slabs)), against=against
    )


def _slabs(url: str, clients: Clients, slab: int, count: int, sizes: Sizes) -> Iterator[Sample]:
    """Trees in slabs of one size, by one number of clients."""
    with client(url) as raw:
        raw.execute_command("FLUSHALL", "SYNC")  # otherwise a thread frees memory while it is measured
    ledger = opened(url, ackers=4, slab_limit=slab)
    empty = memory(url)
    trees = sizes.trees_of(slab)
    anchors, values = track(ledger, new_slabs(trees, slab))
    name = f"slabs of {slab:,}"
    if count == min(sizes.clients):
        # The lengths of the message ids, which are empty here, are two bytes each.
        yield Sample(f"{name}: memory", (memory(url) - empty) / trees - 2, "bytes/tree")
    by = "one client" if count == 1 else f"{count} clients"
    if slab > 1:
        picked = np.random.default_rng(1).permutation(trees)[: sizes.scattered]
        deltas = ids.new_ids(len(picked))
        values[picked] ^= deltas
        took = clients.update(anchors[picked], deltas, 1000)
        yield _rate(f"{name}, scattered, {by}", "updates/s", took, len(picked))
    batch = 16_384 if slab == 1 else 131_072
    emitted = ids.new_ids(trees)
    took = clients.update(anchors, emitted, batch) + clients.update(anchors, values ^ emitted, batch)
    yield _rate(f"{name}, dense, {by}", "updates/s", took, 2 * trees)
    counters = ledger.counters()
    if counters["acked"] != trees or counters["late"]:
        raise RuntimeError(f"{trees} trees should be acked: {counters}")


def _rate(name: str, unit: str, took: Took, amount: int) -> Sample:
    return Sample(name, amount / took.seconds, unit, "HINCRBY", took.cpu * 1e6 / amount)
