"""Dead letters: rows of a spout whose last attempt was not acked. They are kept until replayed or deleted.

For a service, which runs operations on a store of its own (`Store.run`, `AsyncStore.run`):

    page = store.run(dead_letters.page(core, after=cursor, count=50))    # GET .../dead-letters
    store.run(dead_letters.replay(core, letter_id))                      # POST .../dead-letters/{id}/replay
    store.run(dead_letters.delete(core, letter_id))

Ids are text that is safe in a URL; the id of the last letter of a page is the cursor of the next one. Nothing
here needs Spark, only pyarrow. Errors: ValidationError for a malformed id or count, UnknownDeadLetter, and
TrackRejected or SpoutPendingFull where there is no room for a replay: nothing has changed then.
"""

import re
from dataclasses import dataclass, replace

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker import keys
from acker.config import check_name, check_number
from acker.errors import (
    AckerError,
    SpoutPendingFull,
    TrackRejected,
    UnknownDeadLetter,
    UnreadableRecord,
    ValidationError,
)
from acker.operations import Core
from acker.requests import Operation, command
from acker.streams import commits, kept, segments
from acker.streams.commits import Commit
from acker.streams.kept import Settled
from acker.streams.replays import emit_recorded, writer_of
from acker.streams.roots import Roots
from acker.streams.staging import Staging

