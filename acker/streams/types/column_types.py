"""Types of columns that streams have: one Arrow type for each Spark type; all others are refused.

`acker.streams.types.fitting` has the Python values that each of them takes. Spark does not distinguish names
by case, so no two columns, and no two fields of a struct, have names that differ only in case.
"""

from collections.abc import Sequence

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import SchemaMismatch, ValidationError

_TAGS = {b"variant", b"geometry", b"geography"}
"""Metadata of a field by which Spark marks a struct that stands for another type."""
_MOST_LEVELS = 50
"""Nested types at most; Arrow writes 64 levels."""
_SAME = (
    pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64,
    pa.types.is_decimal128, pa.types.is_date32, pa.types.is_string, pa.types.is_binary, pa.types.is_null,
)  # fmt: skip


_USUAL = frozenset((pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.bool_(), pa.binary()))


def check_case(owner: str, names: Sequence[str]) -> None:
    """Raises SchemaMismatch for names that differ in case only."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(_folded(name), name)
        if other is not name:
            raise SchemaMismatch(
                f"{owner}: {other!r} and {name!r} differ in case only, and Spark takes them for the same. "
                "Rename one of them"
            )


def _folded(name: str) -> str:
    """A name as Spark compares it (Java's `equalsIgnoreCase`): each letter in upper, then in lower case."""
    if name.isascii():
        return name.lower()
    upper = (one.upper() if len(one.upper()) == 1 else one for one in name)
    return "".join(one.lower()[0] for one in upper)


def normal_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type that streams have for a column of this type. Raises ValidationError if Spark has none."""
    if kind in _USUAL or any(same(kind) for same in _SAME):
        return kind
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return normal_type(name, kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_struct(kind):
        if any(_TAGS.intersection(field.metadata or {}) for field in kind):
            return kind
        check_case(f"column {name}", [one.name for one in kind])
        return pa.struct([pa.field(one.name, normal_type(f"{name}.{one.name}", one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(normal_type(f"{name}.key", kind.key_type), normal_type(name, kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", normal_type(f"{name}.element", kind.value_type)))
    raise ValidationError(f"column {name}: expected a type that Spark has, got {kind}")


def inferred_type(name: str, values: Sequence[object]) -> pa.DataType:
    """The type with which a stream records a column of Python values, as Arrow infers it.

    Raises ValidationError for a type that streams do not have, and Arrow's errors for values without a type.
    """
    found = pa.infer_type(values)
    check_readable(name, found)
    return normal_type(name, found)


def check_readable(name: str, kind: pa.DataType, depth: int = 0) -> None:
    """Raises ValidationError for a column that no streaming query could read, or that cannot be written."""
    if depth > _MOST_LEVELS:
        raise ValidationError(
            f"column {name.partition('.')[0]}: expected at most {_MOST_LEVELS} levels of lists and structs"
        )
    if pa.types.is_time(kind):
        raise ValidationError(
            f"column {name}: expected a type that Spark reads from streams, got TIME: cast it, as to string"
        )
    if pa.types.is_decimal128(kind) and not 0 <= kind.scale <= kind.precision:
        raise ValidationError(f"column {name}: expected a type that Spark has, got {kind}")
    for place in range(kind.num_fields):
        inner = kind.field(place)
        check_readable(f"{name}.{inner.name}", inner.type, depth + 1)
