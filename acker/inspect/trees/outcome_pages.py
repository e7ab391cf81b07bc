"""Outcomes of a spout in pages, for a service that keeps nothing between two requests of a spout.

A first page begins with the oldest unconfirmed outcomes, so none is passed over, whatever became of the
previous page. An entry (`acker.ledger.outcomes.outcomes`) with more trees than a page holds spans several
pages, and has its confirmation with its last trees: so no outcome can be confirmed unseen.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from acker.errors import ValidationError, shown
from acker.ledger.calls import idempotency_keys
from acker.ledger.calls.core import FLIGHT_SHARDS, Core
from acker.ledger.fields import HIDDEN, SPREAD, Cursor, Id, Instant, MessageId, Seconds
from acker.ledger.ids import anchor_at
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import Confirmation, Entry, SlabOutcome, Status
from acker.ledger.slabs.causes import Cause
from acker.ledger.trees import cursors
from acker.store.operation import Operation, command

PAGE = 1_000
"""Most trees in a page."""
PAGE_BYTES = 1 << 20
"""Bytes of message ids after which a page ends."""
WINDOW = 100
"""Most entries of a shard that a page skips."""
CONFIRMATIONS = 1_000
"""Most confirmations that one call confirms."""
CONFIRMATION_PATTERN = r"^[0-9]{1,4}-[0-9]{1,20}-[0-9]{1,20}-[0-9a-f]{16}$"

_ENTRIES = 10
_SLABS = 8
_MOST_ID = 2**64 - 1
_POSITION = struct.Struct("<BHHQQ16sIH")
_VERSION = 1
_CONFIRMATION = re.compile(CONFIRMATION_PATTERN)


@dataclass(frozen=True, slots=True)
class EndedTree:
    """A tree that has its outcome. message_id: None where it cannot be read."""

    anchor: Id
    message_id: MessageId
    latency: Annotated[Seconds, "Seconds from its track to its end."]


@dataclass(frozen=True, slots=True)
class EntryOutcomes:
    """Trees that ended together, with one outcome. last: True for the last ones of their entry."""

    entry: Annotated[Confirmation, HIDDEN]
    status: Status
    cause: Annotated[Cause, SPREAD]
    at: Instant
    trees: list[EndedTree]
    last: Annotated[bool, HIDDEN]

    @property
    def confirmation(
        self,
    ) -> Annotated[
        str | None, "Confirms them, and those before them that came with null: they ended together."
    ]:
        """The confirmation of the entry; None where it has trees that are not shown yet."""
        return confirmation_text(self.entry) if self.last else None

    @property
    def retry(self) -> Annotated[bool, "false: failed for good, so another attempt is of no use."]:
        """False if the trees failed for good."""
        return self.cause.retry


@dataclass(frozen=True, slots=True)
class OutcomesPage:
    """Outcomes that are not confirmed, from the oldest of some shard on."""

    outcomes: list[EntryOutcomes]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a reading: its `turn`-th shard from `first` on, and a tree of a slab of an entry.

    The digest identifies the entry.
    """

    first: int
    turn: int = 0
    entry: tuple[int, int] = (0, 0)
    digest: bytes = b"\0" * 16
    slab: int = 0
    index: int = 0


@dataclass(slots=True)
class _Room:
    """The remaining room of a page."""

    trees: int
    size: int = field(default=PAGE_BYTES)

    def __bool__(self) -> bool:
        return self.trees > 0 and self.size > 0

    def take(self, message_id: bytes | None) -> None:
        self.trees -= 1
        self.size -= len(message_id or b"")


def nothing_skipped(_: Confirmation) -> bool:
    """No entry is left out."""
    return False


