"""The schema of a stream: recorded by its first writer, evolving by added columns. `_acker` is one of them.

All columns are nullable. Who reads rows that were written before a column was added finds null in it; who
writes rows without it goes on as before. Every Spark type has one Arrow type here; what Spark has not is
refused. Spark takes names that differ in case only for the same: no two columns of a stream have such names,
and no two fields of a struct.
"""

import base64
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import SchemaMismatch, StoreError, UnknownStream, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.settings.suggestions import listed, meant
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import scripts
from acker.streams.log.gathers import FINISHED
from acker.streams.log.segments import ANCHORS, check_anchors_type, check_names

_ADDED = {b"acker": b"added"}
"""Metadata of a column that the first writer did not have."""
_TAGS = {b"variant", b"geometry", b"geography"}
"""Metadata of a field by which Spark tells a struct that stands for a type of its own."""
_OWN = (ANCHORS, FINISHED)
_ATTEMPTS = 20
_PARSED = 256
"""Schemas that are known by what is stored of them."""
_MOST_LEVELS = 50
"""Of types within a type; Arrow writes 64 at most."""
_SAME = (
    pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64,
    pa.types.is_decimal128, pa.types.is_date32, pa.types.is_string, pa.types.is_binary, pa.types.is_null,
)  # fmt: skip


_USUAL = frozenset((pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.bool_(), pa.binary()))


def normal(schema: pa.Schema) -> pa.Schema:
    """A schema as streams record it: no metadata, all columns nullable, one type for each logical one.

    Raises ValidationError for a column that is there twice, or of a type that Spark has not, and
    SchemaMismatch for names that differ in case only.
    """
    names = schema.names
    if len({*names}) < len(names):
        twice = {name for name, times in Counter(names).items() if times > 1}
        raise ValidationError(f"columns: expected each once, got {', '.join(sorted(twice))} more often")
    _check_case("columns", names)
    return pa.schema([pa.field(field.name, _normal_type(field.name, field.type)) for field in schema])


