"""Streams without Spark: segments, staging and commits, on real servers."""

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from acker import ids, inspect, keys
from acker.errors import (
    CommitOrderError,
    SchemaMismatch,
    StagingExpired,
    StoreError,
    UnknownStream,
    ValidationError,
)
from acker.ids import Ids
from acker.ledger import Ledger, open_ledger
from acker.requests import Operation
from acker.store import Store
from acker.streams import StreamReader, StreamWriter, commits, schemas, segments, staging, subscriptions
from acker.streams.commits import Commit
from acker.streams.segments import Segment
from acker.streams.staging import FAILED, Staged, Staging
from acker.streams.subscriptions import DEFAULT, Range
from acker.submissions import NewSlab
from tests.servers import raw_client

pytestmark = pytest.mark.cluster

T = TypeVar("T")


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3)


def track(ledger: Ledger, values: Ids, slab: int = 1000) -> Ids:
    """Tracks one tree for each value; returns the anchors."""
    anchors, slabs = [], []
    for at in range(0, len(values), slab):
        part = values[at : at + slab]
        anchors.append(ids.new_anchors(len(part)))
        slabs.append(NewSlab(anchors[-1], part, [b"%d" % n for n in range(at, at + len(part))]))
    assert set(ledger.track_slabs(slabs, spout="s")) == {"A"}
    return np.concatenate(anchors)


def emit(ledger: Ledger, number: int, stream: str = "lines") -> Ids:
    """A spout: tracks and publishes that many rows as one segment."""
    writer = StreamWriter(ledger, stream)
    batch = writer.batch(pa.table({"line": [f"line {n}" for n in range(number)]}))
    anchors = track(ledger, batch.ids())
    writer.publish(batch, anchors)
    return anchors


def stage(ledger: Ledger, anchors: Ids | list[Any], stream: str = "words", **how: Any) -> Staged:
    """A task of a bolt: stages a row for each anchor (or list of them)."""
    kind = pa.list_(pa.int64()) if any(isinstance(anchor, list) for anchor in anchors) else pa.int64()
    rows = pa.table({"word": [f"w{n}" for n in range(len(anchors))], "_acker": pa.array(anchors, kind)})
    ledger.run(schemas.record(ledger.core, stream, rows.schema))
    return ledger.run(staging.stage(ledger.core, Staging(stream, **how), rows.to_batches()))


def take(ledger: Ledger, stream: str, name: str = DEFAULT, reader: str = "reader", **most: Any) -> Range:
    """A batch: what a reader of a subscription can take."""
    slot = ledger.run(subscriptions.subscribe(ledger.core, stream, name))
    at = ledger.run(subscriptions.last_taken(ledger.core, stream, slot, reader))
    end = ledger.run(subscriptions.claim(ledger.core, stream, slot, reader, at, **most))
    return Range(stream, slot, reader, at, end)


def commit(ledger: Ledger, number: int, what: Commit) -> bool:
    return ledger.run(commits.commit(ledger.core, "writer", number, what))


def consume(ledger: Ledger, stream: str, name: str = DEFAULT) -> int:
    return StreamReader(ledger, stream, name).ack_all()


def rows(ledger: Ledger, stream: str) -> list[dict[str, object]]:
    return list(StreamReader(ledger, stream).rows())


def counters(ledger: Ledger) -> dict[str, int]:
    """The counters that are not zero."""
    return {name: value for name, value in ledger.counters().items() if value}


def kept(url: str, word: bytes) -> list[bytes]:
    """Keys with a word in them that have no time to live."""
    with raw_client(url) as client:
        return [key for key in client.scan_iter(b"*" + word + b"*") if client.ttl(key) == -1]


def run_cut(ledger: Ledger, operation: Operation[object], after: int) -> bool:
    """Runs an operation as a process does that ends after so many exchanges; returns whether it was cut."""
    replies = None
    for _ in range(after + 1):
        try:
            requests = operation.send(replies)  # type: ignore[arg-type]
        except StopIteration:
            return False
        replies = ledger.store.send(requests)
    return True


