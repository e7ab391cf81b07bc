"""Random values that columns hold exactly, by the types of these columns."""

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

BERLIN = ZoneInfo("Europe/Berlin")
UTC = pa.timestamp("us", "UTC")
_ZONED = st.sampled_from([dt.UTC, BERLIN, dt.timezone(dt.timedelta(hours=-11, seconds=7))])
_LATE, _EARLY = dt.datetime(9999, 12, 30), dt.datetime(1, 1, 3)


def _digits(before: int, after: int) -> st.SearchStrategy[Decimal]:
    most = 10 ** (before + after) - 1
    return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-after))


HELD: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1).map(float) | st.integers(0, 9).map(np.int64),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32) | st.floats(width=32).map(np.float32),
    pa.float64(): st.floats() | st.integers(-(2**53), 2**53),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    UTC: st.datetimes(_EARLY, _LATE, timezones=_ZONED, allow_imaginary=False),
    pa.duration("us"): st.timedeltas(dt.timedelta(-100_000_000), dt.timedelta(100_000_000)),
    pa.decimal128(5, 2): _digits(3, 2) | st.integers(-999, 999),
    pa.decimal128(38, 18): st.integers(-(10**18), 10**18).map(lambda n: Decimal(n).scaleb(-17)),
}
"""The types without parts."""


def nested(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type that may have parts, and None."""
    if kind in HELD:
        return st.none() | HELD[kind]
    if pa.types.is_list(kind):
        return st.none() | st.lists(nested(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        return st.none() | st.dictionaries(HELD[kind.key_type], nested(kind.item_type), max_size=3)
    fields = {kind.field(place).name: nested(kind.field(place).type) for place in range(kind.num_fields)}
    return st.none() | st.fixed_dictionaries(fields) | st.tuples(*fields.values())
