"""Values that are equal by Spark's rules are one key, whichever batch they are in; others are several."""

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import Cause
from acker.lines import Gather, Line
from acker.streams import SpoutOptions, StreamReader, StreamSpout
from acker.streams.log import fairness, gathers
from acker.streams.log.gathers import Gathering
from acker.streams.staging import staging
from acker.streams.staging.staging import Staging
from acker.streams.types import equality

NOON = dt.datetime(2026, 6, 1, 12)
POINT = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])
WORDS = pa.map_(pa.string(), pa.int64())
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]


def text(*found: bytes) -> pa.Array:
    plain = pa.array(found)
    return pa.StringArray.from_buffers(len(found), *plain.buffers()[1:])


def keys(column: pa.Array) -> list[bytes | None]:
    places, found = equality.encoded(column)
    return [found[place] if place < len(found) else None for place in places.tolist()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([0.0], pa.float32()), pa.array([-0.0], pa.float64())),
        (pa.array([float("nan")]), pa.array([OTHER_NAN])),
        (pa.array([Decimal("1.50")]), pa.array([Decimal("1.5")], pa.decimal128(38, 18))),
        (pa.array([Decimal("0.00")]), pa.array([Decimal(0)])),
        (pa.array([Decimal("100")]), pa.array([Decimal("100.0")])),
        (pa.array([7], pa.int8()), pa.array([7], pa.int64())),
        (pa.array([NOON], pa.timestamp("us", "UTC")), pa.array([NOON], pa.timestamp("s", "Europe/Berlin"))),
        (pa.array([NOON], pa.timestamp("us")), pa.array([NOON], pa.timestamp("ms"))),
        (pa.array(["é"]), pa.array(["é"], pa.large_string()).dictionary_encode()),
        (pa.array([{"x": 0.0, "y": ["a"]}], POINT), pa.array([{"x": -0.0, "y": ["a"]}], POINT)),
        (pa.array([[("a", 1), ("b", 2)]], WORDS), pa.array([[("b", 2), ("a", 1)]], WORDS)),
        (pa.array([None], pa.string()), pa.nulls(1)),
    ],
    ids=lambda one: str(one.type),
)
def test_equal_values_are_one_key_in_whichever_batch_they_are(one: pa.Array, other: pa.Array) -> None:
    assert keys(one) == keys(other)
    how = Gathering(1, 1, 64, ("v",))
    [here], [there] = (gathers.tasks_of(how, "s", pa.table({"v": column})) for column in (one, other))
    assert here == there
    [here, there] = (fairness.keys_of(pa.record_batch({"v": column}), "v") for column in (one, other))
    assert here == there


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0.0, 1.0, float("nan"), None, float("inf")]),
        pa.array([Decimal("1"), Decimal("10"), Decimal("0.1"), Decimal("-1")]),
        pa.array(["e\u0301", "é", "E", "", None]),
        text(b"caf\xe9", b"caf\xe8", "caf\ufffd".encode()),
        pa.array([3_000_000, 3_000_001], pa.int32()).cast(pa.date32()),
        pa.array([["a", "b"], ["ab"], ["a", None], [], [None], None]),
        pa.array([{"x": 1.0, "y": ["a"]}, {"x": 1.0, "y": []}, {"x": 1.0}, None], POINT),
        pa.array([[("a", 1)], [("a", 2)], [("b", 1)], [], None], WORDS),
        pa.array([b"a", b"a\0"]),
    ],
    ids=lambda column: str(column.type),
)
def test_other_values_are_other_keys(column: pa.Array) -> None:
    found = keys(column)
    assert len(set(found)) == len(column)
    assert keys(pa.chunked_array([column, column.slice(1)])) == found + found[1:]


def test_a_record_whose_value_python_cannot_show_fails_alone_where_it_would_gather(ledger: Ledger) -> None:
    Line(ledger, "line", [Gather("rows", 4, ("name", "day"))])
    how = SpoutOptions("asks", "asks", "id", attempts=1, line="line", group=4)
    StreamSpout(ledger, how).write(pa.table({"id": ["1", "2", "3", "4"]}))
    anchors: list[Any] = [row["_acker"] for row in StreamReader(ledger, "asks").rows()]
    days = pa.array([0, 0, 3_000_000, 0], pa.int32()).cast(pa.date32())
    rows = pa.record_batch({"name": text(b"a", b"caf\xe9", b"c", b"d"), "day": days, "_acker": anchors})
    staged = ledger.run(staging.stage(ledger.core, Staging("rows", step="fan"), [rows]))
    assert sum(one.rows for one in staged.segments) == 2
    tables: list[Any] = [
        ledger.run(staging.failures(ledger.core, staged_id)) for staged_id in staged.failures
    ]
    failed = {row["_acker"]: Cause.parse(row["_acker_failed"]) for one in tables for row in one.to_pylist()}
    said = "by which stream 'rows' gathers: Python has no value for this"
    assert {anchors.index(anchor): (cause.step, cause.reason) for anchor, cause in failed.items()} == {
        1: ("fan", f"column 'name', {said} string: 'caf\ufffd'"),
        2: ("fan", f"column 'day', {said} date32[day]: '[10183-09-21]'"),
    }