# From a spout to a bolt


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
        tree = ledger.run(inspect.tree(ledger.core, anchor))
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
    assert counters(ledger) == {"tracked": 4, "failed": 2, "late": 2}
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 4, "failed": 2, "late": 2, "acked": 2}


def test_reasons_go_with_rows_of_several_anchors() -> None:
    anchors = pa.array([[1, 2], [], None, [3, None]], pa.list_(pa.int64()))
    found, reasons = staging.rows_failures(anchors, pa.array(["a", "b", "c", "d"]))
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


# Commits


@pytest.mark.parametrize("failed", [None, "why"])
def test_a_commit_cut_anywhere_is_finished_as_it_was_stored(url: str, failed: str | None) -> None:
    for after in count():
        ledger = open_ledger(Store(url), f"cut{after}", ackers=2)
        anchors = emit(ledger, 30)
        first = (stage(ledger, np.repeat(anchors, 2), rows=25), stage(ledger, anchors[:1], "others"))
        inputs = (take(ledger, "lines"),)
        what = Commit(first, inputs) if failed is None else Commit(inputs=inputs, failed=failed)
        cut = run_cut(ledger, commits.commit(ledger.core, "writer", 7, what), after)
        assert ledger.run(commits.known(ledger.core, "writer", 7))
        # The rerun has made something else of the batch.
        second = (stage(ledger, anchors[:7]),)
        assert not commit(ledger, 7, Commit(second, inputs))
        commit(ledger, 7, Commit((stage(ledger, anchors[:3]),), inputs))
        assert rows(ledger, "lines") == []
        assert len(rows(ledger, "words")) == (60 if failed is None else 0)
        consume(ledger, "words")
        consume(ledger, "others")
        total = counters(ledger)
        total.pop("duplicates", None)
        assert total == {"tracked": 30, "failed" if failed else "acked": 30}
        assert not kept(url, b"staged")
        assert not kept(url, b"payload")
        if not cut:
            assert after > 5
            return


def test_two_drivers_of_one_batch_carry_one_of_the_commits_out(ledger: Ledger) -> None:
    anchors = emit(ledger, 20)
    inputs = (take(ledger, "lines"),)
    one = commits.commit(ledger.core, "writer", 0, Commit((stage(ledger, anchors),), inputs))
    two = commits.commit(ledger.core, "writer", 0, Commit((stage(ledger, np.repeat(anchors, 2)),), inputs))
    results = interleave(ledger, one, two)
    assert sorted(results) == [False, True]
    assert len(rows(ledger, "words")) == (20 if results[0] else 40)
    consume(ledger, "words")
    total = counters(ledger)
    total.pop("duplicates", None)
    assert total == {"tracked": 20, "acked": 20}


def interleave(ledger: Ledger, *operations: Operation[T]) -> list[T]:
    """Runs operations in turn, one exchange each."""
    results: dict[int, T] = {}
    replies: list[Any] = [None] * len(operations)
    while len(results) < len(operations):
        for number, operation in enumerate(operations):
            if number in results:
                continue
            try:
                requests = operation.send(replies[number])
                replies[number] = ledger.store.send(requests)
            except StopIteration as end:
                results[number] = end.value
    return [results[number] for number in range(len(operations))]


def test_staged_data_that_timed_out_is_an_error_and_not_a_loss(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    staged = stage(ledger, anchors)
    token = staged.segments[0].token
    shard = staged.segments[0].shards[0]
    batch = take(ledger, "lines")
    ledger.store.send([_command("DEL", ledger.core.shards[shard].staged(token, 0))])
    with pytest.raises(StagingExpired):
        commit(ledger, 0, Commit((staged,), (batch,)))
    assert rows(ledger, "words") == []
    assert len(rows(ledger, "lines")) == 10
    # The batch can run again.
    assert commit(ledger, 0, Commit((stage(ledger, anchors),), (batch,)))
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 10, "acked": 10}


