"""The emitted rows of a step as columns, of the stream's types.

Terms: an anchor is the number of a tree.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, class_name, is_interrupt, shown, text_of
from acker.streams.log.segments import ANCHORS
from acker.streams.types.column_types import inferred_type
from acker.streams.types.fitting import fitted


def load_pandas() -> None:
    """Makes pyarrow load pandas now, and not at the first array that some thread makes.

    It holds a lock meanwhile, and a process that is forked just then would wait for it for ever.
    """
    pa.array([])


def table(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None
) -> tuple[pa.Table, dict[int, ValidationError]]:
    """Make a table of rows: the columns that the stream has, and new ones that have a value.

    A new column has the type that Arrow finds for all its values. Where they have none in common, it is the
    type of the first value.

    Args:
        rows: the rows, each with the columns that it has a value for.
        schema: the schema of the stream; None where it has none yet.

    Returns:
        The table, and for each row that a column does not take its place and an error
        (`acker.streams.types.fitting`). The table is not to be used then.
    """
    types = {} if schema is None else {field.name: field.type for field in schema}
    types.setdefault(ANCHORS, _of_anchors(rows))
    columns: dict[str, pa.Array] = {}
    unfit: dict[int, ValidationError] = {}
    for name in dict.fromkeys([*types, *(name for row in rows for name in row)]):
        values = [row.get(name) for row in rows]
        if name == ANCHORS:
            columns[name], wrong = _anchors(values, types[name])
        elif name in types:
            columns[name], wrong = fitted(values, types[name], name)
        elif any(value is not None for value in values):
            columns[name], wrong = _new(values, name)
        else:
            continue
        unfit = wrong | unfit
    return pa.table(columns), unfit


def _of_anchors(rows: Sequence[Mapping[str, Any]]) -> pa.DataType:
    """Returns the type of the column of anchors in a new stream."""
    several = any(isinstance(row[ANCHORS], tuple) for row in rows)
    return pa.list_(pa.int64()) if several else pa.int64()


def _anchors(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, ValidationError]]:
    """Returns anchors as a stream has them, of one tree a row, or of several; see `fitted`."""
    if not pa.types.is_int64(kind):
        made = [(value or (0,)) if isinstance(value, tuple) else (value,) for value in values]
        return pa.array(made, kind), {}
    several = {
        place: ValidationError(
            f"column {ANCHORS}: expected one tree for a row, as the rows of that stream have, got "
            f"{len(value)}: emit to a stream whose first rows have several"
        )
        for place, value in enumerate(values)
        if isinstance(value, tuple) and len(value) > 1
    }
    return pa.array(
        [(value[0] if value else 0) if isinstance(value, tuple) else value for value in values], kind
    ), several


def _new(values: Sequence[Any], name: str) -> tuple[pa.Array, dict[int, ValidationError]]:
    """Returns a column that the stream does not have yet; see `fitted`."""
    try:
        column, unfit = fitted(values, inferred_type(name, values), name)
        if not unfit:
            return column, unfit
    except BaseException as error:  # some value has no type, or another one: it is found below
        if is_interrupt(error):
            raise
    typeless: dict[int, ValidationError] = {}
    for place, value in enumerate(values):
        if value is None:
            continue
        try:
            kind = inferred_type(name, [value])
        except ValidationError as error:
            typeless[place] = error
            continue
        except BaseException as error:  # as above
            if is_interrupt(error):
                raise
            said = f"column {shown(name)}: expected a value of a type that streams have, got {shown(value)}"
            typeless[place] = ValidationError(f"{said} ({class_name(value)}): {text_of(error)}")
            continue
        if not typeless:
            return fitted(values, kind, name)
        column, unfit = fitted([None if at in typeless else one for at, one in enumerate(values)], kind, name)
        return column, typeless | unfit
    return pa.nulls(len(values)), typeless
