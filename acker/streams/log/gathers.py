"""Streams that gather: rows wait in the store until all rows of their request are written.

Rows wait by group (requests that were tracked together) and task. When the section before is over for the
whole group, the rows of each task go as one bundle to one reader. A bundle has a row (`FINISHED`) for each
request, even for one without other rows. See `acker.lines`.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a segment is some thousand rows of a stream, stored and acked as one piece; a section
is the steps of a line between two gathers.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import LineConflict, UnknownLine, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.settings.config import check_name
from acker.ledger.slabs import sections
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import Bounds, Record, readable
from acker.store.replies import pairs, whole
from acker.streams.log import kinds, python_values, scripts, segments
from acker.streams.log.segments import ANCHORS, LAST
from acker.streams.types import equality

FINISHED = "_acker_finished"
"""Column, true in the rows that end a bundle, one for each request. No other rows have it."""
TASKS = 64
"""Tasks of a stream that gathers, at most."""
MOST_SEGMENTS = 450
"""Segments of a bundle, at most: with more its requests fail."""
LATE_TTL = 14 * 86400
"""Seconds for which the release of a group is remembered, if no coordinator forgets it
(`coordinator.forget`): twice the longest message timeout.
"""
_NULL = zlib.crc32(b"null")


@dataclass(frozen=True, slots=True)
class Gathering(Record, label="how a stream gathers"):
    """The declaration of a stream that gathers.

    Rows with the same values of the columns `by` go to the same task.

    Attributes:
        line: The number of its line.
        section: The section whose end it waits for.
        tasks: The number of tasks.
        by: The columns that choose the task of a row.
    """

    line: Annotated[int, Bounds(1, sections.LINES)]
    section: Annotated[int, Bounds(1, sections.SECTIONS - 1)]
    tasks: Annotated[int, Bounds(1, TASKS)] = 1
    by: tuple[str, ...] = ()


def declare(core: Core, stream: str, gathering: Gathering) -> Operation[None]:
    """Makes a stream gather.

    Raises LineConflict if it has another declaration, or holds segments that do not wait.
    """
    stream_keys = keys.Stream(core.config.name, check_name(stream, "stream"))
    made = partial(scripts.declare_gather, stream_keys, gathering.dump())
    reply = yield from kinds.make_noted(core, stream, made)
    if reply is not None:
        other = reply.decode("utf-8", "replace")
        why = f"it gathers by {other}" if other else "it holds rows that were written before"
        raise LineConflict(f"stream {stream!r} cannot gather by {gathering.dump()}: {why}")


def read_gathering(core: Core, stream: str) -> Operation[Gathering | None]:
    """The declaration of a stream that gathers; None for any other stream. Raises UnreadableRecord."""
    [found] = yield [command("HGET", keys.Stream(core.config.name, stream).subscriptions, "gather")]
    return None if found is None else Gathering.load(found)


class Gathers(NamedTuple):
    """The number of a line, its streams that gather, and its mark (`acker.ledger.slabs.sections.mark_of`)."""

    number: int
    streams: tuple[str, ...]
    mark: int


def read_line(core: Core, name: str) -> Operation[Gathers]:
    """Reads a line: its number, streams and mark. Raises UnknownLine and UnreadableRecord."""
    [stored] = yield [command("HGET", keys.lines(core.config.name), name)]
    if stored is None:
        raise UnknownLine(f"topology {core.config.name!r} has no line {name!r}: declare it first")
    number, _, record = stored.partition(b" ")
    streams = tuple(stream for stream, *_ in sections.LINE.load(record))
    return Gathers(whole(number, f"the number of line {name!r}"), streams, sections.mark_of(name, record))


def numbers(core: Core) -> Operation[dict[str, int]]:
    """The numbers of lines by the streams that gather for them. An unreadable record is left out."""
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    streams = [name.decode("utf-8", "replace") for name in names]
    stored = yield [
        command("HGET", keys.Stream(core.config.name, stream).subscriptions, "gather") for stream in streams
    ]
    lines = {}
    for stream, record in zip(streams, stored, strict=True):
        if (gathering := readable(Gathering.load, record, f"stream {stream}")) is not None:
            lines[stream] = gathering.line
    return lines


def marks(core: Core) -> Operation[dict[int, int]]:
    """The marks of a topology's lines by their numbers. A line without a number is left out."""
    [stored] = yield [command("HGETALL", keys.lines(core.config.name))]
    line_marks = {}
    for name, value in pairs(stored).items():
        number, _, record = value.partition(b" ")
        if number.isdigit():
            line_marks[int(number)] = sections.mark_of(name.decode("utf-8", "replace"), record)
    return line_marks


def all_differ(firsts: Ids) -> bool:
    """Return True if groups that were drawn together all differ."""
    return len(np.unique(firsts)) == len(firsts)


def free_checks(core: Core, slabs: Sequence[Ids], streams: Sequence[str]) -> list[Request]:
    """Requests that check whether drawn groups are free: in shards for slabs of each section, and in streams.

    Each reply is 1 if they are, else 0. A stream that gathers may know a group whose trees are all gone. It
    would drop the rows of a new group of that name as late.
    """
    asked = []
    for firsts in slabs:
        by_shard: dict[int, list[bytes]] = {}
        for name in map(ids.slab_of, firsts.tolist()):
            by_shard.setdefault(ids.shard_of(name, core.config.ackers), []).append(name)
        asked += [scripts.check_slabs(core.shards[shard], names) for shard, names in by_shard.items()]
    groups = [sections.group_of(ids.slab_of(first)) for first in slabs[0].tolist()] if slabs else []
    asked += [
        scripts.check_groups(keys.Stream(core.config.name, stream), groups) for stream in streams if groups
    ]
    return asked


