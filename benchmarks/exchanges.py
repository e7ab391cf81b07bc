"""Exchanges of commits, a settle, a spout's write and an external flush with the store, each with one server.

    uv run python -m benchmarks.exchanges [--each]

Executors of Spark stage in processes of their own, so the driver knows nothing of what they staged: such
memories of this process are dropped before the count. An exchange is a flight of requests to the
server and their replies. --each prints the scripts and commands of each.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from acker import Topology
from acker.ledger.calls.core import Core
from acker.ledger.client import open_ledger
from acker.ledger.ids import as_ids
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_totals
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.streams import SpoutOptions, StreamReader, StreamSpout
from acker.streams.commits import anchoring, commit
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas, subscriptions
from acker.streams.log.subscriptions import Range
from acker.streams.sources import roots
from acker.streams.spouts import settler
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.staging import results, staging, vectors
from acker.streams.staging.staging import Staged, Staging
from benchmarks.servers import serving

ROWS = 100


@contextmanager
def exchanges() -> Iterator[list[list[str]]]:
    """Gets for each exchange the names of its commands and scripts, while the block runs."""
    found, send = list[list[str]](), Store.send

    def counted(store: Store, requests: Sequence[Request]) -> list[Reply]:
        found.append([one.script.name if one.script else str(one.args[0]) for one in requests])
        return send(store, requests)

    Store.send = counted  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        Store.send = send  # type: ignore[method-assign]


def as_another_process() -> None:
    """Drops what this process remembers of what it has staged."""
    vectors._known.clear()
    results._known.clear()


class Pipeline:
    """A spout, a bolt that makes a word of each line, and who reads the words."""

    def __init__(self, url: str) -> None:
        self.ledger = open_ledger(Store(url), "t", ackers=4)
        self.how = SpoutOptions("lines", "lines", "id", attempts=9)
        self.spout = StreamSpout(self.ledger, self.how)
        self.slot = self._run(subscriptions.subscribe, "lines", "split")
        self.words = StreamReader(self.ledger, "words")
        self.number = 0
        self.at = 0
        self.progress = dict[str, SettleProgress]()

    def _run(self, operation: Callable[..., object], *given: object) -> object:
        return self.ledger.run(operation(self.ledger.core, *given))  # type: ignore[arg-type]

    @property
    def core(self) -> Core:
        """The driver's core."""
        return self.ledger.core

    def lines(self) -> pa.Table:
        """The next rows of the spout."""
        first = self.number * ROWS
        return pa.table({"id": list(range(first, first + ROWS)), "line": [f"line {n}" for n in range(ROWS)]})

    def batch(self) -> tuple[Range, list[int]]:
        """The bolt's batch, and its anchors."""
        slot, run = self.slot, self.ledger.run
        end = run(subscriptions.claim(self.core, "lines", slot, "reader", self.at, name="split"))  # type: ignore[arg-type]
        read = Range("lines", slot, "reader", self.at, end)  # type: ignore[arg-type]
        found = run(subscriptions.all_delivered(self.core, read))
        self.at = end
        anchors = [anchor for one in found for anchor in self._anchors(one.segment.id)]
        return replace(read, planned=subscriptions.digest(one.segment for one in found)), anchors

    def _anchors(self, segment_id: str) -> list[int]:
        [payload] = self.ledger.store.send([_get(self.core, segment_id)])
        tables = pa.ipc.open_stream(payload).read_all()
        return list(tables.column("_acker").to_pylist())

    def stage(self, anchors: Sequence[int]) -> Staged:
        """Stages a word for each line, as an executor does."""
        rows = pa.table({"word": ["w"] * len(anchors), "_acker": pa.array(anchors, pa.int64())})
        self._run(schemas.record, "words", rows.schema)
        executor = open_ledger(self.ledger.store, "t")
        return executor.run(staging.stage(executor.core, Staging("words"), rows.to_batches()))


