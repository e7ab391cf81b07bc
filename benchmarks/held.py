"""The time for which the chains of a commit hold one server, for commits of many small things.

    uv run python -m benchmarks.held [--times N] [--each]

Nobody else has a turn while a chain runs, so none should take more than 10 ms. The figure is the processor
time of the server's main thread for a chain, with what it takes to read the request. Each commit is made
--times times, on new data; the median of its longest chains is printed. --each prints each chain of the last
one. The weights of acker/streams/commits/chunks.py are set by it.
"""

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import redis

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.causes import Cause
from acker.ledger.slabs.slabs import NewSlab
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.streams import StreamWriter
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.log import schemas, subscriptions
from acker.streams.log.subscriptions import Range
from acker.streams.staging import staging
from acker.streams.staging.staging import Staged, Staging
from benchmarks.exchanges import as_another_process
from benchmarks.servers import serving

LIMIT = 10.0
"""Milliseconds for which a chain may hold the server."""


@dataclass
class Chain:
    """A chain that was run: its milliseconds, and how many of each script it has."""

    took: float
    scripts: Counter[str]


@contextmanager
def measured(url: str) -> Iterator[list[Chain]]:
    """Gets each chain while the block runs. Requests go one by one meanwhile."""
    found, send, raw = list[Chain](), Store.send, redis.Redis.from_url(url)

    def spent() -> float:
        facts = raw.info("cpu")
        return float(facts["used_cpu_user_main_thread"]) + float(facts["used_cpu_sys_main_thread"])

    def timed(store: Store, requests: Sequence[Request]) -> list[Reply]:
        replies = list[Reply]()
        for one in requests:
            if one.script is None or one.script.name != "chain":
                replies += send(store, [one])
                continue
            before = spent()
            replies += send(store, [one])
            found.append(Chain(1000 * (spent() - before), scripts_of(one)))
        return replies

    Store.send = timed  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        Store.send = send  # type: ignore[method-assign]
        raw.close()


def scripts_of(chain: Request) -> Counter[str]:
    """The scripts of a chain."""
    found, at = Counter[str](), 0
    while at < len(chain.args):
        found[str(chain.args[at])] += 1
        at += 3 + int(chain.args[at + 2])
    return found


class Made:
    """Trees, and the batches of their rows."""

    def __init__(self, url: str) -> None:
        self.ledger: Ledger = open_ledger(Store(url), "t", ackers=4, message_timeout=600.0)
        self.core = self.ledger.core
        self.number = 0

    def emit(self, rows: int, segments: int) -> np.ndarray:
        """Tracks trees, and publishes a row of each, in so many segments; returns the anchors."""
        writer, every = StreamWriter(self.ledger, "lines"), []
        for part in np.array_split(np.arange(rows), segments):
            batch = writer.batch(pa.table({"line": [f"line {n}" for n in part]}))
            anchors, slabs = [], []
            for at in range(0, len(part), 4_096):
                values = batch.ids()[at : at + 4_096]
                anchors.append(ids.new_anchors(len(values)))
                slabs.append(NewSlab(anchors[-1], values, [b"%d" % n for n in range(len(values))]))
            self.ledger.track_slabs(slabs, spout="s")
            writer.publish(batch, np.concatenate(anchors))
            every += anchors
        return np.concatenate(every)

    def take(self) -> Range:
        """All rows of the lines."""
        run, core = self.ledger.run, self.core
        slot = run(subscriptions.subscribe(core, "lines", "split"))
        reader = f"reader{self.number}"
        end = run(subscriptions.claim(core, "lines", slot, reader, 0, name="split"))
        return Range("lines", slot, reader, 0, end)

    def stage(self, anchors: np.ndarray, stream: str = "words", rows: int = 131_072) -> Staged:
        """Stages a word for each tree, by segments of so many."""
        table = pa.table({"word": ["w"] * len(anchors), "_acker": pa.array(anchors, pa.int64())})
        self.ledger.run(schemas.record(self.core, stream, table.schema))
        return self.ledger.run(staging.stage(self.core, Staging(stream, rows=rows), table.to_batches()))


def small_segments(of: Made) -> Commit:
    """2,000 segments of one row each."""
    anchors = of.emit(2_000, 1)
    return Commit((of.stage(anchors, rows=1),), (of.take(),))


def small_inputs(of: Made) -> Commit:
    """An ack of 1,000 segments of one row each."""
    of.emit(1_000, 1_000)
    return Commit((), (of.take(),))


def many_streams(of: Made) -> Commit:
    """300 streams, which get a segment each."""
    anchors = of.emit(300, 1)
    staged = tuple(of.stage(anchors[n : n + 1], f"words{n}") for n in range(300))
    return Commit(staged, (of.take(),))


def after_fails(of: Made) -> Commit:
    """An ack of 4 segments whose 100,000 trees the commit fails."""
    anchors = of.emit(100_000, 4)
    causes = [Cause("bad", "split").encode().decode()] * len(anchors)
    failures = of.ledger.run(staging.stage_failures(of.core, 3600, anchors, causes))
    return Commit((Staged("", (), tuple(failures)),), (of.take(),))


def after_others(of: Made) -> Commit:
    """An ack of 4 segments whose 100,000 trees others have failed."""
    anchors = of.emit(100_000, 4)
    for part in np.array_split(anchors, 50):
        of.ledger.send(of.core.fail(part, Cause("bad").encode()))
    return Commit((), (of.take(),))


def half_failed(of: Made) -> Commit:
    """An ack of 4 segments of 100,000 trees, of which the commit fails each second."""
    anchors = of.emit(100_000, 4)
    causes = [Cause("bad", "split").encode().decode()] * len(anchors[::2])
    failures = of.ledger.run(staging.stage_failures(of.core, 3600, anchors[::2], causes))
    return Commit((Staged("", (), tuple(failures)),), (of.take(),))


def large(of: Made) -> Commit:
    """100,000 rows, which are acked and of which as many are emitted."""
    anchors = of.emit(100_000, 4)
    return Commit((of.stage(anchors),), (of.take(),))


CASES = (small_segments, small_inputs, many_streams, after_fails, half_failed, after_others, large)


def longest(case: Callable[[Made], Commit]) -> list[Chain]:
    """The chains of one commit, on a server of its own."""
    chains = list[Chain]()
    with serving() as url:
        of = Made(url)
        for of.number in range(2):  # the second time, all is known that is asked for once
            what = case(of)
            as_another_process()
            with measured(url) as chains:
                assert of.ledger.run(commit.commit(of.core, f"query{of.number}", 0, what, at_hand=AtHand()))
    return chains


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    for case in CASES:
        if asked.only and case.__name__ != asked.only:
            continue
        runs = [longest(case) for _ in range(asked.times)]
        most = statistics.median(max(one.took for one in chains) for chains in runs)
        print(f"{(case.__doc__ or ''):<62}{len(runs[-1]):>4} chains, longest {most:>5.1f} ms", flush=True)
        for one in runs[-1] if asked.each else ():
            named = ", ".join(f"{count} {name}" for name, count in one.scripts.items())
            print(f"    {one.took:5.1f} ms  {named}")


if __name__ == "__main__":
    main()