def cut(
    gathering: Gathering, stream: str, batches: Sequence[pa.RecordBatch]
) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Divides rows by the places at which they wait, as tuples of the section after the awaited one.

    Raises:
        ValidationError: A row has no anchor or several, or an anchor of no line, of another line or of a
            later section; or a column of `by` is missing.
    """
    rows = pa.Table.from_batches(batches).combine_chunks()
    anchors = _anchors(gathering, stream, rows)
    rows = rows.set_column(
        rows.schema.get_field_index(ANCHORS),
        ANCHORS,
        pa.array(sections.within(anchors, gathering.section + 1)),
    )
    groups, tasks = sections.groups(anchors), tasks_of(gathering, stream, rows)
    order = np.lexsort((tasks, groups))
    groups, tasks = groups[order], tasks[order]
    changes = np.flatnonzero((groups[1:] != groups[:-1]) | (tasks[1:] != tasks[:-1])) + 1
    rows = rows.take(pa.array(order)).combine_chunks()
    for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), len(order)], strict=True):
        part = rows.slice(begin, end - begin)
        group = int(groups[begin]).to_bytes(8, "big").hex()
        yield destination(group, int(tasks[begin]), gathering.section), part.to_batches()


class Destination(NamedTuple):
    """The place of a segment in a stream that gathers: its group and task, and the section that it waits for.

    last: True if it ends its bundle, which goes on.
    """

    group: str
    task: int
    section: int
    last: bool


def destination(group: str, task: int, section: int, *, last: bool = False) -> str:
    """The place of a segment as text for its record."""
    return f"{LAST if last else ''}{group}:{task}:{section}"


def parse_destination(text: str) -> Destination:
    """The inverse of `destination`. Raises UnreadableRecord."""
    group, *numbers = text.removeprefix(LAST).split(":")
    if len(group) != 2 * ids.SLAB_BYTES or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        raise UnreadableRecord(f"not where a segment waits: {text!r:.100}")
    return Destination(group, int(numbers[0]), int(numbers[1]), text.startswith(LAST))


def tasks_of(gathering: Gathering, stream: str, rows: pa.Table) -> Ids:
    """The task of each row: CRC-32 of its values in the columns `by`, modulo the tasks.

    Equal values have one task, whatever batch they are in (`acker.streams.types.equality`).
    """
    tasks = np.zeros(rows.num_rows, dtype=np.int64)
    if gathering.tasks == 1:
        return tasks
    for name in gathering.by:
        if name not in rows.column_names:
            raise ValidationError(
                f"stream {stream!r} gathers by column {name!r}: expected it among "
                f"{', '.join(column for column in rows.column_names if column != ANCHORS)}"
            )
    hashes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in gathering.by:
        places, values = equality.encoded(rows.column(name))
        known = np.array([*map(zlib.crc32, values), _NULL], dtype=np.int64)
        hashes = (hashes * 31 + known[places]) & 0xFFFFFFFF
    found: Ids = hashes % gathering.tasks
    return found


def with_unfit(
    gathering: Gathering, stream: str, batches: list[pa.RecordBatch], failed: str
) -> list[pa.RecordBatch]:
    """Rows, with a cause in the column `failed` for each row that cannot gather.

    Such a row has a value in a column of `by` that Python cannot represent. A step in plain Python would get
    the other rows of its task without it.
    """
    if ANCHORS not in batches[0].schema.names:
        return batches
    reasons_found = [_unfit(gathering, stream, batch) for batch in batches]
    if not any(reasons_found):
        return batches
    marked = []
    for batch, reasons in zip(batches, reasons_found, strict=True):
        place = batch.schema.get_field_index(failed)
        before = segments.texts(batch.column(place)) if place >= 0 else [None] * batch.num_rows
        texts = [reasons.get(row) if text is None else text for row, text in enumerate(before)]
        rest = batch.remove_column(place) if place >= 0 else batch
        marked.append(rest.append_column(failed, pa.array(texts, pa.string())))
    return marked


def _unfit(gathering: Gathering, stream: str, rows: pa.RecordBatch) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for name in gathering.by if gathering.tasks > 1 else ():
        place = rows.schema.get_field_index(name)
        for row, said in python_values.unshowable(rows.column(place)) if place >= 0 else ():
            reasons.setdefault(row, f"column {name!r}, by which stream {stream!r} gathers: {said}")
    return reasons


def _anchors(gathering: Gathering, stream: str, rows: pa.Table) -> Ids:
    """The anchor of each row."""
    expected = f"stream {stream!r} gathers: expected rows of line {gathering.line} with one anchor each"
    if ANCHORS not in rows.column_names:
        raise ValidationError(f"{expected}, got rows without the column {ANCHORS}")
    column = rows.column(ANCHORS)
    if not pa.types.is_int64(column.type):
        raise ValidationError(f"{expected}, got a column {ANCHORS} of {column.type}")
    anchors = segments.edges(column)[0]
    if len(anchors) != rows.num_rows:
        raise ValidationError(f"{expected}, got {rows.num_rows - len(anchors):,} rows without")
    of_lines = sections.lines(anchors)
    if (other := anchors[of_lines != gathering.line]).size:
        of_line = int(sections.lines(other[:1])[0])
        of_what = f"line {of_line}" if of_line else "no line"
        raise ValidationError(f"{expected}, got anchor {int(other[0])}, which is of {of_what}")
    if (later := anchors[sections.sections(anchors) > gathering.section]).size:
        raise ValidationError(
            f"stream {stream!r} gathers at the end of section {gathering.section}, got a row of section "
            f"{int(sections.sections(later[:1])[0])}: its place in the line "
            "is past. Emit the row to a stream that gathers at the end of its section, or later"
        )
    return anchors
