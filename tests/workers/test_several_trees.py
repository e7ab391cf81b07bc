"""Rows of several trees, as a join makes them, in steps in plain Python."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import FailedException
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import new_ids
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.user_functions.async_calls import Pace
from acker.lines import Out
from acker.store.client import Store
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.streaming import commit, consume, rows, stage, track


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "t", ackers=2)


def joined(ledger: Ledger, *trees: Any) -> list[int]:
    """Rows of trees that are named by their places: tracks these, and returns their anchors."""
    anchors = track(ledger, values := new_ids(6)).tolist()
    named = [[None if one is None else one and anchors[one - 1] for one in row] for row in trees]
    commit(ledger, 0, Commit((stage(ledger, named, "joined").as_said_unanchored(),)))
    ledger.update(anchors, values)
    return anchors  # type: ignore[no-any-return]


def ended(ledger: Ledger, anchors: list[int]) -> dict[int, tuple[str, str]]:
    """The outcomes there are, by the place of their tree."""
    reader = OutcomeReader(ledger.core, "s")
    found = dict[int, tuple[str, str]]()
    for entry in ledger.run(reader.read()):
        for slab in entry.slabs:
            for index in slab.indexes_in(len(anchors)):
                found[index + 1] = entry.status, slab.cause.reason
    return found


def raising(row: dict[str, Any], out: Out) -> None:
    out.emit("made", {"word": row["word"]})
    if row["word"] in ("w0", "w3"):
        raise FailedException(f"no {row['word']}")


async def raising_soon(row: dict[str, Any], out: Out) -> None:
    raising(row, out)


@pytest.mark.parametrize(("function", "pace"), [(raising, None), (raising_soon, Pace())])
def test_a_row_that_fails_fails_all_its_trees_at_once_and_no_other(
    ledger: Ledger, function: Callable[..., object], pace: Pace | None
) -> None:
    worker = Worker(ledger, FunctionStep("b", "joined", function, pace=pace))
    assert not worker.work()
    anchors = joined(ledger, [1, 2, 1, None, 0], [3, 4], [], [0], [2, 5], [6])
    assert worker.work() == 1
    assert worker.work() == 0
    consume(ledger, "made")
    assert ended(ledger, anchors) == {
        1: ("failed", "no w0"),
        2: ("failed", "no w0"),
        **dict.fromkeys((3, 4, 5, 6), ("acked", "")),
    }


def test_what_a_step_emits_is_of_all_trees_of_its_row(ledger: Ledger) -> None:
    worker = Worker(ledger, FunctionStep("b", "joined", lambda row, out: out.emit("made", row)))
    assert not worker.work()
    anchors = joined(ledger, [1, 2, 1], [3], [], [None, 0], [5, 6])
    assert worker.work() == 1
    assert [row["_acker"] for row in rows(ledger, "made")] == [
        [anchors[0], anchors[1]], [anchors[2]], [0], [0], [anchors[4], anchors[5]]
    ]  # fmt: skip
    assert ended(ledger, anchors) == {4: ("acked", "")}
    consume(ledger, "made")
    assert set(ended(ledger, anchors).values()) == {("acked", "")}


def test_a_row_of_several_trees_has_no_place_among_rows_of_one(ledger: Ledger) -> None:
    made = pa.schema([("word", pa.string()), ("_acker", pa.int64())])
    ledger.run(schemas.record(ledger.core, "made", made))
    worker = Worker(ledger, FunctionStep("b", "joined", lambda row, out: out.emit("made", row)))
    assert not worker.work()
    anchors = joined(ledger, [1, 2], [3, 3], [], [4, 5, 6])
    assert worker.work() == 1
    assert [row["_acker"] for row in rows(ledger, "made")] == [anchors[2], 0]
    found = ended(ledger, anchors)
    assert {place: status for place, (status, _) in found.items()} == dict.fromkeys((1, 2, 4, 5, 6), "failed")
    assert "column _acker: expected one tree for a row" in found[1][1]
