"""Streams without Spark, on real servers: from a spout to a bolt."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.trees import trees
from acker.store.client import Store
from acker.streams import StreamReader, StreamWriter
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas, segments
from acker.streams.staging import failed_rows, staging
from acker.streams.staging.staging import FAILED, Staging
from tests.helpers.builders.streaming import commit, consume, counters, emit, kept, rows, stage, take, track

pytestmark = pytest.mark.cluster


def test_a_spouts_rows_can_be_read_and_acked(ledger: Ledger) -> None:
    anchors = emit(ledger, 2500)
    reader = StreamReader(ledger, "lines")
    [table] = reader.tables()
    assert table.column("_acker").to_pylist() == anchors.tolist()
    assert table.column("line").to_pylist()[-1] == "line 2499"
    assert counters(ledger) == {"tracked": 2500}
    assert reader.ack() == 1
    assert reader.count() == 0
    assert counters(ledger) == {"tracked": 2500, "acked": 2500}


def test_a_batch_published_again_changes_nothing_even_after_it_was_consumed(ledger: Ledger, url: str) -> None:
    writer = StreamWriter(ledger, "lines")
    batch = writer.batch(pa.table({"line": ["a", "b"]}))
    anchors = track(ledger, batch.ids())
    for _ in range(2):
        writer.publish(batch, anchors)
    assert len(rows(ledger, "lines")) == 2
    assert consume(ledger, "lines") == 1
    writer.publish(batch, anchors)
    assert rows(ledger, "lines") == []
    assert counters(ledger) == {"tracked": 2, "acked": 2}
    assert not kept(url, b"staged")
    assert not kept(url, b"payload")


def test_a_tree_is_complete_when_all_segments_of_all_streams_are_acked(ledger: Ledger) -> None:
    anchors = emit(ledger, 100)
    staged = (stage(ledger, np.repeat(anchors, 3)), stage(ledger, anchors[:50], "others"))
    assert commit(ledger, 0, Commit(staged, (take(ledger, "lines"),)))
    assert counters(ledger) == {"tracked": 100}
    assert consume(ledger, "words") == 1
    assert counters(ledger) == {"tracked": 100, "acked": 50}
    assert consume(ledger, "others") == 1
    assert counters(ledger) == {"tracked": 100, "acked": 100}


def test_rows_with_several_anchors_and_with_none(ledger: Ledger) -> None:
    a, b, c = emit(ledger, 3).tolist()
    staged = stage(ledger, [[a, b], [c, c], [], None, [a, None]])
    assert commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    assert counters(ledger) == {"tracked": 3}
    assert [row["_acker"] for row in rows(ledger, "words")] == [[a, b], [c, c], [], None, [a, None]]
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 3, "acked": 3}


def test_rows_that_follow_each_other_with_the_same_anchors_are_an_edge_each(ledger: Ledger) -> None:
    a, b, c = emit(ledger, 3).tolist()
    anchored = [[a, b], [a, b], [b, c], [b, c], [b, c], [a, b], [c, c]]
    staged = stage(ledger, anchored)
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    [segment] = staged.segments
    edges = iter(segments.edge_ids(segment.seed, segment.slots[0], np.arange(2 * len(anchored))).tolist())
    expected = dict.fromkeys((a, b, c), 0)
    for row in anchored:
        for anchor in row:
            expected[anchor] ^= next(edges)
    for anchor, value in expected.items():
        tree = ledger.run(trees.tree(ledger.core, anchor))
        assert tree is not None
        assert tree.value == value


def test_only_rows_of_one_length_have_a_width() -> None:
    def width(rows: list[Any]) -> int:
        return segments.width(pa.chunked_array([rows], pa.list_(pa.int64())))

    assert width([[1, 2], [1, 2]]) == 2
    assert width([[1, 2], [1]]) == width([[1, 2], None]) == width([[1, 2], [1, None]]) == 1
    assert width([]) == width([[], []]) == 1
    assert segments.width(pa.chunked_array([[1, 2]])) == 1


def test_rows_without_trees(ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "dead")
    writer.write(pa.table({"why": ["x", "y"]}))
    assert rows(ledger, "dead") == [{"why": "x", "_acker": None}, {"why": "y", "_acker": None}]
    assert consume(ledger, "dead") == 1
    assert counters(ledger) == {}


def test_without_ackers_streams_carry_rows_all_the_same(url: str) -> None:
    ledger = open_ledger(Store(url), "untracked", ackers=0)
    staged = stage(ledger, [1, 2, 3])
    assert staged.segments[0].shards == ()
    assert commit(ledger, 0, Commit((staged,)))
    assert len(rows(ledger, "words")) == 3
    assert consume(ledger, "words") == 1


def test_many_scattered_trees_go_in_bounded_chunks(ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "lines")
    batch = writer.batch(pa.table({"line": ["x"] * 5000}))
    anchors = track(ledger, batch.ids(), slab=2)
    writer.publish(batch, anchors)
    shuffled = np.random.default_rng(1).permutation(np.concatenate([anchors, anchors[::2]]))
    staged = stage(ledger, shuffled, rows=1000)
    assert [segment.rows for segment in staged.segments] == [1000] * 7 + [500]
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    assert counters(ledger) == {"tracked": 5000}
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 5000, "acked": 5000}


def test_a_spout_that_registers_meanwhile_does_not_stop_a_commit(ledger: Ledger, url: str) -> None:
    anchors = emit(ledger, 10)
    staged = stage(ledger, anchors)
    other = open_ledger(Store(url), "t")
    anchor = ids.new_anchors(1)
    for spout in ("another", "third"):
        other.track(anchor, [5], [b"m"], spout=spout)
        anchor = ids.new_anchors(1)
    for shard in range(3):  # every shard knows of the new spout
        while ids.shard_of(ids.slab_of(int(anchor[0])), 3) != shard:
            anchor = ids.new_anchors(1)
        other.track(anchor, [5], [b"m"], spout="third")
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    consume(ledger, "words")
    assert ledger.counters()["acked"] == 10


# Failing


def test_failed_rows_fail_their_trees_alone(ledger: Ledger) -> None:
    anchors = emit(ledger, 4)
    table = pa.table(
        {"word": ["a", None, "c", "d"], "_acker": anchors, FAILED: [None, "bad b", None, "x" * 5000]}
    )
    ledger.run(schemas.record(ledger.core, "words", table.drop_columns(FAILED).schema))
    staged = ledger.run(staging.stage(ledger.core, Staging("words"), table.to_batches()))
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    assert [row["word"] for row in rows(ledger, "words")] == ["a", "c"]
    assert counters(ledger) == {"tracked": 4, "failed": 2}
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 4, "failed": 2, "acked": 2}


def test_reasons_go_with_rows_of_several_anchors() -> None:
    anchors = pa.array([[1, 2], [], None, [3, None]], pa.list_(pa.int64()))
    found, reasons = failed_rows.rows_failures(anchors, pa.array(["a", "b", "c", "d"]))
    assert found.tolist() == [1, 2, 3]
    assert reasons == ["a", "a", "d"]


def test_failing_the_inputs_fails_all_their_trees_once(ledger: Ledger, url: str) -> None:
    emit(ledger, 1500)
    for number in range(2):
        commit(ledger, number, Commit(inputs=(take(ledger, "lines"),), failed="no luck"))
    assert counters(ledger) == {"tracked": 1500, "failed": 1500}
    assert rows(ledger, "lines") == []
    assert not kept(url, b"staged")
    assert not kept(url, b"payload")