def page(
    core: Core,
    spout: str,
    *,
    limit: int = PAGE,
    cursor: str | None = None,
    skip: Callable[[Confirmation], bool] = nothing_skipped,
) -> Operation[OutcomesPage]:
    """Outcomes of a spout that are not confirmed, at most `limit` trees (1 to `PAGE`).

    It goes through the shards from any of them on, in each from the oldest entry on: so all shards have
    their turn, however many come. skip: leaves out an entry. An entry that cannot be read is
    dropped and counted; the spout's own timer tells of its trees. Raises ValidationError for a cursor of
    no such page.
    """
    count = len(core.shards)
    at = _Position(random.randrange(count or 1)) if cursor is None else _decoded(cursor, count)
    room, shown = _Room(limit), list[EntryOutcomes]()
    while at.turn < count and room:
        numbers = [(at.first + turn) % count for turn in range(at.turn, min(count, at.turn + FLIGHT_SHARDS))]
        lengths = yield [command("XLEN", core.shards[number].outcomes(spout)) for number in numbers]
        for number, length in zip(numbers, lengths, strict=True):
            if length:
                at = yield from _read_shard(core, spout, number, at, room, shown, skip)
            if not room:
                break
            at = _Position(at.first, at.turn + 1)
    return OutcomesPage(shown, _encoded(at) if at.turn < count else None)


def lengths(core: Core, spout: str) -> Operation[tuple[int, ...]]:
    """Returns the number of a spout's unconfirmed entries in each shard."""
    return tuple((yield [command("XLEN", shard.outcomes(spout)) for shard in core.shards]))


def _read_shard(
    core: Core,
    spout: str,
    number: int,
    at: _Position,
    room: _Room,
    shown: list[EntryOutcomes],
    skip: Callable[[Confirmation], bool],
) -> Operation[_Position]:
    """Tells entries of a shard from a position on, until there is no room or no entry; where it came to."""
    stream, from_id = core.shards[number].outcomes(spout), b"%d-%d" % at.entry
    skipped = 0
    while skipped < WINDOW:
        [read] = yield [command("XRANGE", stream, from_id, b"+", b"COUNT", _ENTRIES)]
        entries, unreadable = outcomes.parse_all(number, read)
        if unreadable:
            yield from outcomes.drop(core, spout, unreadable)
        for entry in entries:
            began = _id(entry.confirmation) == at.entry and entry.confirmation.digest == at.digest
            if not began:
                at = _Position(at.first, at.turn, _id(entry.confirmation), entry.confirmation.digest)
            if skip(entry.confirmation):
                skipped += 1
            else:
                at, parts = yield from _tell(core, spout, entry, at, room)
                shown += parts
                if parts and not parts[-1].last:
                    return at
            milliseconds, sequence = at.entry
            at = _Position(at.first, at.turn, (milliseconds, sequence + 1))
            if not room:
                return at
        if len(read) < _ENTRIES:
            return at
        milliseconds, sequence = outcomes.id_parts(read[-1][0])
        from_id = b"%d-%d" % (milliseconds, sequence + 1)
    return at


def _tell(
    core: Core, spout: str, entry: Entry, at: _Position, room: _Room
) -> Operation[tuple[_Position, list[EntryOutcomes]]]:
    """Tells trees of an entry until there is no room; where it came to. Nothing of one that is confirmed."""
    trees: dict[Cause, list[EndedTree]] = {}
    slab, index = at.slab, at.index
    while slab < len(entry.slabs) and room:
        part = entry.slabs[slab : slab + _SLABS]
        ids_of_slabs = yield from outcomes.message_ids(core, [outcome.slab for outcome in part])
        # Message ids go in the step that confirms their entry, which another reader may do meanwhile.
        if len(ids_of_slabs) < len(part) and not (yield from _is_there(core, spout, entry.confirmation)):
            return replace(at, slab=len(entry.slabs), index=0), []
        for outcome in part:
            for number, tree in _trees(outcome, ids_of_slabs.get(outcome.slab), index):
                if not room:
                    return replace(at, slab=slab, index=number), _by_cause(entry, trees, last=False)
                trees.setdefault(outcome.cause, []).append(tree)
                room.take(tree.message_id)
            slab, index = slab + 1, 0
            if not room:
                break
    if not trees:
        room.take(None)  # where nothing is left to tell of an entry, too, a page ends
        trees = {Cause(): []}
    return replace(at, slab=slab, index=0), _by_cause(entry, trees, last=slab >= len(entry.slabs))


