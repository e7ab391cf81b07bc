"""Names of writes to tables: one for each write of a batch, the same in each run, and of no other rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from acker.errors import AckerError, FailedException, ValidationError
from acker.ledger.client import Ledger
from acker.spark import delta, iceberg
from acker.spark.external.look import Look
from acker.spark.external.receiving import Received
from acker.spark.external.tables.transactions import Transactions
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.runtime.scope import Life
from acker.store import keys
from acker.store.operation import command
from acker.streams.staging.external.declaring import declare

SEGMENT = "0" * 28, 0


@dataclass
class _Table:
    """A table of Iceberg that answers the query for a snapshot."""

    snapshots: set[str]
    exists: bool = True

    @property
    def catalog(self) -> Any:
        return self

    def tableExists(self, _: str) -> bool:  # noqa: N802 - Spark's name
        return self.exists

    def sql(self, query: str) -> Any:
        assert self.exists, "a query of a table that is not there ends in an error"
        self._found = any(f"= '{written}'" in query for written in self.snapshots)
        return self

    def limit(self, _: int) -> Any:
        return self

    def collect(self) -> list[int]:
        return [1] * self._found


class _Collector:
    """A collector, as far as writes need it."""

    def __init__(
        self, ledger: Ledger | None, query: str = "q", number: int = 3, received: Any = (), job: bool = False
    ) -> None:
        self.received = list(received)
        at = MicroBatch(query, number, "r")
        self.transactions = Transactions(ledger, at, Life("batch"), self.received, job=job)
        self.spark: Any = _Table(set())

    def end(self, *, of_batch: bool = True, taken: bool = False) -> None:
        self.transactions.check(lambda _: of_batch, taken)


def test_a_write_has_the_name_of_its_query_and_the_number_of_its_batch(ledger: Ledger) -> None:
    first = delta.txn(_Collector(ledger), "sink")
    assert first["txnVersion"] == "3"
    assert delta.txn(_Collector(ledger), "sink") == first  # the batch runs again
    assert delta.txn(_Collector(ledger, number=4), "sink") == {**first, "txnVersion": "4"}
    others = [delta.txn(_Collector(ledger, query="other"), "sink"), delta.txn(_Collector(ledger), "second")]
    others.append(delta.txn(_Collector(None), "sink"))  # acker is turned off
    assert len({first["txnAppId"], *(one["txnAppId"] for one in others)}) == 4


def test_a_query_whose_notes_are_gone_writes_anew(ledger: Ledger) -> None:
    before = delta.txn(_Collector(ledger), "sink")
    ledger.store.send([command("UNLINK", keys.external("t", "txn", "q"))])
    assert delta.txn(_Collector(ledger), "sink")["txnAppId"] != before["txnAppId"]


def test_notes_of_a_doubt_have_an_end_if_the_earlier_ones_are_gone(ledger: Ledger) -> None:
    collector = _Collector(ledger)
    delta.txn(collector, "sink")
    notes = keys.external("t", "txn", "q")
    ledger.store.send([command("UNLINK", notes)])
    collector.transactions.doubt()
    assert ledger.store.send([command("TTL", notes)])[0] > 0


def test_a_batch_uses_a_name_once_and_a_job_has_none(ledger: Ledger) -> None:
    collector = _Collector(ledger)
    delta.txn(collector, "sink")
    with pytest.raises(AckerError, match="has begun a write named 'sink' before"):
        delta.txn(collector, "sink")
    with pytest.raises(AckerError, match="has begun a write named 'sink' before"):
        iceberg.txn(collector, "sink", "t")
    with pytest.raises(ValidationError, match="a job has no number of a batch"):
        delta.txn(_Collector(ledger, job=True), "sink")
    with pytest.raises(ValidationError, match=r"name: expected 1 to 64 .* got 'a b'"):
        delta.txn(_Collector(ledger), "a b")
    with pytest.raises(ValidationError, match="expected the collector of a bolt, got 'q'"):
        delta.txn("q", "sink")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="table: expected the name of a table, got ''"):
        iceberg.txn(_Collector(ledger), "sink", "")


def test_a_snapshot_is_looked_for_when_an_earlier_run_has_begun_its_write(ledger: Ledger) -> None:
    first, again = _Collector(ledger), _Collector(ledger)
    first.spark = None  # is not asked
    options = iceberg.txn(first, "sink", "lake.t")
    assert options is not None
    assert iceberg.txn(again, "sink", "lake.t") == options
    [written] = options.values()
    again = _Collector(ledger)
    again.spark = _Table({written})
    assert iceberg.txn(again, "sink", "lake.t") is None
    again = _Collector(ledger)
    again.spark = _Table(set(), exists=False)  # the run before has died before it made the table
    assert iceberg.txn(again, "sink", "lake.t") == options


def _received(ledger: Ledger, *failed: int) -> Received:
    external = ledger.run(declare(ledger.core, "items"))
    rows: Any = None
    look = Look(rows={SEGMENT: b"\xff"})
    found = Received(ledger, "items", rows, external, 7, look, frozenset(), fixed=True)
    found.fails[SEGMENT] = dict.fromkeys(failed, ((1,), b"odd"))
    return found


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [((), (), True), ((2,), (2,), True), ((2,), (), False), ((2,), (3,), False)],
)
def test_a_batch_that_failed_other_records_before_is_replayed(
    ledger: Ledger, before: tuple[int, ...], now: tuple[int, ...], same: bool
) -> None:
    first = _Collector(ledger, received=[_received(ledger, *before)])
    delta.txn(first, "sink")
    first.end()  # and its driver dies
    again = _Collector(ledger, received=[_received(ledger, *now)])
    delta.txn(again, "sink")
    if same:
        again.end()
    else:
        with pytest.raises(FailedException, match="which records the write 'sink' of an earlier run"):
            again.end()


@pytest.mark.parametrize("late", [False, True])
def test_fails_that_runs_cannot_compare_replay_a_batch_that_runs_again(ledger: Ledger, late: bool) -> None:
    first = _Collector(ledger)
    steps: list[Callable[[], object]] = [first.transactions.doubt, lambda: delta.txn(first, "sink")]
    for step in reversed(steps) if late else steps:
        step()
    first.end()
    again = _Collector(ledger)
    delta.txn(again, "sink")
    with pytest.raises(FailedException, match="failed or held others"):
        again.end()


def test_rows_that_may_be_others_when_the_batch_runs_again_are_refused(ledger: Ledger) -> None:
    collector = _Collector(ledger, received=[_received(ledger)])
    collector.end(of_batch=False, taken=True)  # nothing is written by a name
    delta.txn(collector, "sink")
    for how in ({"of_batch": False}, {"taken": True}):
        with pytest.raises(AckerError, match="rows that its query has not read"):
            collector.end(**how)


def test_a_commit_forgets_the_notes_of_its_batch_and_of_earlier_ones(ledger: Ledger) -> None:
    for number in (3, 4, 5):
        delta.txn(_Collector(ledger, number=number), "sink")
    collector = _Collector(ledger, number=4)
    delta.txn(collector, "other")
    ledger.run(collector.transactions.forgetting())
    [left] = ledger.store.send([command("HKEYS", keys.external("t", "txn", "q"))])
    assert sorted(left) == [b"5:sink", b"life"]
