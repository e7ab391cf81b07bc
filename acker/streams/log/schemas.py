"""The schema of a stream: recorded by its first writer, evolving by added columns. `_acker` is one of them.

All columns are nullable. Who reads rows that were written before a column was added finds null in it; who
writes rows without it goes on as before. Every Spark type has one Arrow type here; what Spark has not is
refused. Spark takes names that differ in case only for the same: no two columns of a stream have such names,
and no two fields of a struct.
"""

import base64
from collections import Counter
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
from acker.streams.types.column_types import check_case, check_readable, normal_type

_ADDED = {b"acker": b"added"}
"""Metadata of a column that the first writer did not have."""
_OWN = (ANCHORS, FINISHED)
_ATTEMPTS = 20
_PARSED = 256
"""Schemas that are known by what is stored of them."""


def normal(schema: pa.Schema) -> pa.Schema:
    """A schema as streams record it: no metadata, all columns nullable, one type for each logical one.

    Raises ValidationError for a column that is there twice, or of a type that Spark has not, and
    SchemaMismatch for names that differ in case only.
    """
    names = schema.names
    if len({*names}) < len(names):
        twice = {name for name, times in Counter(names).items() if times > 1}
        raise ValidationError(f"columns: expected each once, got {', '.join(sorted(twice))} more often")
    check_case("columns", names)
    return pa.schema([pa.field(field.name, normal_type(field.name, field.type)) for field in schema])


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
    check_case("columns", [*_OWN, *(name for name in schema.names if name not in _OWN)])
    wanted = normal(schema)
    for field in wanted:
        check_readable(field.name, field.type)
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
    check_case(f"stream {stream!r}", [*known.names, *(name for name in wanted.names if name not in has)])
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
