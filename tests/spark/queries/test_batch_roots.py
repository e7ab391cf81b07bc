"""Roots of rows, however Spark repeats their tasks: reported by the script alone, without Spark."""

from itertools import count

import pytest

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.spark.queries import batch_roots, microbatches
from acker.store import keys
from acker.streams.sources import scripts as spouts_lua
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions

HOW = SpoutOptions("s", "s.replays", "id")
AT = microbatches.MicroBatch("query", 7, "run")


class Batch:
    """A batch of a query, and the tasks that work on it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.partitions = count()

    def task(
        self,
        stage: int,
        partition: int,
        attempt: int,
        rows: str,
        roots_id: str,
        source: str = "a",
        own: int | None = None,
    ) -> str:
        """A task has staged rows as an id; returns the id that it is to use.

        own: the number of their partition where they are tracked; by default another one for each call.
        """
        key = keys.tracked(self.ledger.config.name, "query", "run", 7)
        roots = batch_roots.STAGED.dump((Roots(roots_id.encode().hex(), 1, 1, 1, HOW),))
        number = next(self.partitions) if own is None else own
        task = stage, partition, attempt
        [chosen] = self.ledger.store.send(
            [spouts_lua.register_roots(key, 600, source, task, rows, roots, number)]
        )
        [one] = batch_roots.STAGED.load(chosen)
        return bytes.fromhex(one.id).decode()

    def registered(self) -> list[str]:
        return sorted(bytes.fromhex(one.id).decode() for one in batch_roots.registered(self.ledger, AT))


@pytest.fixture
def batch(ledger: Ledger) -> Batch:
    return Batch(ledger)


def test_the_first_attempt_that_has_staged_wins(batch: Batch) -> None:
    assert batch.task(1, 0, 10, "x", "first") == "first"
    assert batch.task(1, 0, 11, "x", "speculative") == "first"
    assert batch.task(1, 0, 12, "other rows", "retried") == "first"
    assert batch.task(1, 1, 13, "y", "second") == "second"
    assert batch.registered() == ["first", "second"]


def test_partitions_of_the_same_rows_have_roots_of_their_own(batch: Batch) -> None:
    assert batch.task(1, 0, 10, "x", "a") == "a"
    assert batch.task(1, 1, 11, "x", "b") == "b"
    assert [batch.task(2, 0, 12, "x", "c"), batch.task(2, 1, 13, "x", "d")] == ["a", "b"]
    assert batch.registered() == ["a", "b"]


def test_branches_of_a_union_that_evaluate_the_same_partition_agree_about_its_roots(batch: Batch) -> None:
    """One stage has them all: tasks 0 and 1 are of one branch, 2 and 3 of the other."""
    assert [batch.task(1, task, 10 + task, "x", f"left {task}", own=task) for task in (0, 1)] == [
        "left 0", "left 1",
    ]  # fmt: skip
    assert [batch.task(1, task + 2, 12 + task, "x", f"right {task}", own=task) for task in (0, 1)] == [
        "left 0", "left 1",
    ]  # fmt: skip
    assert batch.task(1, 2, 14, "x", "repeated", own=0) == "left 0"
    assert [batch.task(2, 0, attempt, "x", "coalesced", own=0) for attempt in (20, 20, 21)] == ["left 0"] * 3
    assert batch.registered() == ["left 0", "left 1"]


def test_another_evaluation_knows_the_rows_though_its_tasks_are_numbered_otherwise(batch: Batch) -> None:
    assert batch.task(1, 0, 10, "x", "a") == "a"
    assert batch.task(1, 1, 11, "y", "b") == "b"
    assert batch.task(5, 3, 12, "y", "c") == "b"
    assert batch.task(5, 2, 13, "x", "d") == "a"
    assert batch.registered() == ["a", "b"]


def test_a_task_may_work_on_several_partitions_and_be_repeated(batch: Batch) -> None:
    assert [batch.task(1, 0, 10, rows, name) for rows, name in [("x", "a"), ("x", "b"), ("y", "c")]] == [
        "a", "b", "c",
    ]  # fmt: skip
    again = [batch.task(1, 0, 11, rows, name) for rows, name in [("x", "d"), ("x", "e"), ("y", "f")]]
    assert again == ["a", "b", "c"]
    assert batch.registered() == ["a", "b", "c"]


def test_an_evaluation_of_some_partitions_agrees_with_one_of_all(batch: Batch) -> None:
    batch.task(1, 0, 10, "x", "a")
    batch.task(2, 0, 11, "x", "b")
    batch.task(2, 1, 12, "y", "c")
    assert batch.registered() == ["a", "c"]


def test_evaluations_that_cut_the_rows_otherwise_are_refused(batch: Batch) -> None:
    batch.task(1, 0, 10, "x", "a")
    batch.task(1, 1, 11, "y", "b")
    batch.task(2, 0, 12, "x and y", "c")
    with pytest.raises(
        AckerError, match="batch 7 was evaluated several times, with other rows or partitions"
    ):
        batch.registered()


def test_sources_are_apart(batch: Batch) -> None:
    assert batch.task(1, 0, 10, "x", "a", source="one") == "a"
    assert batch.task(1, 0, 10, "x", "b", source="two") == "b"
    assert batch.registered() == ["a", "b"]
    batch.ledger.store.send([batch_roots.forget_request(batch.ledger.core, AT)])
    assert batch.registered() == []
