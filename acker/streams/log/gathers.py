"""Streams that gather: what is written to them waits in the store until all of its request is written.

Rows wait by group (requests that were tracked together) and task. When the section before is over for all of
a group, the rows of each task go as one bundle to one reader, with a row for each request (`FINISHED`), also
for one that has no others. See `acker.lines`.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from acker.streams.log import python_values, scripts, segments
from acker.streams.log.segments import ANCHORS
from acker.streams.types import equality

FINISHED = "_acker_finished"
"""Column of the rows that end a bundle, one for each request: true. Nobody else's rows have it."""
TASKS = 64
"""Tasks of a stream that gathers, at most."""
MOST_SEGMENTS = 450
"""Segments of a bundle, at most: with more its requests fail."""
LATE_TTL = 14 * 86400
"""Seconds for which it is known that a group was released, where nobody sees to it (`coordinator.forget`):
twice the longest message timeout."""
_NULL = zlib.crc32(b"null")
LAST = "!"
"""How the place of a segment begins that ends a bundle."""


@dataclass(frozen=True, slots=True)
class Gathering(Record, what="how a stream gathers"):
    """How a stream gathers: the line, and the section whose end it waits for; tasks, and columns of a task.

    Rows with the same values of the columns `by` are for the same task.
    """

    line: Annotated[int, Bounds(1, sections.LINES)]
    section: Annotated[int, Bounds(1, sections.SECTIONS - 1)]
    tasks: Annotated[int, Bounds(1, TASKS)] = 1
    by: tuple[str, ...] = ()


def declare(core: Core, stream: str, how: Gathering) -> Operation[None]:
    """Has a stream gather. LineConflict where it gathers otherwise, or holds segments that do not wait."""
    own = keys.Stream(core.config.name, check_name(stream, "stream"))
    yield [command("SADD", keys.streams(core.config.name), stream)]
    [reply] = yield [scripts.declare_gather(own, how.dump())]
    if reply is not None:
        found = reply.decode("utf-8", "replace")
        why = f"it gathers by {found}" if found else "it holds rows that were written before"
        raise LineConflict(f"stream {stream!r} cannot gather by {how.dump()}: {why}")


def of(core: Core, stream: str) -> Operation[Gathering | None]:
    """How a stream gathers; None where it does not. Raises UnreadableRecord."""
    [found] = yield [command("HGET", keys.Stream(core.config.name, stream).subscriptions, "gather")]
    return None if found is None else Gathering.load(found)


class Gathers(NamedTuple):
    """The number of a line, its streams that gather, and its mark (`acker.ledger.slabs.sections.mark_of`)."""

    number: int
    streams: tuple[str, ...]
    mark: int


def line(core: Core, name: str) -> Operation[Gathers]:
    """What a line is. Raises UnknownLine and UnreadableRecord."""
    [stored] = yield [command("HGET", keys.lines(core.config.name), name)]
    if stored is None:
        raise UnknownLine(f"topology {core.config.name!r} has no line {name!r}: declare it first")
    number, _, record = stored.partition(b" ")
    streams = tuple(stream for stream, *_ in sections.LINE.load(record))
    return Gathers(whole(number, f"the number of line {name!r}"), streams, sections.mark_of(name, record))


def numbers(core: Core) -> Operation[dict[str, int]]:
    """The numbers of lines by which streams gather, by the streams. One that cannot be read is left out."""
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    streams = [name.decode("utf-8", "replace") for name in names]
    stored = yield [
        command("HGET", keys.Stream(core.config.name, stream).subscriptions, "gather") for stream in streams
    ]
    found = {}
    for stream, record in zip(streams, stored, strict=True):
        if (how := readable(Gathering.load, record, f"stream {stream}")) is not None:
            found[stream] = how.line
    return found


def marks(core: Core) -> Operation[dict[int, int]]:
    """The marks of the lines that a topology has, by their numbers; one that has no number is left out."""
    [stored] = yield [command("HGETALL", keys.lines(core.config.name))]
    found = {}
    for name, value in pairs(stored).items():
        number, _, record = value.partition(b" ")
        if number.isdigit():
            found[int(number)] = sections.mark_of(name.decode("utf-8", "replace"), record)
    return found


def apart(firsts: Ids) -> bool:
    """Whether groups that were drawn together are each another one."""
    return len(np.unique(firsts)) == len(firsts)


def looks(core: Core, slabs: Sequence[Ids], streams: Sequence[str]) -> list[Request]:
    """Asks whether groups that were drawn are free: shards for slabs of each section, streams that gather.

    Each is answered 1 where that is so, else 0.
    Such a stream may know a group whose trees are all gone, and would drop rows of another one of its name as
    late ones.
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
    how: Gathering, stream: str, batches: Sequence[pa.RecordBatch]
) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Rows by where they wait, as tuples of the section after the one whose end they wait for.

    Raises ValidationError for rows without anchor or with several, for anchors of no line, of another one or
    of a later section, and where a column of `by` is missing.
    """
    rows = pa.Table.from_batches(batches).combine_chunks()
    anchors = _anchors(how, stream, rows)
    rows = rows.set_column(
        rows.schema.get_field_index(ANCHORS), ANCHORS, pa.array(sections.within(anchors, how.section + 1))
    )
    groups, tasks = sections.groups(anchors), tasks_of(how, stream, rows)
    order = np.lexsort((tasks, groups))
    groups, tasks = groups[order], tasks[order]
    changes = np.flatnonzero((groups[1:] != groups[:-1]) | (tasks[1:] != tasks[:-1])) + 1
    rows = rows.take(pa.array(order)).combine_chunks()
    for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), len(order)], strict=True):
        part = rows.slice(begin, end - begin)
        group = int(groups[begin]).to_bytes(8, "big").hex()
        yield destination(group, int(tasks[begin]), how.section), part.to_batches()


