"""The values that a type of a column takes: what is read is what was written, or the row has failed."""

import datetime as dt
import enum
import math
from array import array
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams import StreamReader, StreamWriter
from acker.streams.types.fitting import fitted
from acker.workers import row_columns
from tests.helpers.values import BERLIN, HELD, UTC, nested

NOON = dt.datetime(2026, 6, 1, 12, 0)
POINT = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float32()))])
WORDS = pa.map_(pa.string(), pa.int64())


class Name(enum.StrEnum):
    ANN = "ann"


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.bool_(), [True, np.bool_(False), None]),
        (pa.int8(), [127, -128, 1.0, Decimal("2.0"), np.int64(3), pa.scalar(4)]),
        (pa.int64(), [2**63 - 1, -(2**63)]),
        (pa.float64(), [1, 2**53, 0.1, math.inf, np.float32(0.1)]),
        (pa.float32(), [0.5, 2**24, np.float32(0.1), -math.inf]),
        (pa.decimal128(5, 2), [Decimal("1.250"), Decimal("999.99"), 7, Decimal("1E+2")]),
        (pa.string(), ["x", Name.ANN, np.str_("y")]),
        (pa.binary(), [b"a", bytearray(b"b"), memoryview(b"c")]),
        (pa.date32(), [NOON.date(), np.datetime64("2026-06-01")]),
        (UTC, [NOON.replace(tzinfo=BERLIN), pd.Timestamp(NOON, tz="UTC")]),
        (pa.timestamp("us"), [NOON, np.datetime64("2026-06-01T12:00:00.000001"), pd.Timestamp(NOON)]),
        (pa.duration("us"), [dt.timedelta(1, 2, 3), np.timedelta64(5, "ms")]),
        (pa.list_(pa.int64()), [[1, None], (2,), array("i", [3]), np.array([4]), range(2), [np.int8(1)]]),
        (
            pa.list_(pa.int64()),
            [pa.array([1, None]), pa.chunked_array([[1], [2]]), pd.Series([3]), pd.Index([4])],
        ),
        (POINT, [{"x": 1, "y": [0.5]}, {"x": 1}, (1, None)]),
        (WORDS, [{"a": 1}, [("b", None)], {}]),
        (pa.null(), [None]),
    ],
    ids=lambda one: str(one) if isinstance(one, pa.DataType) else "",
)
def test_a_value_of_the_column_s_kind_is_held_as_it_is(type_: pa.DataType, values: list[Any]) -> None:
    found, unfit = fitted(values, type_, "c")
    assert unfit == {}
    assert found.type == type_
    for value, kept in zip(values, found.to_pylist(), strict=True):
        assert same(value, kept), (value, kept)


@pytest.mark.parametrize(
    ("type_", "others", "inexact"),
    [
        (pa.bool_(), [1, 0.0, "true"], []),
        (pa.int8(), [True, "1", NOON, np.timedelta64(5, "s")], [128, -129, 1.5, math.nan, Decimal("NaN")]),
        (pa.int64(), [np.datetime64(5, "us")], [2**63, math.inf, Decimal("1E+99999999")]),
        (pa.float64(), [True, "1", Decimal("0.1")], [2**53 + 1, 10**400]),
        (pa.float32(), [True], [0.1, 1e300, 2**24 + 1]),
        (
            pa.decimal128(5, 2),
            [1.5, True, "1"],
            [Decimal("1.255"), 12345, Decimal("NaN"), Decimal("sNaN"), Decimal("1E+9999")],
        ),
        (pa.string(), [b"x", 1, NOON, object(), (one for one in "ab")], ["\ud800"]),
        (pa.binary(), ["x", [1], 1], []),
        (pa.date32(), [NOON, NOON.replace(hour=0), 5, 1.9, "2026-06-01"], []),
        (
            UTC,
            [NOON, NOON.date(), 1_780_000_000, 1.5, pd.NaT],
            [dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))],
        ),
        (
            pa.timestamp("us"),
            [NOON.replace(tzinfo=BERLIN), NOON.date(), 1, np.datetime64("NaT", "us")],
            [pd.Timestamp(1), np.datetime64(1, "ns")],
        ),
        (pa.duration("us"), [90, 1.5, "1s"], [dt.timedelta.max, pd.Timedelta(1)]),
        (pa.list_(pa.int64()), ["12", b"12", {1}, {"a": 1}, 1, pd.DataFrame({1: [1]})], []),
        (POINT, [[1, None], 1, "xy"], [{"x": 1, "z": 2}, (1,)]),
        (WORDS, [[1], "ab", [("a", 1, 2)]], []),
        (pa.null(), [1, math.nan], []),
    ],
    ids=lambda one: str(one) if isinstance(one, pa.DataType) else "",
)
def test_another_value_is_refused(type_: pa.DataType, others: list[Any], inexact: list[Any]) -> None:
    values = [*others, *inexact]
    _, unfit = fitted([None, *values], type_, "c")
    assert sorted(unfit) == list(range(1, len(values) + 1))
    for place, error in unfit.items():
        assert f"column 'c': expected {type_}, got " in str(error)
        assert ("cannot hold exactly" in str(error)) == (place > len(others)), error


@pytest.mark.parametrize(
    ("type_", "value", "said"),
    [
        (pa.list_(pa.int64()), [1, 1.5], "expected int64 in element, got 1.5 (float)"),
        (POINT, {"y": [0.1]}, "expected float in y.element, got 0.1 (float)"),
        (WORDS, {"a": 1.5}, "expected int64 in value, got 1.5 (float)"),
        (WORDS, {None: 1}, "expected string in key, got None"),
    ],
)
def test_a_value_within_another_is_named_by_its_place(type_: pa.DataType, value: Any, said: str) -> None:
    found, unfit = fitted([value, None], type_, "c")
    assert found.to_pylist() == [None, None]
    assert said in str(unfit[0])


