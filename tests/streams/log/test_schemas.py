"""Schemas of streams, and the values that they take."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import SchemaMismatch, UnknownStream, ValidationError
from acker.ledger.client import Ledger
from acker.streams import StreamReader, StreamWriter
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas, segments
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.staging import staging
from acker.streams.staging.staging import Staging
from tests.helpers.builders.streaming import commit, interleave, rows
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster(first=True)


def test_a_stream_keeps_the_schema_of_its_first_write(ledger: Ledger) -> None:
    writer = StreamWriter(ledger, "lines")
    writer.write(pa.table({"line": pa.array(["a"], pa.large_string()), "n": [1]}))
    writer.write(pa.table({"line": ["b"], "n": [2]}))
    with pytest.raises(
        SchemaMismatch, match=r"n: expected int64, got double; line: expected string, got no such column"
    ):
        StreamWriter(ledger, "lines").write(pa.table({"n": [1.5], "x": ["y"]}))
    assert [row["line"] for row in rows(ledger, "lines")] == ["a", "b"]
    ledger.run(schemas.check_reader(ledger.core, "lines", pa.schema([("n", pa.int64())])))
    with pytest.raises(SchemaMismatch, match="n: expected int64, got int32"):
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
    with pytest.raises(SchemaMismatch, match=r"s: expected struct<y: double>, got string"):
        new.write(pa.table({"n": [2], "s": ["b"]}))
    with pytest.raises(SchemaMismatch, match="n: expected int64, got no such column"):
        new.write(pa.table({"x": ["b"]}))
    # Unanchored rows need no column for it.
    staged = ledger.run(staging.stage(ledger.core, Staging("lines"), pa.table({"n": [5]}).to_batches()))
    commit(ledger, 0, Commit((staged,)))
    assert rows(ledger, "lines")[-1] == {"n": 5, "x": None, "s": None, "_acker": None}


def test_types_that_spark_tells_by_their_fields_stay_what_they_are(ledger: Ledger) -> None:
    tagged = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
    variant = pa.struct([pa.field("value", pa.binary(), nullable=False), tagged])
    schema = pa.schema([("any", variant), ("anys", pa.list_(variant))])
    ledger.run(schemas.record(ledger.core, "lines", schema))
    found = ledger.run(schemas.read(ledger.core, "lines"))
    assert found.field("any").type.equals(variant, check_metadata=True)
    assert found.field("anys").type.value_type.equals(variant, check_metadata=True)
    ledger.run(schemas.check_reader(ledger.core, "lines", schema))


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
        (
            pa.array([1], pa.time32("ms")),
            "column s.x: expected a type that Spark reads from streams, got TIME",
        ),
        (pa.array([[1]], pa.list_(pa.time64("ns"))), "column s.x.element: .* got TIME: cast it"),
        (pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.time64("ns"))), "column s.x.entries.value: .* got TIME"),
        (pa.array([b"ab"], pa.binary(2)), "column s.x: expected a type that Spark has, got fixed_size"),
        (pa.array([1001], pa.timestamp("ns")), "column s: Casting from timestamp"),
        (
            pa.array([None], pa.decimal128(5, -2)),
            r"column s.x: expected a type that Spark has, got decimal128",
        ),
    ],
)
def test_what_spark_could_not_read_is_refused(ledger: Ledger, column: Any, message: str) -> None:
    table = pa.table({"s": pa.StructArray.from_arrays([column], ["x"]), "id": ["1"]})
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id"))
    for write in (StreamWriter(ledger, "lines").write, spout.write):
        with pytest.raises(ValidationError, match=message):
            write(table)
    assert rows(ledger, "lines") == []


def test_a_column_that_is_there_twice_is_refused(ledger: Ledger) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
    with pytest.raises(ValidationError, match="expected each once, got n more often"):
        StreamWriter(ledger, "lines").write(table)


STRASSE = pa.struct([("straße", pa.int64()), ("STRAßE", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"k": [1], "v": [1], "V": [2]}, "'v' and 'V' differ in case only"),
        ({"k": [1], "K": ["two"]}, "'k' and 'K' differ in case only"),
        ({"K": [2]}, "'k' and 'K' differ in case only"),
        ({"k": [1], "Id": [1]}, "'id' and 'Id' differ in case only"),
        ({"k": [1], "_ACKER": [1]}, "'_acker' and '_ACKER' differ in case only"),
        ({"k": [1], "_Acker_finished": [True]}, "'_acker_finished' and '_Acker_finished' differ"),
        ({"k": [1], "s": pa.array([None], STRASSE)}, "column s: 'straße' and 'STRAßE' differ in case only"),
        ({"k": [1], "l": pa.array([None], pa.list_(STRASSE))}, "column l.element: 'straße' and 'STRAßE'"),
    ],
)
def test_names_that_differ_in_case_are_refused(ledger: Ledger, columns: dict[str, Any], said: str) -> None:
    """Spark takes them for the same, and could read none of the stream's columns of that name."""
    StreamWriter(ledger, "lines").write(pa.table({"k": [1], "id": [1]}))
    before = StreamReader(ledger, "lines").schema()
    table = pa.table({"id": [1], **columns})
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "k"))
    writers: list[Callable[[], object]] = [lambda: StreamWriter(ledger, "lines").write(table)]
    if {"_ACKER", "_Acker_finished"}.isdisjoint(columns) and "k" in columns:
        writers.append(lambda: spout.write(table))
    for write in writers:
        with pytest.raises(SchemaMismatch, match=said):
            write()
    assert StreamReader(ledger, "lines").schema().equals(before, check_metadata=True)
    assert len(rows(ledger, "lines")) == 1


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


def test_large_rows_start_a_segment_by_their_bytes(ledger: Ledger) -> None:
    table = pa.table({"text": ["x" * 1000] * 1000})
    ledger.run(schemas.record(ledger.core, "big", table.schema))
    staged = ledger.run(staging.stage(ledger.core, Staging("big", bytes=100_000), table.to_batches()))
    assert sum(segment.rows for segment in staged.segments) == 1000
    assert max(segment.rows for segment in staged.segments) < 200  # the last batch may take it over the limit