def test_a_stored_commit_whose_data_timed_out_gives_way_to_the_rerun(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    staged = stage(ledger, anchors)
    assert run_cut(ledger, commits.commit(ledger.core, "writer", 0, Commit((staged,))), 0)
    assert ledger.run(commits.known(ledger.core, "writer", 0))
    ledger.run(commits.discard(ledger.core, Commit((staged,))))
    assert not ledger.run(commits.finish(ledger.core, "writer", 0))
    assert commit(ledger, 0, Commit((stage(ledger, anchors),), (take(ledger, "lines"),)))
    assert len(rows(ledger, "words")) == 10


def test_a_commit_sent_again_is_known_as_the_same(ledger: Ledger) -> None:
    what = Commit((stage(ledger, emit(ledger, 5)),), (take(ledger, "lines"),))
    assert commit(ledger, 3, what)
    assert commit(ledger, 3, what)
    assert len(rows(ledger, "words")) == 5
    assert ledger.run(commits.finish(ledger.core, "writer", 3))
    assert not ledger.run(commits.finish(ledger.core, "writer", 4))


def test_commits_of_a_writer_go_forward_only_and_the_last_two_are_kept(ledger: Ledger, url: str) -> None:
    for number in range(5):
        commit(ledger, number, Commit())
    assert commit(ledger, 3, Commit())
    with pytest.raises(CommitOrderError, match="commit 2 comes after commit 4"):
        commit(ledger, 2, Commit())
    with raw_client(url) as client:
        stored = client.hgetall(keys.commits("t", "writer"))
    assert set(stored) == {b"last", b"3:state", b"3:what", b"4:state", b"4:what"}
    assert not kept(url, b"commits")


def test_what_is_staged_and_not_committed_times_out(ledger: Ledger, url: str) -> None:
    stage(ledger, emit(ledger, 100), rows=10, ttl=100)
    assert not kept(url, b"staged")
    assert not kept(url, b"words}:payload")
    with raw_client(url) as client:
        assert all(0 < client.ttl(key) <= 100 for key in client.scan_iter(b"*words}:payload*"))


def test_a_late_copy_of_a_stage_call_does_not_undo_what_happened_since(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    sent: list[Any] = []
    staged = record_requests(ledger, lambda: stage(ledger, anchors), sent)
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    ledger.store.send(sent)
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 10, "acked": 10}


def record_requests(ledger: Ledger, action: Callable[[], T], sent: list[Any]) -> T:
    send = ledger.store.send

    def recording(requests: Any) -> Any:
        sent.extend(requests)
        return send(requests)

    ledger.store.send = recording  # type: ignore[method-assign]
    try:
        return action()
    finally:
        del ledger.store.send


# Schemas and values


def test_a_stream_keeps_the_schema_of_its_first_write(ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "lines")
    writer.write(pa.table({"line": pa.array(["a"], pa.large_string()), "n": [1]}))
    writer.write(pa.table({"line": ["b"], "n": [2]}))
    with pytest.raises(SchemaMismatch, match=r"n is int64, not double; line is string, not missing"):
        StreamWriter(ledger, "lines").write(pa.table({"n": [1.5], "x": ["y"]}))
    assert [row["line"] for row in rows(ledger, "lines")] == ["a", "b"]
    ledger.run(schemas.check_reader(ledger.core, "lines", pa.schema([("n", pa.int64())])))
    with pytest.raises(SchemaMismatch, match="n is int64, not int32"):
        ledger.run(schemas.check_reader(ledger.core, "lines", pa.schema([("n", pa.int32())])))


def test_a_schema_evolves_by_added_columns(ledger: Ledger) -> None:
    old, new = StreamWriter(ledger, "lines"), StreamWriter(ledger, "lines")
    old.write(pa.table({"n": [1]}))
    new.write(pa.table({"n": [2], "x": ["b"], "s": [{"y": 1.5}]}))
    old.write(pa.table({"n": [3]}))
    StreamWriter(ledger, "lines").write(pa.table({"n": [4], "s": [{"y": 2.5}]}))
    assert [(row["n"], row["x"], row["s"]) for row in rows(ledger, "lines")] == [
        (1, None, None),
        (2, "b", {"y": 1.5}),
        (3, None, None),
        (4, None, {"y": 2.5}),
    ]
    with pytest.raises(SchemaMismatch, match=r"s is struct<y: double>, not string"):
        new.write(pa.table({"n": [2], "s": ["b"]}))
    with pytest.raises(SchemaMismatch, match="n is int64, not missing"):
        new.write(pa.table({"x": ["b"]}))
    # Unanchored rows need no column for it.
    staged = ledger.run(staging.stage(ledger.core, Staging("lines"), pa.table({"n": [5]}).to_batches()))
    commit(ledger, 0, Commit((staged,)))
    assert rows(ledger, "lines")[-1] == {"n": 5, "x": None, "s": None, "_acker": None}


def test_two_writers_that_add_columns_at_once_both_add_them(ledger: Ledger) -> None:
    StreamWriter(ledger, "lines").write(pa.table({"n": [1]}))
    one, two = (
        schemas.record(ledger.core, "lines", pa.schema([("n", pa.int64()), (name, pa.string())]))
        for name in ("one", "two")
    )
    interleave(ledger, one, two)
    assert set(StreamReader(ledger, "lines").schema().names) == {"n", "_acker", "one", "two"}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1], pa.uint8()), "column s.x: expected a type that Spark has, got uint8"),
        (pa.array([1], pa.time32("s")), r"column s.x: expected a type that Spark has, got time32\[s\]"),
        (pa.array([1001], pa.timestamp("ns")), "column s: Casting from timestamp"),
    ],
)
def test_what_spark_could_not_read_is_refused(ledger: Ledger, column: Any, message: str) -> None:
    table = pa.table({"s": pa.StructArray.from_arrays([column], ["x"])})
    with pytest.raises(ValidationError, match=message):
        StreamWriter(ledger, "lines").write(table)
    assert rows(ledger, "lines") == []