PAGE = 1_000
"""Most dead letters of a page."""
FIRST = "0-0"
"""Before the first dead letter of a spout."""
FIELDS = pa.schema(
    [
        ("id", pa.string()),
        ("spout", pa.string()),
        ("message_id", pa.binary()),
        ("anchor", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("attempts", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("stream", pa.string()),
    ]
)
"""What is told of a dead letter as a row of a table, beside its own row (`DeadLetter`)."""
_ID = re.compile(r"([0-9]{1,20}-[0-9]{1,20})@([A-Za-z0-9._-]{1,64})\Z")
_RACES = 5


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A row that was given up.

    id: names it. message_id: the spout's own name of it. anchor: of its last tree. status: failed or expired;
    reason: of that tree. attempts: how many trees it had. at: Unix seconds of the last outcome. stream: where
    a replay is published. row: its columns, as Python values (`acker.streams.segments.values`).
    """

    id: str
    spout: str
    message_id: bytes
    anchor: int
    status: str
    reason: str
    attempts: int
    at: float
    stream: str
    row: dict[str, object]


@dataclass(frozen=True, slots=True)
class Page:
    """Some dead letters, oldest first for each spout, and the cursor of the next page: None at the end."""

    letters: tuple[DeadLetter, ...]
    cursor: str | None


def _split(letter: object) -> tuple[str, str]:
    match = _ID.match(letter) if isinstance(letter, str) else None
    if match is None:
        raise ValidationError(
            f"dead letter: expected an id as <number>-<number>@<spout>, got {letter!r:.100}"
        )
    return match[1], match[2]


def page(
    core: Core, *, spout: str | None = None, after: str | None = None, count: int = 100
) -> Operation[Page]:
    """A page of at most `count` (1 to 1,000) dead letters of a spout, or of all, after the letter `after`."""
    check_number(count, "count", 1, PAGE, int)
    yield from core.refresh_spouts()
    names = sorted(core.spouts) if spout is None else [check_name(spout, "spout")]
    start, first = _split(after) if after is not None else ("0-0", "")
    found: list[DeadLetter] = []
    for name in names:
        if name < first:
            continue
        since = start if name == first else "0-0"
        own = keys.Spout(core.config.name, name)
        [entries] = yield [command("XRANGE", own.dead, f"({since}", "+", "COUNT", count + 1 - len(found))]
        found += [_parse(entry_id, name, fields) for entry_id, fields in entries]
        if len(found) > count:
            return Page(tuple(found[:count]), found[count - 1].id)
    return Page(tuple(found), None)


def count(core: Core, spout: str | None = None) -> Operation[int]:
    """How many dead letters a spout has, or all."""
    yield from core.refresh_spouts()
    names = sorted(core.spouts) if spout is None else [check_name(spout, "spout")]
    if not names:
        return 0
    return sum((yield [command("XLEN", keys.Spout(core.config.name, name).dead) for name in names]))


def get(core: Core, letter: str) -> Operation[DeadLetter]:
    """One dead letter; raises UnknownDeadLetter."""
    entry_id, spout = _split(letter)
    fields = yield from _entry(core, spout, entry_id)
    return _parse(entry_id.encode(), spout, fields)


def replay(core: Core, letter: str) -> Operation[int]:
    """Gives a dead letter a new tree, as its first attempt, and publishes its row; returns the new anchor.

    Takes effect once, also if two ask for it: the second gets UnknownDeadLetter. Each of several at the same
    moment may find the last room, and is replayed.
    """
    entry_id, spout = _split(letter)
    for _ in range(_RACES):
        # The number first: whoever replays the same letter meanwhile takes it, and this commit loses.
        number = yield from commits.next_number(core, writer_of(spout))
        stored = yield from _entry(core, spout, entry_id)
        _parse(entry_id.encode(), spout, stored)  # that it can be read
        fields = dict(_pairs(stored))
        # The watermark has passed it, and never goes back.
        how = replace(Roots.parse(fields[b"roots"]).how, offset="", partition="")
        batches = list(segments.decode(fields[b"row"]))
        made, piece = yield from emit_recorded(core, how, Staging(how.stream), batches)
        if made and made[0].refused:
            yield from commits.discard(core, Commit((piece,), made))
            raise ValidationError(
                f"dead letter {letter!r} can not be replayed: its message id is null or too long; write its "
                "row again with another, and delete it"
            )
        what = Commit((piece,), made, settled=Settled(spout, letters=(entry_id,)))
        try:
            yield from _check_room(core, made[0])
        except AckerError:
            yield from commits.discard(core, what)
            raise
        if (yield from commits.commit(core, writer_of(spout), number, what)):
            return int(made[0].anchors()[0])
    raise UnknownDeadLetter(f"dead letter {letter!r} could not be replayed: others are replaying, too")


def _check_room(core: Core, one: Roots) -> Operation[None]:
    """Raises SpoutPendingFull or TrackRejected where there is no room for the tree of a replay.

    A spout that has all its dead letters waits for one to go before its outcomes make room: there always is.
    """
    spout, limit = one.how.spout, one.how.max_spout_pending
    if (yield from count(core, spout)) >= kept.DEAD_LETTERS:
        return
    pending = (yield from kept.pending(core, spout))["pending"]
    if limit is not None and pending >= limit:
        raise SpoutPendingFull(
            f"spout {spout!r} has {pending:,} rows without outcome: max_spout_pending is {limit:,}"
        )
    [shard] = one.shards(core.config.ackers)
    [held] = yield [command("HGET", core.shards[shard].counters, "held")]
    if int(held or 0) >= core.config.shard_limit:
        raise TrackRejected(
            f"topology {core.config.name!r} is over its high-water mark of "
            f"{core.config.high_water_mark:,} trees"
        )


def last(core: Core, spout: str, after: str, end: str, most: int) -> Operation[str]:
    """The number of the last of the next `most` dead letters of a spout, up to `end`; `after` for none.

    The number of a letter is its id without the spout. Those of a spout ascend.
    """
    key = keys.Spout(core.config.name, check_name(spout, "spout")).dead
    if most >= kept.DEAD_LETTERS:  # there are no more
        [found] = yield [command("XREVRANGE", key, end, f"({after}", "COUNT", 1)]
        return found[0][0].decode() if found else after
    while most > 0:
        [found] = yield [command("XRANGE", key, f"({after}", end, "COUNT", min(most, PAGE))]
        if not found:
            break
        after, most = found[-1][0].decode(), most - len(found)
    return after


def table(
    core: Core, spout: str, stream: str, after: str, end: str, row: pa.Schema
) -> Operation[tuple[pa.RecordBatch, str] | None]:
    """The next page of a spout's dead letters, up to number `end`, and its last number; None at the end.

    Only those whose replays are published in the stream. row: the columns of their rows (`table_schema`).
    Raises UnreadableRecord, which names the letter.
    """
    key = keys.Spout(core.config.name, check_name(spout, "spout")).dead
    [entries] = yield [command("XRANGE", key, f"({after}", end, "COUNT", PAGE)]
    if not entries:
        return None
    columns: list[list[object]] = [[] for _ in FIELDS]
    rows: list[pa.RecordBatch] = []
    for entry_id, fields in entries:
        letter = _parse(entry_id, spout, fields)
        if letter.stream != stream:
            continue
        told = {**{name: getattr(letter, name) for name in FIELDS.names}, "at": round(letter.at * 1e6)}
        for column, value in zip(columns, told.values(), strict=True):
            column.append(value)
        rows += [segments.conform(one, row) for one in segments.decode(dict(_pairs(fields))[b"row"])]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, FIELDS, strict=True)]
    if row.names:
        parts = (
            [pa.concat_arrays([one.column(place) for one in rows]) for place in range(len(row))]
            if rows
            else []
        )
        empty = [pa.array([], field.type) for field in row]
        arrays.append(pa.StructArray.from_arrays(parts or empty, fields=list(row)))
    batch = pa.RecordBatch.from_arrays(arrays, schema=table_schema(row))
    return batch, entries[-1][0].decode()


def table_schema(row: pa.Schema) -> pa.Schema:
    """The schema of dead letters as a table: `FIELDS`, and the struct `row` of these columns, if any."""
    return FIELDS.append(pa.field("row", pa.struct(list(row)))) if row.names else FIELDS


def delete(core: Core, letter: str) -> Operation[None]:
    """Drops a dead letter for good; raises UnknownDeadLetter."""
    entry_id, spout = _split(letter)
    [dropped] = yield [command("XDEL", keys.Spout(core.config.name, spout).dead, entry_id)]
    if not dropped:
        raise UnknownDeadLetter(f"topology {core.config.name!r} has no dead letter {letter!r}")


def _entry(core: Core, spout: str, entry_id: str) -> Operation[list[bytes]]:
    [found] = yield [command("XRANGE", keys.Spout(core.config.name, spout).dead, entry_id, entry_id)]
    if not found:
        raise UnknownDeadLetter(f"topology {core.config.name!r} has no dead letter {f'{entry_id}@{spout}'!r}")
    fields: list[bytes] = found[0][1]
    return fields


def _pairs(fields: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(fields[::2], fields[1::2], strict=True))


def _parse(entry_id: bytes, spout: str, fields: list[bytes]) -> DeadLetter:
    """A dead letter; UnreadableRecord, which names it: it can still be deleted."""
    letter = f"{entry_id.decode()}@{spout}"
    try:
        values = dict(_pairs(fields))
        [row] = [row for batch in segments.decode(values[b"row"]) for row in segments.values(batch)]
        return DeadLetter(
            id=letter,
            spout=spout,
            message_id=values[b"message_id"],
            anchor=int(values[b"anchor"]),
            status=values[b"status"].decode(),
            reason=values[b"reason"].decode("utf-8", "replace"),
            attempts=int(values[b"attempts"]),
            at=int(values[b"at"]) / 1000,
            stream=Roots.parse(values[b"roots"]).how.stream,
            row=row,
        )
    except (*segments.UNREADABLE, UnreadableRecord, pa.ArrowException) as error:
        raise UnreadableRecord(f"dead letter {letter!r} can not be read: {error!r:.200}") from error
