"""Staged rows are anchored to trees that the batch has read: on real servers, without Spark."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import AckerError, ValidationError
from acker.ledger.client import Ledger
from acker.streams.commits import anchoring, commit
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas, segments
from acker.streams.log.subscriptions import Range
from acker.streams.sources import roots
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.staging import staging
from acker.streams.staging.staging import FAILED, Staged, Staging
from tests.helpers.builders.streaming import counters, emit, stage, take

pytestmark = pytest.mark.cluster(slow=True)


def check(ledger: Ledger, staged: Staged, *inputs: Range | Roots) -> None:
    ledger.run(anchoring.check(ledger.core, (Staged.load(staged.dump()),), inputs))


def fail(ledger: Ledger, anchors: Sequence[int | None]) -> Staged:
    rows = pa.table({"_acker": pa.array(anchors, pa.int64()), FAILED: ["bad"] * len(anchors)})
    return ledger.run(staging.stage(ledger.core, Staging(""), rows.to_batches()))


def root(ledger: Ledger, number: int) -> Roots:
    how = SpoutOptions("spout", "own", "id")
    rows = pa.table({"id": [str(n) for n in range(number)]})
    [one] = ledger.run(roots.stage(ledger.core, how, Staging("own"), rows.to_batches()))
    return one


def test_a_check_takes_two_exchanges_with_the_store(ledger: Ledger) -> None:
    anchors, failed = emit(ledger, 3000), emit(ledger, 500)
    staged = (stage(ledger, anchors), fail(ledger, failed.tolist()))
    checking, flights = anchoring.check(ledger.core, staged, (take(ledger, "lines"),)), 0
    with suppress(StopIteration):
        requests = next(checking)
        while True:
            flights += 1
            requests = checking.send(ledger.store.send(requests))
    assert flights == 2


def test_rows_of_what_was_read_pass_whatever_their_slabs_are(ledger: Ledger) -> None:
    dense, few = emit(ledger, 3000), emit(ledger, 1)
    assert few[0] < 0
    tracked = root(ledger, 5000)
    read = take(ledger, "lines")
    every = np.concatenate((dense, few, tracked.anchors()))
    check(ledger, stage(ledger, every), read, tracked)
    check(ledger, stage(ledger, every[::-1]), read, tracked)
    check(ledger, stage(ledger, [int(dense[7]), int(few[0]), int(dense[2999])]), read)
    check(
        ledger,
        stage(ledger, [[int(dense[5]), 0], [int(tracked.anchors()[-1]), int(few[0])]], "many"),
        read,
        tracked,
    )
    check(ledger, fail(ledger, [int(dense[0]), int(few[0])]), read)
    assert counters(ledger) == {"tracked": 3001}  # looking changes nothing


def test_an_anchor_of_no_input_is_refused_and_named(ledger: Ledger) -> None:
    anchors = emit(ledger, 2000)
    first = take(ledger, "lines")
    later = emit(ledger, 5)
    tracked = root(ledger, 600)
    floats = anchors.astype(np.float64).astype(np.int64)
    rounded = np.append(anchors, floats[700:])
    with pytest.raises(ValidationError, match=r"expected odd numbers.* Pandas makes floats"):
        stage(ledger, rounded)
    with pytest.raises(ValidationError, match=r"expected odd numbers.* Pandas makes floats"):
        fail(ledger, rounded.tolist())
    with pytest.raises(
        AckerError, match=f"to 1 trees .* among them {later[3]}: .* anchors were changed on the way"
    ):
        check(ledger, stage(ledger, np.append(anchors, later[3])), first)
    with pytest.raises(AckerError, match=f"among them {later[0]}"):
        check(ledger, stage(ledger, [[int(anchors[0]), int(later[0])]], "many"), first)
    beyond = int(tracked.anchors()[-1]) + 2
    with pytest.raises(AckerError, match=f"among them {beyond}"):
        check(ledger, stage(ledger, [beyond]), first, tracked)
    with pytest.raises(AckerError, match=f"rows to be failed are anchored to 1 trees .* {later[1]}"):
        check(ledger, fail(ledger, [int(anchors[0]), int(later[1])]), first)
    with pytest.raises(AckerError, match="trees that the batch has not read"):
        check(ledger, stage(ledger, anchors[:1]))
    check(ledger, stage(ledger, np.append(anchors, later)), first, take(ledger, "lines"))


@pytest.mark.parametrize(
    ("anchors", "lost", "treeless"),
    [
        ([None, 1], 1, 0),
        ([[None], [], None, [None, 1], [0]], 3, 1),
        ([0, None, 0, 1], 1, 2),
        ([[0], [0, 1], [0, None], [0, 0], [], None], 2, 3),
        ([None], 1, 0),
    ],
)
def test_rows_that_lost_their_anchors_or_have_no_tree_are_counted(
    anchors: list[Any], lost: int, treeless: int
) -> None:
    kind = pa.list_(pa.int64()) if any(isinstance(one, list) for one in anchors) else pa.int64()
    column = pa.array([1, *anchors] if kind == pa.int64() else [[1], *anchors], kind)
    for part in (column, column.slice(1)):
        assert segments.unanchored(part) == lost
        assert segments.treeless(part) == treeless


def test_rows_that_say_they_have_no_tree_are_refused_where_all_that_was_read_have_one(
    ledger: Ledger,
) -> None:
    anchors = emit(ledger, 10)
    read = take(ledger, "lines")
    some, many = (
        stage(ledger, [int(anchors[0]), 0, 0]),
        stage(ledger, [[0, 0], [int(anchors[0]), 0]], "many"),
    )
    word = "0 in their column _acker .* joins several .* anchored=False"
    with pytest.raises(AckerError, match=f"2 rows for stream 'words' have {word}"):
        check(ledger, some, read)
    with pytest.raises(AckerError, match="1 rows for stream 'many' have 0"):
        check(ledger, many, read)
    with pytest.raises(AckerError, match="1 rows to be failed have 0"):
        check(ledger, fail(ledger, [int(anchors[0]), 0]), read)
    with pytest.raises(AckerError, match="2 rows to be failed have 0"):
        check(ledger, fail(ledger, [0, 0]), read)
    check(ledger, some.as_said_unanchored(), read)
    with pytest.raises(AckerError, match="2 rows for stream 'words' have 0"):
        check(ledger, some, read, root(ledger, 5))
    checking = anchoring.check(ledger.core, (some,), (read,), untracked=True)
    ledger.run(checking)  # rows that a spout let go on untracked
    mixed = stage(ledger, [int(anchors[0]), 0, None], "mixed")
    ledger.run(commit.commit(ledger.core, "writer", 0, Commit((mixed,))))
    also = take(ledger, "mixed")
    for one in (some, many, fail(ledger, [0])):
        check(ledger, one, read, also)
    with pytest.raises(AckerError, match="1 rows for stream 'mixed' have no anchors"):
        check(ledger, mixed, read, also)


def test_rows_without_anchors_are_refused_only_where_something_that_was_read_has_trees(
    ledger: Ledger,
) -> None:
    anchors = emit(ledger, 10)
    read = take(ledger, "lines")
    plain = pa.table({"word": ["a", "b"]})
    ledger.run(schemas.record(ledger.core, "plain", plain.schema))
    unanchored = ledger.run(staging.stage(ledger.core, Staging("plain"), plain.to_batches()))
    lost = stage(ledger, [int(anchors[0]), None])
    check(ledger, unanchored)
    with pytest.raises(AckerError, match=r"2 rows for stream 'plain' have no anchors, but .* anchored=False"):
        check(ledger, unanchored, read)
    with pytest.raises(AckerError, match="1 rows for stream 'words' have no anchors"):
        check(ledger, lost, read)
    with pytest.raises(AckerError, match="1 rows to be failed have null"):
        check(ledger, fail(ledger, [int(anchors[0]), None]), read)
    ledger.run(commit.commit(ledger.core, "writer", 0, Commit((unanchored,))))
    check(ledger, unanchored, take(ledger, "plain"))


def test_what_was_acked_meanwhile_is_known_by_its_rows_and_refuses_nobody(ledger: Ledger) -> None:
    """Another driver has finished the batch: this one's commit is found to be done."""
    anchors = emit(ledger, 100)
    read = take(ledger, "lines")
    staged = stage(ledger, anchors)
    ledger.run(commit.commit(ledger.core, "other", 0, Commit((stage(ledger, anchors, "others"),), (read,))))
    check(ledger, staged, read)
    with pytest.raises(AckerError, match="trees that the batch has not read"):
        check(ledger, stage(ledger, emit(ledger, 1)), read)


def test_what_is_read_for_spark_has_no_null_among_its_anchors() -> None:
    """pandas would make floats of them."""

    def read(kind: pa.DataType, found: list[Any]) -> list[Any]:
        schema = pa.schema([("_acker", kind), ("n", pa.int64())])
        batch = pa.record_batch({"_acker": pa.array(found, kind)})
        return segments.read(batch, schema).column(0).to_pylist()  # type: ignore[no-any-return]

    lists = pa.list_(pa.field("element", pa.int64()))
    assert read(pa.int64(), [1, None, -(2**63)]) == [1, 0, -(2**63)]
    assert read(lists, [[1, None], None, [], [2, 3]]) == [[1, 0], [0], [0], [2, 3]]
    assert read(lists, [[1], [2, 3]]) == [[1], [2, 3]]
    without = pa.record_batch({"n": pa.array([1], pa.int64())})
    assert segments.read(without, pa.schema([("_acker", pa.int64())])).column(0).to_pylist() == [0]
