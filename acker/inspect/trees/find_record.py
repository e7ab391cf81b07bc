"""Finding a record by the spout's message id: its attempts, in flight or over, and its dead letters.

There is no index of message ids, because it would cost every track and every confirmation. Instead, the trees
that the ledger holds, the latest failed or expired trees, and the dead letters are searched, a bounded piece
at a time. So an acked record is found until its slab is confirmed, and no longer.

Terms: a tree is all that comes of one record.
"""

import hashlib
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeAlias

from acker.errors import UnreadableRecord
from acker.inspect.trees import failures, pages
from acker.inspect.trees.failure import Failure
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.fields import Batch, Count, Cursor, Id, Instant, MessageId, Name, Named, Whole
from acker.ledger.settings import config
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs import causes
from acker.ledger.trees import cursors
from acker.ledger.trees.trees import Tree
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import Codec, passing_over
from acker.store.replies import whole
from acker.streams.dead_letters import pages as dead_letters_pages
from acker.streams.dead_letters.filters import Filter
from acker.streams.sources import attempts, dead_letter_store, kept_rows, roots
from acker.streams.sources.attempts import Attempt
from acker.streams.sources.dead_letter_store import Head, StoredRow

FoundState: TypeAlias = Literal["pending", "finished", "acked", "failed", "expired"]

PAGE = 100
"""Most trees and dead letters in a page, each."""
_CURSOR_BYTES = 16_384
_UNPACKED_BYTES = 1 << 17


@dataclass(frozen=True, slots=True)
class FoundAttempt:
    """A tree of a record."""

    anchor: Annotated[Id | None, "null where only the row still tells of it."]
    number: Annotated[Whole | None, "Of its row, from 1; null where no rows are kept for it."]
    state: Annotated[FoundState, "`finished`: it is over, and how is not kept."]
    reason: Annotated[str, causes.REASON]
    step: Annotated[str, causes.STEP]
    batch: Annotated[Batch, causes.BATCH]
    tracked_at: Annotated[Instant | None, "null where it is not kept."]
    at: Annotated[Instant | None, "When it ended; null in flight, and where it is not kept."]

    def order(self) -> tuple[float, float]:
        """The order of attempts: the next attempt of a row begins when the previous one has ended."""
        end = math.inf if self.at is None else round(self.at, 3)
        return (end if self.tracked_at is None else round(self.tracked_at, 3)), end


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """Attempts and dead letters that a spout has of a message id."""

    spout: Name
    attempts: Annotated[tuple[FoundAttempt, ...], "In their order."]
    letters: Annotated[tuple[Head, ...], Named("dead_letters"), "Oldest first."]


@dataclass(frozen=True, slots=True)
class Found:
    """Finds of a message id, by spout; one that two spouts use is two records.

    cursor: where the next call goes on, and `add_up` adds its answer.
    """

    message_id: MessageId
    records: tuple[FoundRecord, ...]
    looked: Annotated[Count, "How many trees and dead letters were looked at so far."]
    of: Annotated[Count, "About how many there are."]
    cursor: Annotated[Cursor, "Of the next page; null where all was looked at."]


@dataclass(frozen=True, slots=True)
class _Named(Filter):
    """Dead letters of a message id."""

    message_id: bytes = b""

    def takes(self, letter: Head, now: float) -> bool:
        return letter.message_id == self.message_id


@dataclass(slots=True)
class Searches:
    """The positions of the three searches: "" at the beginning, a cursor, None at the end."""

    held: str | None = ""
    ended: str | None = ""
    dead: str | None = ""
    looked: Whole = 0
    of: Whole = 0


_CURSOR: Codec[tuple[str, Searches]] = Codec(tuple[str, Searches], "a cursor", _UNPACKED_BYTES)


@dataclass(slots=True)
class _Gathered:
    """Finds of a record so far, by spout."""

    trees: dict[int, FoundAttempt] = field(default_factory=dict)
    reported: list[Attempt] = field(default_factory=list)
    letters: list[Head] = field(default_factory=list)

    def record(self, spout: str) -> FoundRecord:
        return _record(spout, [*self.trees.values(), *map(_of_row, self.reported)], self.letters)