def _get(core: Core, segment_id: str) -> Request:
    from acker.store import keys
    from acker.store.operation import command

    return command("GET", keys.Stream(core.config.name, "lines").payload(segment_id))


def bolt(of: Pipeline) -> Callable[[], object]:
    """A batch of a bolt, whose words are staged: its check, and its commit."""
    read, anchors = of.batch()
    staged = (of.stage(anchors),)
    by = of.ledger.run(step_totals.mark(of.core, "split", of.number))
    what = Commit(staged, (read,), by=by)
    as_another_process()

    def act() -> None:
        of.ledger.run(commit.commit(of.core, "query", of.number, what))

    return act


def check(of: Pipeline) -> Callable[[], object]:
    """Checks that the words are of trees that the batch has read."""
    read, anchors = of.batch()
    staged = (of.stage(anchors),)
    as_another_process()
    return partial(of._run, anchoring.check, staged, (read,))


def spout(of: Pipeline) -> Callable[[], object]:
    """A batch of a spout, whose rows are staged: its commit."""
    executor = open_ledger(of.ledger.store, "t")
    rows = of.lines().to_batches()
    schema = roots.anchored_schema(rows[0].schema, of.how)
    executor.run(schemas.record(executor.core, "lines", schema))
    made, staged = executor.run(roots.emit(executor.core, of.how, Staging("lines"), rows))
    as_another_process()
    return partial(of._run, commit.commit, "source", of.number, Commit((staged,), made))


def settle(of: Pipeline) -> Callable[[], object]:
    """A look for outcomes that finds some: all rows were acked."""
    return partial(settler.settle, of.ledger, "lines", steps=1, readings=of.progress, on_outcomes=None)


def external_flush(url: str) -> list[list[str]]:
    """The exchanges of a flush that receives 10,000 rows of 20 segments, and sends 10,000."""
    made, step = Topology(url, "flush", linger=None), Topology(url, "flush", linger=None)
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    step.incoming("words", subscription="sink")
    spout, out = made.spout("s"), made.outgoing("items", segment_rows=500)
    batches: list[list[str]] | None = None
    for number in range(3):  # by the third the step knows the subscriptions, and the spouts of each shard
        stamps = [out.stamp(spout.emit(f"{number}-{row}")[0]) for row in range(10_000)]
        made.flush()
        rows = items.read(stamps)
        words.stamps(rows)
        items.ack(rows)
        with exchanges() as found:
            step.flush()
        batches = found
    assert batches is not None
    return batches


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--each", action="store_true")
    each = parser.parse_args().each
    with serving() as url:
        of, ledger = Pipeline(url), None
        assert ledger is None
        list(of.words.tables())
        figures = dict[str, list[list[str]]]()
        for of.number in range(3):  # by the third all is known that is asked for once
            for name, make in (("write of a spout", spout), ("commit of a bolt", bolt)):
                act = make(of)
                with exchanges() as figures[name]:
                    act()
            list(of.words.tables())
            of.words.ack_all()
            act = settle(of)
            with exchanges() as figures["settle, all acked"]:
                act()
        for of.number in range(3, 6):
            spout(of)()
            _, anchors = of.batch()
            of.ledger.send(of.core.fail(as_ids(anchors), Cause("bad").encode()))
            act = settle(of)
            with exchanges() as figures["settle, all replayed"]:
                act()
        of.number = 6
        spout(of)()
        act = check(of)
        with exchanges() as figures["check of a bolt's batch"]:
            act()
        figures["flush of external rows"] = external_flush(url)
    for name, found in figures.items():
        print(f"{name:<28}{len(found):>4}")
        for number, requests in enumerate(found if each else ()):
            counted = [f"{count} {name}" if count > 1 else name for name, count in Counter(requests).items()]
            print(f"    {number + 1}: {', '.join(counted)}")


if __name__ == "__main__":
    main()
