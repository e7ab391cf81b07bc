"""Stores that have lost everything while processes go on: no number of before stands for something else."""

import pyarrow as pa
import pytest
import redis

from acker.errors import TopologyConfigError, UnknownTopology
from acker.inspect.operate.removal import remove
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT as SECTIONS
from acker.ledger.steps import step_totals
from acker.lines import Gather, Line, Out, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.streams import SpoutOptions, StreamReader, StreamSpout, StreamWriter
from acker.streams.commits.contents import Commit
from acker.streams.spouts import settler
from acker.workers.steps import FunctionStep, GatherStep
from acker.workers.worker import Worker
from tests.helpers.builders.gatherers import noting as noting_ends
from tests.helpers.builders.streaming import commit, stage, take, track

SPOUT = SpoutOptions("orders", "orders", "id", outcomes=False)


def opened(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=2)


def noting(ledger: Ledger, name: str, seen: dict[str, list[str]]) -> Worker:
    """A worker of a step that notes the rows of a stream."""

    def work(row: dict[str, str], _: Out) -> None:
        seen.setdefault(name, []).append(row["id"])

    return Worker(ledger, FunctionStep(name, "orders", work))


def test_steps_of_one_stream_do_not_swap_their_rows(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """The empty store numbers their subscriptions anew, in another order, for processes that are new."""
    seen, names = dict[str, list[str]](), ("bill", "pack")
    ledger = opened(valkey_url)
    old, *others = (noting(ledger, name, seen) for name in names)
    assert not any(worker.work() for worker in (old, *others))
    valkey_raw.flushall()
    ledger = opened(valkey_url)
    new = [noting(ledger, name, seen) for name in reversed(names)]
    assert not any(worker.work() for worker in new)
    StreamSpout(ledger, SPOUT).write(pa.table({"id": list("abcdef")}))
    for worker in (old, old, old, *new):
        worker.work()
    for name in names:
        assert sorted(seen[name]) == list("abcdef")
    assert settler.settle(ledger, "orders").acked == 6


@pytest.mark.parametrize("spout", [True, False])
def test_early_rows_are_for_all_steps(valkey_url: str, valkey_raw: "redis.Redis", spout: bool) -> None:
    """One of two steps finds the empty store first; the other must have the rows, too."""
    seen, names = dict[str, list[str]](), ("bill", "pack")
    ledger = opened(valkey_url)
    workers = [noting(ledger, name, seen) for name in names]

    def write(*found: str) -> None:
        rows = pa.table({"id": found})
        if spout:
            StreamSpout(ledger, SPOUT).write(rows)
        else:
            StreamWriter(ledger, "orders").write(rows)

    for written, woken in (("a", workers), ("b", workers[1:]), ("c", [])):
        for worker in woken * 3:  # its lease is lost, then its subscription; then it begins anew
            worker.work()
        write(written)
        for worker in workers * 3:
            worker.work()
        assert {name: seen[name].pop() for name in names} == dict.fromkeys(names, written)
        assert not any(seen.values())
        if spout:
            assert settler.settle(ledger, "orders").acked == 1
        valkey_raw.flushall()
        opened(valkey_url)


def coordinate(ledger: Ledger) -> None:
    reader = OutcomeReader(ledger.core, SECTIONS)
    while ledger.run(coordinator.step(ledger.core, reader)):
        pass


def in_flight(ledger: Ledger, line: str) -> Worker:
    """A request of a line, and a worker that makes nothing of it."""
    StreamSpout(ledger, SpoutOptions("orders", "orders", "id", line=line)).write(pa.table({"id": ["x"]}))
    return Worker(ledger, FunctionStep("drop", "orders", lambda _row, _out: None))


def test_a_line_with_anothers_number_completes_nothing(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """A node has lost the lines and the streams that gather, and their workers are gone."""
    ledger = opened(valkey_url)
    before = Line(ledger, "before", [Gather("parts")])
    work = in_flight(ledger, "before")
    valkey_raw.delete(keys.lines("t"), *(key for key in valkey_raw.scan_iter("acker:{t/parts}:*")))
    after = Line(ledger, "after", [Gather("pieces")])
    assert after.definition.number == before.definition.number
    ends = list[object]()
    gather = Worker(ledger, GatherStep("gather", "pieces", noting_ends(ends.append)))
    assert not gather.work()
    assert work.work() == 1
    coordinate(ledger)
    gather.work()
    assert settler.settle(ledger, "orders").acked == 0
    assert ledger.counters()["acked"] == 1, "its first section"


def test_a_lost_line_alone_gets_its_number_back(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = opened(valkey_url)
    numbers = {name: Line(ledger, name, [Gather(f"{name}s")]).definition.number for name in ("a", "b")}
    work = in_flight(ledger, "a")
    valkey_raw.delete(keys.lines("t"))
    assert Line(ledger, "c", [Gather("cs")]).definition.number not in numbers.values()
    for name in ("b", "a"):
        assert Line(ledger, name, [Gather(f"{name}s")]).definition.number == numbers[name]
    ends = list[object]()
    gather = Worker(ledger, GatherStep("gather", "as", noting_ends(ends.append)))
    assert not gather.work()
    assert work.work() == 1
    coordinate(ledger)
    assert gather.work() == 1
    assert settler.settle(ledger, "orders").acked == 1


def test_work_is_counted_for_its_own_step(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = opened(valkey_url)
    by = ledger.run(step_totals.mark(ledger.core, "bill"))
    assert ledger.run(step_totals.mark(ledger.core, "pack")) != by
    valkey_raw.flushall()
    ledger = opened(valkey_url)
    ledger.run(step_totals.mark(ledger.core, "pack"))
    anchors = track(ledger, ids.new_ids(1))
    ledger.submit(ledger.core.fail(anchors, b"", by).calls)
    assert ledger.run(step_totals.totals(ledger.core)) == []
    ledger.run(step_totals.mark(ledger.core, "bill"))
    assert [(one.step, one.failed) for one in ledger.run(step_totals.totals(ledger.core))] == [("bill", 1)]


@pytest.mark.parametrize("ackers", [1, 7])
def test_a_process_with_other_shards_acks_nothing(valkey_url: str, ackers: int) -> None:
    """It was removed and made anew: what the process would emit into trees lies where nobody looks."""
    old = opened(valkey_url)
    old.run(remove("t"))
    ledger = open_ledger(Store(valkey_url), "t", ackers=ackers)
    StreamSpout(ledger, SPOUT).write(pa.table({"id": ["a", "b", "c"]}))
    batch = take(old, "orders")
    rows = [row for table in StreamReader(ledger, "orders").tables() for row in table["_acker"].to_pylist()]
    with pytest.raises(TopologyConfigError, match=f"ackers is {ackers}, asked for 2"):
        commit(old, 0, Commit((stage(old, rows),), (batch,)))
    with pytest.raises(UnknownTopology, match="it was removed"):
        old.update(rows, [1, 2, 3])
    assert ledger.counters()["acked"] == 0
    assert commit(ledger, 0, Commit((), (batch,)))
    assert settler.settle(ledger, "orders").acked == 3
