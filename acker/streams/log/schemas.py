"""The schema of a stream: recorded by its first writer, evolving by added columns. `_acker` is one of them.

All columns are nullable. Rows that were written before a column was added have null in it. Writers without
the column go on as before. Every Spark type has one Arrow type here; other types are refused. Spark does not
distinguish names by case, so no two columns of a stream, and no two fields of a struct, have such names.
"""

import base64
from collections import Counter
from functools import lru_cache, partial

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import SchemaMismatch, StoreError, UnknownStream, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.settings.suggestions import listed, meant
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import kinds, scripts
from acker.streams.log.gathers import FINISHED
from acker.streams.log.segments import ANCHORS, check_anchors_type, check_names
from acker.streams.types.column_types import check_case, check_readable, normal_type

ADDED = {b"acker": b"added"}
"""The metadata of a column that was added later: rows may lack it."""
"""Metadata of a column that the first writer did not have."""
_OWN = (ANCHORS, FINISHED)
_ATTEMPTS = 20
_PARSED = 256
"""Schemas that are cached by their stored text."""


def normal(schema: pa.Schema) -> pa.Schema:
    """A schema as streams record it: no metadata, all columns nullable, one type for each logical one.

    Raises ValidationError for a duplicate column, or a type that Spark does not have, and SchemaMismatch for
    names that differ only in case.
    """
    names = schema.names
    if len({*names}) < len(names):
        twice = {name for name, times in Counter(names).items() if times > 1}
        raise ValidationError(f"columns: expected each once, got {', '.join(sorted(twice))} more often")
    check_case("columns", names)
    return pa.schema([pa.field(field.name, normal_type(field.name, field.type)) for field in schema])


def record(core: Core, stream: str, schema: pa.Schema) -> Operation[pa.Schema]:
    """Records the schema of a new stream, or adds columns to the recorded one; returns the resulting schema.

    A writer has the columns of the first writer, of the same types. It may leave out `_acker`, and columns
    that were added since. Nothing is recorded on an error.

    Raises:
        SchemaMismatch: The schemas differ; the message lists the differences.
        ValidationError: Spark does not have a type, or cannot read it from a stream, or `_acker` cannot have
            it.
    """
    wanted = _wanted(schema)
    stored = yield from enlist(core, stream)
    return (yield from _record(core, stream, wanted, stored))


def enlist(core: Core, stream: str) -> Operation[bytes | None]:
    """Notes a stream among the streams of its topology; returns its stored schema, for `record_over`.

    Raises:
        StreamKindError: The stream is external.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    stored, external = yield from core.name_stream(
        stream,
        command("GET", stream_keys.schema),
        command("HEXISTS", stream_keys.subscriptions, kinds.FIELD),
    )
    if external:
        raise kinds.kind_error(stream, "external")
    return None if stored is None else bytes(stored)


def record_over(core: Core, stream: str, schema: pa.Schema, stored: bytes | None) -> Operation[pa.Schema]:
    """Does the work of `record` when `enlist` has returned `stored` just now."""
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
    if stored is not None and wanted.equals(recorded := parse(stored)):
        return recorded  # the usual case
    stream_keys = keys.Stream(core.config.name, stream)
    for _ in range(_ATTEMPTS):
        new = wanted if stored is None else _evolved(stream, parse(stored), wanted)
        if stored is not None and new.equals(parse(stored), check_metadata=True):
            return new
        text = base64.b64encode(new.serialize().to_pybytes())
        made = partial(scripts.record_schema, stream_keys, stored or b"", text)
        stored = bytes((yield from kinds.make(stream_keys, made))) or None
    raise StoreError(f"stream {stream!r}: its schema changed {_ATTEMPTS} times while a column was added")


def add(core: Core, stream: str, schema: pa.Schema) -> Operation[None]:
    """Adds new columns to the schema of a stream; does nothing if none is recorded."""
    try:
        recorded = yield from read(core, stream)
    except UnknownStream:
        return
    new = [field for field in normal(schema) if field.name not in recorded.names]
    if new:
        yield from record(core, stream, pa.schema([*recorded, *new]))


def _evolved(stream: str, recorded: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The schema with new columns added."""
    has, gives = set(recorded.names), set(wanted.names)
    left_out = [
        field.name
        for field in recorded
        if field.name not in gives and field.name != ANCHORS and field.metadata != ADDED
    ]
    shared = [name for name in wanted.names if name in has]
    check_case(f"stream {stream!r}", [*recorded.names, *(name for name in wanted.names if name not in has)])
    _compare(stream, recorded, wanted, [*shared, *left_out])
    new = [field.with_metadata(ADDED) for field in wanted if field.name not in has]
    return pa.schema([*recorded, *new], recorded.metadata) if new else recorded


def check_reader(core: Core, stream: str, schema: pa.Schema) -> Operation[None]:
    """Raises SchemaMismatch if a reader names columns that the stream lacks, or has with other types.

    A narrower schema is fine, and so is any schema as long as nothing was written.
    """
    try:
        recorded = yield from read(core, stream)
    except UnknownStream:
        return
    wanted = normal(schema)
    _compare(stream, recorded, wanted, wanted.names)


def _compare(stream: str, recorded: pa.Schema, wanted: pa.Schema, names: list[str]) -> None:
    differences = [
        f"{name}: expected {_type_text(recorded, name)}, got {_type_text(wanted, name)}"
        for name in dict.fromkeys(names)
        if _type_text(recorded, name) != _type_text(wanted, name)
    ]
    if differences:
        raise SchemaMismatch(f"columns differ from stream {stream!r}: {'; '.join(differences)}")


def read(core: Core, stream: str) -> Operation[pa.Schema]:
    """The schema of a stream. Raises UnknownStream if nothing was written to it yet."""
    [stored] = yield [command("GET", keys.Stream(core.config.name, stream).schema)]
    if stored is None:
        [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
        others = {name.decode("utf-8", "replace") for name in names} - {stream}
        raise UnknownStream(
            f"topology {core.config.name!r} has no stream {stream!r} yet{meant(stream, others)}: nothing was "
            f"written to it. {listed(others, 'stream')}"
        )
    return parse(stored)


@lru_cache(_PARSED)
def parse(stored: bytes) -> pa.Schema:
    """A schema, parsed from its stored text. Raises StoreError."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
        check_names(schema)
        return schema
    except (ValueError, OSError, pa.ArrowException) as error:
        raise StoreError(f"not a schema: {stored!r:.100}") from error


def _type_text(schema: pa.Schema, name: str) -> str:
    place = schema.get_field_index(name)
    return str(schema.field(place).type) if place >= 0 else "no such column"