def find(
    core: Core, message_id: bytes | str, *, limit: int = PAGE, cursor: str | None = None
) -> Operation[Found]:
    """Finds a record by its message id: in flight, ended, or given up. Changes nothing.

    limit: most trees, and most dead letters, of the answer, 1 to 100. cursor: the cursor of the previous
    answer. A call searches a bounded piece: 2,048 slabs or 2 MiB of their message ids, 4,000 entries or 4 MiB
    of failed and expired trees, and 10,000 dead letters. Raises ValidationError.
    """
    wanted = config.check_message_id(message_id)
    check_number(limit, "limit", 1, PAGE, int)
    if cursor is None:
        searches = Searches(of=(yield from _count(core)))
    else:
        searches = decoded(cursor, wanted)
    gathered: dict[str, _Gathered] = {}
    # In the order of a record's life: if it leaves one of them meanwhile, it comes to the next.
    room = limit - (yield from _held(core, wanted, searches, limit, gathered))
    if room:
        yield from _ended(core, wanted, searches, room, gathered)
    for spout, one in gathered.items():
        yield from _number(core, spout, one)
    yield from _dead(core, wanted, searches, limit, gathered)
    records = tuple(gathered[spout].record(spout) for spout in sorted(gathered))
    after = encoded(searches, wanted)
    of = searches.looked if after is None else max(searches.of, searches.looked)
    return Found(wanted, records, searches.looked, of, after)


def add_up(answers: Sequence[Found]) -> Found:
    """The answers of several calls, each with the cursor of the one before, as one."""
    by_spout: dict[str, list[FoundRecord]] = {}
    for record in (record for answer in answers for record in answer.records):
        by_spout.setdefault(record.spout, []).append(record)
    records = [
        _record(
            spout,
            [one for part in by_spout[spout] for one in part.attempts],
            {one.id: one for part in by_spout[spout] for one in part.letters}.values(),
        )
        for spout in sorted(by_spout)
    ]
    return replace(answers[-1], records=tuple(records))


def _record(spout: str, attempts: Iterable[FoundAttempt], letters: Iterable[Head]) -> FoundRecord:
    """A record with each attempt once: its tree may be found twice, and its row tells of it, too."""
    trees: dict[int, FoundAttempt] = {}
    reported: dict[tuple[str, int], dict[int | None, FoundAttempt]] = {}
    for attempt in attempts:
        if attempt.anchor is None:
            reported.setdefault(_end(attempt), {})[attempt.number] = attempt
        else:
            before = trees.get(attempt.anchor, attempt)
            trees[attempt.anchor] = replace(attempt, number=attempt.number or before.number)
    ended: dict[tuple[str, int], list[int]] = {}
    for anchor, tree in trees.items():
        if tree.at is not None:
            ended.setdefault(_end(tree), []).append(anchor)
    alone: list[FoundAttempt] = []
    for end, by_number in reported.items():
        # Rows of one message id may end at one moment: of these, only a number that all have is known.
        anchors, rows = ended.get(end, []), list(by_number.values())
        for anchor in anchors:
            tree = trees[anchor]
            number = tree.number or (rows[0].number if len(rows) == 1 else None)
            trees[anchor] = replace(tree, number=number, reason=tree.reason or rows[0].reason)
        alone += rows[len(anchors) :]
    both = sorted([*trees.values(), *alone], key=FoundAttempt.order)
    return FoundRecord(spout, tuple(both), tuple(letters))


def _end(attempt: FoundAttempt) -> tuple[str, int]:
    """Returns the key that distinguishes ended attempts of a record: time and manner of their end."""
    return attempt.state, round((attempt.at or 0.0) * 1000)


def _of_row(attempt: Attempt) -> FoundAttempt:
    """An attempt that a row tells of."""
    state: FoundState = "expired" if attempt.status == "expired" else "failed"
    return FoundAttempt(
        None, attempt.number, state, attempt.reason, attempt.step, attempt.batch, None, attempt.at
    )


# the searched sources


def _held(
    core: Core, wanted: bytes, searches: Searches, limit: int, gathered: dict[str, _Gathered]
) -> Operation[int]:
    """Trees that the ledger holds; returns how many it found."""
    if searches.held is None:
        return 0
    page = yield from pages.find(core, wanted, limit=limit, cursor=searches.held or None)
    searches.held, searches.looked = page.cursor, searches.looked + page.looked
    for tree in page.trees:
        if tree.spout is not None:
            ended = yield from failures.how_ended(core, tree)
            attempt = (
                _of_failure(ended) if isinstance(ended, Failure) else _of_tree(tree, acked=ended is not None)
            )
            gathered.setdefault(tree.spout, _Gathered()).trees[tree.anchor] = attempt
    return len(page.trees)


def _ended(
    core: Core, wanted: bytes, searches: Searches, limit: int, gathered: dict[str, _Gathered]
) -> Operation[None]:
    """Trees that failed or expired of late."""
    if searches.ended is None:
        return
    page = yield from failures.page(core, message_id=wanted, limit=limit, cursor=searches.ended or None)
    searches.ended, searches.looked = page.cursor, searches.looked + page.looked
    for tree in page.trees:
        if tree.spout is not None:
            gathered.setdefault(tree.spout, _Gathered()).trees[tree.anchor] = _of_failure(tree)