def test_a_column_that_is_there_twice_is_refused(ledger: Ledger) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
    with pytest.raises(ValidationError, match="expected each once, got n more often"):
        StreamWriter(ledger, "lines").write(table)


def test_a_writer_records_its_schema_again_in_a_store_that_lost_everything(ledger: Ledger, url: str) -> None:
    writer = StreamWriter(ledger, "lines")
    writer.write(pa.table({"n": [1]}))
    with raw_client(url) as client:
        client.flushall()
    writer.write(pa.table({"n": [2]}))
    assert [row["n"] for row in StreamReader(ledger, "lines").rows()] == [2]


def test_a_stream_nobody_wrote_is_unknown_and_reads_as_empty(ledger: Ledger) -> None:
    reader = StreamReader(ledger, "nothing")
    assert list(reader.tables()) == []
    with pytest.raises(UnknownStream, match="nothing"):
        reader.schema()


def test_bad_values_are_refused(ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "lines")
    with pytest.raises(ValidationError, match="rows: expected 1 to"):
        writer.batch(pa.table({"a": []}))
    with pytest.raises(ValidationError, match="_acker"):
        writer.batch(pa.table({"_acker": [1]}))
    with pytest.raises(ValidationError, match="anchors: expected 1, got 2"):
        writer.publish(writer.batch(pa.table({"a": [1]})), [1, 2])
    with pytest.raises(ValidationError, match="compression: expected one of lz4, zstd, none"):
        StreamWriter(ledger, "lines", compression="gzip")
    with pytest.raises(ValidationError, match="expected bigint or array<bigint>, got string"):
        segments.edges(pa.array(["a"]))
    with pytest.raises(StoreError):
        Segment.parse(b"[1]")
    with pytest.raises(StoreError):
        Commit.load("{}")


def test_large_rows_start_a_segment_by_their_bytes(ledger: Ledger) -> None:
    table = pa.table({"text": ["x" * 1000] * 1000})
    ledger.run(schemas.record(ledger.core, "big", table.schema))
    staged = ledger.run(staging.stage(ledger.core, Staging("big", bytes=100_000), table.to_batches()))
    assert sum(segment.rows for segment in staged.segments) == 1000
    assert max(segment.rows for segment in staged.segments) < 200  # the last batch may take it over the limit


def _command(name: str, key: bytes) -> Any:
    from acker.requests import command

    return command(name, key)