def _check_case(what: str, names: Sequence[str]) -> None:
    """Raises SchemaMismatch for names that differ in case only."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(_folded(name), name)
        if other is not name:
            raise SchemaMismatch(
                f"{what}: {other!r} and {name!r} differ in case only, and Spark takes them for the same: "
                "name one of them otherwise"
            )


def _folded(name: str) -> str:
    """A name as Spark compares it (Java's `equalsIgnoreCase`): each letter in upper, then in lower case."""
    if name.isascii():
        return name.lower()
    upper = (one.upper() if len(one.upper()) == 1 else one for one in name)
    return "".join(one.lower()[0] for one in upper)


def _normal_type(name: str, kind: pa.DataType) -> pa.DataType:
    if kind in _USUAL or any(same(kind) for same in _SAME):
        return kind
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _normal_type(name, kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_struct(kind):
        if any(_TAGS.intersection(field.metadata or {}) for field in kind):
            return kind
        _check_case(f"column {name}", [one.name for one in kind])
        return pa.struct([pa.field(one.name, _normal_type(f"{name}.{one.name}", one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_normal_type(f"{name}.key", kind.key_type), _normal_type(name, kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _normal_type(f"{name}.element", kind.value_type)))
    raise ValidationError(f"column {name}: expected a type that Spark has, got {kind}")


def inferred(name: str, values: Sequence[object]) -> pa.DataType:
    """The type with which a stream records a column of Python's values, as Arrow finds it.

    Raises ValidationError for a type that streams have not, and whatever Arrow raises for values without one.
    """
    found = pa.infer_type(values)
    _check_readable(name, found)
    return _normal_type(name, found)


def _check_readable(name: str, kind: pa.DataType, depth: int = 0) -> None:
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
        _check_readable(f"{name}.{inner.name}", inner.type, depth + 1)


def record(core: Core, stream: str, schema: pa.Schema) -> Operation[pa.Schema]:
    """Records the schema of a new stream, adds columns to the one recorded; returns what it is now.

    A writer has the columns of the first writer, of the same types; those added since, and `_acker`, it may
    leave out. Raises SchemaMismatch that lists the differences, and ValidationError for a type that Spark has
    not, or cannot read from a stream, or that `_acker` cannot have. Nothing is recorded then.
    """
    wanted = _wanted(schema)
    stored = yield from enlist(core, stream)
    return (yield from _record(core, stream, wanted, stored))


def enlist(core: Core, stream: str) -> Operation[bytes | None]:
    """Notes a stream among those of its topology; returns its schema as it is stored, for `record_over`."""
    key = keys.Stream(core.config.name, stream).schema
    [_, stored] = yield [command("SADD", keys.streams(core.config.name), stream), command("GET", key)]
    return None if stored is None else bytes(stored)


def record_over(core: Core, stream: str, schema: pa.Schema, stored: bytes | None) -> Operation[pa.Schema]:
    """As `record`, where `enlist` has returned `stored` just now."""
    return (yield from _record(core, stream, _wanted(schema), stored))


def _wanted(schema: pa.Schema) -> pa.Schema:
    _check_case("columns", [*_OWN, *(name for name in schema.names if name not in _OWN)])
    wanted = normal(schema)
    for field in wanted:
        _check_readable(field.name, field.type)
    if ANCHORS in wanted.names:
        check_anchors_type(wanted.field(ANCHORS).type)
    return wanted


def _record(core: Core, stream: str, wanted: pa.Schema, stored: bytes | None) -> Operation[pa.Schema]:
    if stored is not None and wanted.equals(known := parse(stored)):
        return known  # as nearly always
    own = keys.Stream(core.config.name, stream)
    for _ in range(_ATTEMPTS):
        new = wanted if stored is None else _evolved(stream, parse(stored), wanted)
        if stored is not None and new.equals(parse(stored), check_metadata=True):
            return new
        text = base64.b64encode(new.serialize().to_pybytes())
        [reply] = yield [scripts.record_schema(own, stored or b"", text)]
        stored = bytes(reply)
    raise StoreError(f"stream {stream!r}: its schema changed {_ATTEMPTS} times while a column was added")


def add(core: Core, stream: str, schema: pa.Schema) -> Operation[None]:
    """Adds the columns that a stream has not yet to its schema; nothing where none is recorded."""
    try:
        known = yield from read(core, stream)
    except UnknownStream:
        return
    new = [field for field in normal(schema) if field.name not in known.names]
    if new:
        yield from record(core, stream, pa.schema([*known, *new]))


def _evolved(stream: str, known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The schema with the columns that are new."""
    has, gives = set(known.names), set(wanted.names)
    left_out = [
        field.name
        for field in known
        if field.name not in gives and field.name != ANCHORS and field.metadata != _ADDED
    ]
    shared = [name for name in wanted.names if name in has]
    _check_case(f"stream {stream!r}", [*known.names, *(name for name in wanted.names if name not in has)])
    _compare(stream, known, wanted, [*shared, *left_out])
    new = [field.with_metadata(_ADDED) for field in wanted if field.name not in has]
    return pa.schema([*known, *new], known.metadata) if new else known


def check_reader(core: Core, stream: str, schema: pa.Schema) -> Operation[None]:
    """Raises SchemaMismatch where a reader names columns that the stream has not, or has of another type.

    A narrower schema is fine, and so is any as long as nothing was written.
    """
    try:
        known = yield from read(core, stream)
    except UnknownStream:
        return
    wanted = normal(schema)
    _compare(stream, known, wanted, wanted.names)


def _compare(stream: str, known: pa.Schema, wanted: pa.Schema, names: list[str]) -> None:
    differences = [
        f"{name}: expected {_shown(known, name)}, got {_shown(wanted, name)}"
        for name in dict.fromkeys(names)
        if _shown(known, name) != _shown(wanted, name)
    ]
    if differences:
        raise SchemaMismatch(f"columns are not those of stream {stream!r}: {'; '.join(differences)}")


def read(core: Core, stream: str) -> Operation[pa.Schema]:
    """The schema of a stream; UnknownStream where nothing was written to it yet."""
    [stored] = yield [command("GET", keys.Stream(core.config.name, stream).schema)]
    if stored is None:
        [found] = yield [command("SMEMBERS", keys.streams(core.config.name))]
        known = {name.decode("utf-8", "replace") for name in found} - {stream}
        raise UnknownStream(
            f"topology {core.config.name!r} has no stream {stream!r} yet{meant(stream, known)}: nothing was "
            f"written to it. {listed(known, 'stream')}"
        )
    return parse(stored)


@lru_cache(_PARSED)
def parse(stored: bytes) -> pa.Schema:
    """A schema as it is stored. Raises StoreError."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
        check_names(schema)
        return schema
    except (ValueError, OSError, pa.ArrowException) as error:
        raise StoreError(f"not a schema: {stored!r:.100}") from error


def _shown(schema: pa.Schema, name: str) -> str:
    place = schema.get_field_index(name)
    return str(schema.field(place).type) if place >= 0 else "no such column"