def _dead(
    core: Core, wanted: bytes, searches: Searches, limit: int, gathered: dict[str, _Gathered]
) -> Operation[None]:
    """Returns dead letters, with the earlier attempts that their rows tell."""
    if searches.dead is None:
        return
    asked = _Named(message_id=wanted)
    position = yield from dead_letters_pages.start(core, asked, searches.dead or None)
    heads, rest, looked = yield from dead_letters_pages.search(core, asked, position, limit)
    searches.dead, searches.looked = dead_letters_pages.encoded(rest, asked), searches.looked + looked
    fits = yield from dead_letter_store.fitting(core, heads)
    rows = yield from dead_letter_store.stored(core, heads[:fits])
    for place, head in enumerate(heads):
        record = gathered.setdefault(head.spout, _Gathered())
        record.letters.append(head)
        row = rows[place] if place < fits else None
        if isinstance(row, StoredRow) and row.history:
            record.reported += row.history
            record.trees.setdefault(head.anchor, replace(_of_row(row.history[-1]), anchor=head.anchor))


def _number(core: Core, spout: str, record: _Gathered) -> Operation[None]:
    """Numbers attempts with kept rows, and learns from the rows the ends of earlier attempts."""
    spout_keys = keys.Spout(core.config.name, spout)
    slabs = {anchor: ids.slab_of(anchor) for anchor in record.trees}
    places = yield from kept_rows.kept_slabs(core, spout, list(dict.fromkeys(slabs.values())))
    again: dict[str, tuple[roots.Roots, list[int]]] = {}
    for anchor, slab in slabs.items():
        place = places.get(slab)
        if place is not None and ids.index_of(anchor) < place.count:
            record.trees[anchor] = replace(record.trees[anchor], number=place.roots.number)
            if place.roots.number > 1:
                rows = again.setdefault(place.roots.id, (place.roots, []))[1]
                rows.append(place.first + ids.index_of(anchor))
    size = 0
    for roots_id, (kept_roots, places_of) in again.items():
        [length] = yield [command("STRLEN", spout_keys.rows(roots_id))]
        size += int(length)
        if size > dead_letter_store.ROW_BYTES:
            return  # kept failed trees tell of them, too
        with passing_over(f"{core.config.name}: rows {roots_id} that spout {spout} keeps"):
            table = yield from roots.rows_of(core, kept_roots)
            if table is not None:
                record.reported += [each for row in places_of for each in attempts.of_row(table, row)]


def _of_tree(tree: Tree, *, acked: bool) -> FoundAttempt:
    state: FoundState = "pending" if tree.state != "finished" else "acked" if acked else "finished"
    return FoundAttempt(tree.anchor, None, state, "", "", -1, tree.tracked_at, None)


def _of_failure(tree: Failure) -> FoundAttempt:
    why = tree.cause
    return FoundAttempt(
        tree.anchor, None, tree.status, why.reason, why.step, why.batch, tree.at - tree.age, tree.at
    )


def _count(core: Core) -> Operation[int]:
    """About how many trees and dead letters there are to look at."""
    yield from core.refresh_spouts()
    dead = [command("XLEN", keys.Spout(core.config.name, spout).dead) for spout in sorted(core.spouts)]
    counted = [command("HMGET", shard.counters, "outstanding", "recent") for shard in core.shards]
    replies = yield [*dead, *counted] if dead or counted else []
    total = sum(int(one) for one in replies[: len(dead)])
    for held, recent in replies[len(dead) :]:
        total += max(0, whole(held, "a shard's counter"))
        total += min(core.config.outcomes_kept, whole(recent, "a shard's counter"))
    return total


# Cursors: the three of them as one


def encoded(at: Searches, wanted: bytes) -> str | None:
    """Returns the positions of the searches for a message id as text for a URL; None at the end of all."""
    if (at.held, at.ended, at.dead) == (None, None, None):
        return None
    packed = _CURSOR.dump((_digest(wanted), at))
    return cursors.as_text(zlib.compress(packed.encode()))


def decoded(cursor: object, wanted: bytes) -> Searches:
    """Returns the positions of the searches by a cursor; ValidationError if it belongs to another search."""
    packed = cursors.from_text(cursor, _CURSOR_BYTES)
    try:
        inflated = (unpacking := zlib.decompressobj()).decompress(packed, _UNPACKED_BYTES)
        digest, at = _CURSOR.load(inflated if unpacking.eof else b"")
    except (zlib.error, UnreadableRecord) as error:
        raise cursors.malformed() from error
    if digest != _digest(wanted):
        raise cursors.malformed()
    return at


def _digest(wanted: bytes) -> str:
    return hashlib.sha256(wanted).hexdigest()[:8]