def _by_cause(entry: Entry, trees: Mapping[Cause, list[EndedTree]], *, last: bool) -> list[EntryOutcomes]:
    """Yields the trees of an entry. The confirmation comes with the last of them."""
    shown = entry.confirmation, entry.status
    told = [EntryOutcomes(*shown, cause, entry.at, of, last=False) for cause, of in trees.items()]
    return [*told[:-1], replace(told[-1], last=last)]


def _is_there(core: Core, spout: str, confirmation: Confirmation) -> Operation[bool]:
    """Return True if an entry is not confirmed."""
    [entries] = yield [
        command("XRANGE", core.shards[confirmation.shard].outcomes(spout), confirmation.id, confirmation.id)
    ]
    return any(
        entry.confirmation == confirmation for entry in outcomes.parse_all(confirmation.shard, entries)[0]
    )


def _trees(
    outcome: SlabOutcome, message_ids: Sequence[bytes] | None, begin: int
) -> Iterator[tuple[int, EndedTree]]:
    """Yields the trees of a slab from the `begin`-th on, each with its number.

    If the message ids cannot be read, named trees are shown without; the size of a slab that is named as a
    whole is then unknown, and the spout's own timer reports its trees.
    """
    count = max(outcome.indexes or (-1,)) + 1 if message_ids is None else len(message_ids)
    indexes = outcome.indexes_in(count)
    for number in range(begin, len(indexes)):
        index = indexes[number]
        name = None if message_ids is None else message_ids[index]
        yield number, EndedTree(anchor_at(outcome.slab, index), name, outcome.latency)


# Confirmations


def confirmation_text(confirmation: Confirmation) -> str:
    """Returns the name of an entry for its confirmation."""
    return f"{confirmation.shard}-{confirmation.id.decode()}-{confirmation.digest.decode()}"


def confirmation_of(core: Core, text: str) -> Confirmation:
    """The entry that a confirmation names; ValidationError where it can be none of this topology."""
    parts = text.split("-") if _CONFIRMATION.match(text) else []
    if not parts or int(parts[0]) >= len(core.shards) or max(int(parts[1]), int(parts[2])) > _MOST_ID:
        raise ValidationError(
            f"confirmation: expected one that came with outcomes of this topology, got {shown(text)}"
        )
    return Confirmation(int(parts[0]), b"%d-%d" % (int(parts[1]), int(parts[2])), parts[3].encode())


def confirm(core: Core, spout: str, confirmations: Sequence[str], key: str | None = None) -> Operation[int]:
    """Confirms the entries of confirmations; returns how many trees. Confirming again changes nothing.

    key: names the call for an hour, in which it is answered the same. Raises ValidationError before anything
    has changed, and KeyConflict for a key that was used for something else.
    """
    places = list(dict.fromkeys(confirmation_of(core, text) for text in confirmations))
    if key is None:
        return (yield from outcomes.confirm(core, spout, places))
    taken = yield from idempotency_keys.take(core, key, "\0".join(["confirm", spout, *confirmations]))
    answer = taken.answer
    if answer is None:
        trees = yield from outcomes.confirm(core, spout, places)
        *_, answer = yield taken.noting(trees)
    return int(answer or 0)


# Cursors


def _encoded(at: _Position) -> str:
    packed = _POSITION.pack(_VERSION, at.first, at.turn, *at.entry, at.digest, at.slab, at.index)
    return cursors.as_text(packed)


def _decoded(cursor: str, shards: int) -> _Position:
    packed = cursors.from_text(cursor, 2 * _POSITION.size)
    if len(packed) != _POSITION.size:
        raise cursors.malformed()
    version, first, turn, milliseconds, sequence, digest, slab, index = _POSITION.unpack(packed)
    if version != _VERSION or first >= shards or turn >= shards:
        raise cursors.malformed()
    return _Position(first, turn, (milliseconds, sequence), digest, slab, index)


def _id(confirmation: Confirmation) -> tuple[int, int]:
    return outcomes.id_parts(confirmation.id)