class Destination(NamedTuple):
    """Place of a segment in a stream that gathers: its group and task, and the section that it waits for.

    last: it ends its bundle, which goes on.
    """

    group: str
    task: int
    section: int
    last: bool


def destination(group: str, task: int, section: int, *, last: bool = False) -> str:
    """The place of a segment, as its record has it."""
    return f"{LAST if last else ''}{group}:{task}:{section}"


def parse_destination(text: str) -> Destination:
    """The inverse of `destination`. Raises UnreadableRecord."""
    group, *numbers = text.removeprefix(LAST).split(":")
    if len(group) != 2 * ids.SLAB_BYTES or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        raise UnreadableRecord(f"not where a segment waits: {text!r:.100}")
    return Destination(group, int(numbers[0]), int(numbers[1]), text.startswith(LAST))


def tasks_of(how: Gathering, stream: str, rows: pa.Table) -> Ids:
    """The task of each row: CRC-32 of its values in the columns `by`, modulo the tasks.

    Equal values have one task, whatever batch they are in (`acker.streams.types.equality`).
    """
    tasks = np.zeros(rows.num_rows, dtype=np.int64)
    if how.tasks == 1:
        return tasks
    for name in how.by:
        if name not in rows.column_names:
            raise ValidationError(
                f"stream {stream!r} gathers by column {name!r}: expected it among "
                f"{', '.join(column for column in rows.column_names if column != ANCHORS)}"
            )
    hashes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in how.by:
        places, values = equality.encoded(rows.column(name))
        known = np.array([*map(zlib.crc32, values), _NULL], dtype=np.int64)
        hashes = (hashes * 31 + known[places]) & 0xFFFFFFFF
    found: Ids = hashes % how.tasks
    return found


def with_unfit(
    how: Gathering, stream: str, batches: list[pa.RecordBatch], failed: str
) -> list[pa.RecordBatch]:
    """Rows, of which those that cannot gather have a reason to be failed, in the column `failed`.

    These are rows of which Python has no value for a column of `by`: a step in plain Python would get the
    other rows of their tasks, and not these.
    """
    if ANCHORS not in batches[0].schema.names:
        return batches
    found = [_unfit(how, stream, batch) for batch in batches]
    if not any(found):
        return batches
    marked = []
    for batch, reasons in zip(batches, found, strict=True):
        place = batch.schema.get_field_index(failed)
        before = segments.texts(batch.column(place)) if place >= 0 else [None] * batch.num_rows
        texts = [reasons.get(row) if text is None else text for row, text in enumerate(before)]
        rest = batch.remove_column(place) if place >= 0 else batch
        marked.append(rest.append_column(failed, pa.array(texts, pa.string())))
    return marked


def _unfit(how: Gathering, stream: str, rows: pa.RecordBatch) -> dict[int, str]:
    found: dict[int, str] = {}
    for name in how.by if how.tasks > 1 else ():
        place = rows.schema.get_field_index(name)
        for row, said in python_values.unshowable(rows.column(place)) if place >= 0 else ():
            found.setdefault(row, f"column {name!r}, by which stream {stream!r} gathers: {said}")
    return found


def _anchors(how: Gathering, stream: str, rows: pa.Table) -> Ids:
    """The anchor of each row."""
    what = f"stream {stream!r} gathers: expected rows of line {how.line} with one anchor each"
    if ANCHORS not in rows.column_names:
        raise ValidationError(f"{what}, got rows without the column {ANCHORS}")
    column = rows.column(ANCHORS)
    if not pa.types.is_int64(column.type):
        raise ValidationError(f"{what}, got a column {ANCHORS} of {column.type}")
    found = segments.edges(column)[0]
    if len(found) != rows.num_rows:
        raise ValidationError(f"{what}, got {rows.num_rows - len(found):,} rows without")
    of_lines = sections.lines(found)
    if (other := found[of_lines != how.line]).size:
        of_line = int(sections.lines(other[:1])[0])
        of_what = f"line {of_line}" if of_line else "no line"
        raise ValidationError(f"{what}, got anchor {int(other[0])}, which is of {of_what}")
    if (later := found[sections.sections(found) > how.section]).size:
        raise ValidationError(
            f"stream {stream!r} gathers at the end of section {how.section}, got a row of section "
            f"{int(sections.sections(later[:1])[0])}: rows go forwards through a line"
        )
    return found