def test_a_column_that_must_have_a_value_refuses_none() -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    assert list(fitted([1, None], pa.int64(), "c", nullable=False)[1]) == [1]
    assert list(fitted([{"a": 1}, {"a": None}, None], inner, "c")[1]) == [1]


@pytest.mark.parametrize(
    ("values", "type_", "unfit"),
    [
        ([NOON.date(), NOON], pa.date32(), [1]),
        ([NOON, NOON.date()], pa.timestamp("us"), [1]),
        ([NOON, NOON.replace(tzinfo=BERLIN)], pa.timestamp("us"), [1]),
        ([NOON.replace(tzinfo=BERLIN), NOON], UTC, [1]),
        ([None, "a", b"b"], pa.string(), [2]),
        ([object(), 1, "a", 2], pa.int64(), [0, 2]),
        ([1, 1.5], pa.float64(), []),
        ([1.5, 2**53 + 1], pa.float64(), [1]),
        ([{"a": 1}, {"b": 2}], pa.struct([("a", pa.int64()), ("b", pa.int64())]), []),
    ],
)
def test_the_first_value_says_the_type_of_a_new_column_where_they_differ(
    values: list[Any], type_: pa.DataType, unfit: list[int]
) -> None:
    rows = [{"c": value, "_acker": 1} for value in values]
    table, found = row_columns.table(rows, None)
    assert table.schema.field("c").type == type_
    assert sorted(found) == unfit


def same(one: Any, other: object) -> bool:
    """Return True if a value that is read is the one that was written."""
    if isinstance(one, pa.Scalar):
        one = one.as_py()
    if isinstance(one, pa.Array | pa.ChunkedArray | pd.Series | pd.Index):
        one = list(one)
    if isinstance(one, np.datetime64 | np.timedelta64):
        one = one.item() if one.dtype == "M8[D]" else one.astype(f"{one.dtype.kind}8[us]").item()
    elif isinstance(one, np.generic):
        one = one.item()
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    if isinstance(other, dict):
        if isinstance(one, Mapping):
            return one.keys() <= other.keys() and all(same(one.get(name), it) for name, it in other.items())
        return isinstance(one, tuple) and same(list(one), list(other.values()))
    if isinstance(other, list) and isinstance(one, Mapping):
        return same(list(one.items()), other)
    if isinstance(other, list | tuple):
        listed = isinstance(one, Sequence | array | np.ndarray) and not isinstance(one, str | bytes)
        return listed and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bytearray | memoryview):
        one = bytes(one)
    if isinstance(one, dt.datetime) and one.tzinfo is not None:
        one = one.astimezone(
            dt.UTC
        )  # Python says of an hour that comes twice that it is equal to no other zone's
    numbers = (int, float, Decimal)
    if isinstance(one, bool) or not isinstance(one, numbers):  # others are equal to another kind's at times
        assert isinstance(one, type(other))
        return one == other
    return isinstance(other, numbers) and not isinstance(other, bool) and one == other


LEAVES = [*HELD]
TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda type_: pa.list_(pa.field("element", type_))),
        st.tuples(inner, inner).map(lambda kinds: pa.struct([("a", kinds[0]), ("b", kinds[1])])),
        st.tuples(st.sampled_from(LEAVES), inner).map(lambda kinds: pa.map_(*kinds)),
    ),
    max_leaves=4,
)
ZONES = st.sampled_from([None, dt.UTC, BERLIN, dt.timezone(dt.timedelta(hours=-11, seconds=7))])
SINGLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-200, 40_000), st.floats(), st.floats(width=32),
    st.floats(width=32).map(np.float32), st.integers(-100, 100).map(np.int8), st.text(), st.binary(),
    st.decimals(), st.decimals(-10_000, 10_000, places=2), st.dates(), st.times(), st.timedeltas(),
    st.datetimes(timezones=ZONES, allow_imaginary=False), st.binary().map(bytearray),
    st.integers(-(2**62), 2**62).map(lambda n: np.datetime64(n, "ns")), st.dates().map(np.datetime64),
    st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)).map(pd.Timestamp), st.just(pd.NaT),
)  # fmt: skip
HASHABLE = st.one_of(st.text(max_size=3), st.integers(), st.dates(), st.binary(max_size=3))
VALUES = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.fixed_dictionaries({"a": inner}, optional={"b": inner}),
    ),
    max_leaves=6,
)
HELD_TYPES = TYPES.flatmap(lambda kind: st.tuples(st.just(kind), st.lists(nested(kind), max_size=4)))
_STREAMS = count()


@pytest.fixture
def one_ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "t", ackers=1)


@settings(max_examples=100)
@given(st.lists(VALUES, min_size=1, max_size=6), HELD_TYPES)
@example([NOON.replace(tzinfo=BERLIN), NOON, NOON.date()], (UTC, []))
@example([True, 1, 1.0, 1e300, 0.1], (pa.float32(), []))
def test_what_a_reader_gets_is_what_was_written(
    one_ledger: Ledger, any_values: list[Any], held: tuple[pa.DataType, list[Any]]
) -> None:
    type_, own = held
    values = [*own, *any_values]
    column, unfit = fitted(values, type_, "c")
    assert all(place >= len(own) for place in unfit)
    fit = [place for place in range(len(values)) if place not in unfit]
    if not fit:
        return
    stream = f"s{next(_STREAMS)}"
    StreamWriter(one_ledger, stream).write(pa.table({"n": range(len(values)), "c": column}).take(fit))
    read = [row["c"] for row in StreamReader(one_ledger, stream).rows()]
    for place, found in zip(fit, read, strict=True):
        assert same(values[place], found), (values[place], found)
