"""Outcomes of a spout in pages, for a service that keeps nothing between two requests of a spout.

A first page begins with the oldest outcomes that are not confirmed, so nothing is passed over, whatever
became of the page before. An entry (`acker.ledger.outcomes.outcomes`) with more trees than a page holds goes
over several, and has its receipt with its last trees: so nobody can confirm what was not shown.
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
from acker.ledger.outcomes.outcomes import Entry, Receipt, SlabOutcome, Status
from acker.ledger.slabs.causes import Cause
from acker.ledger.trees import cursors
from acker.store.operation import Operation, command

PAGE = 1_000
"""Most trees in a page."""
PAGE_BYTES = 1 << 20
"""Bytes of message ids after which a page ends."""
WINDOW = 100
"""Most entries of a shard that a page skips."""
RECEIPTS = 1_000
"""Most receipts that one call confirms."""
RECEIPT_PATTERN = r"^[0-9]{1,4}-[0-9]{1,20}-[0-9]{1,20}-[0-9a-f]{16}$"

_ENTRIES = 10
_SLABS = 8
_MOST_ID = 2**64 - 1
_POSITION = struct.Struct("<BHHQQ16sIH")
_VERSION = 1
_RECEIPT = re.compile(RECEIPT_PATTERN)


@dataclass(frozen=True, slots=True)
class EndedTree:
    """A tree that has its outcome. message_id: None where it cannot be read."""

    anchor: Id
    message_id: MessageId
    latency: Annotated[Seconds, "Seconds from its track to its end."]


@dataclass(frozen=True, slots=True)
class EntryOutcomes:
    """Trees that ended together, with one outcome. last: True for the last ones of their entry."""

    entry: Annotated[Receipt, HIDDEN]
    status: Status
    cause: Annotated[Cause, SPREAD]
    at: Instant
    trees: list[EndedTree]
    last: Annotated[bool, HIDDEN]

    @property
    def receipt(
        self,
    ) -> Annotated[
        str | None, "Confirms them, and those before them that came with null: they ended together."
    ]:
        """The receipt of the entry; None where it has trees that are not shown yet."""
        return receipt_text(self.entry) if self.last else None

    @property
    def retry(self) -> Annotated[bool, "false: failed for good, so another attempt is of no use."]:
        """False if they failed for good."""
        return self.cause.retry


@dataclass(frozen=True, slots=True)
class OutcomesPage:
    """Outcomes that are not confirmed, from the oldest of some shard on."""

    outcomes: list[EntryOutcomes]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a reading is: in its `turn`-th shard from `first` on, before a tree of a slab of an entry.

    The digest tells whether the entry is still the one that it was.
    """

    first: int
    turn: int = 0
    entry: tuple[int, int] = (0, 0)
    digest: bytes = b"\0" * 16
    slab: int = 0
    index: int = 0


@dataclass(slots=True)
class _Room:
    """What a page still has room for."""

    trees: int
    size: int = field(default=PAGE_BYTES)

    def __bool__(self) -> bool:
        return self.trees > 0 and self.size > 0

    def take(self, message_id: bytes | None) -> None:
        self.trees -= 1
        self.size -= len(message_id or b"")


def nothing_skipped(_: Receipt) -> bool:
    """No entry is left out."""
    return False


def page(
    core: Core,
    spout: str,
    *,
    limit: int = PAGE,
    cursor: str | None = None,
    skip: Callable[[Receipt], bool] = nothing_skipped,
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
    """How many entries of a spout each shard holds that are not confirmed."""
    return tuple((yield [command("XLEN", shard.outcomes(spout)) for shard in core.shards]))


def _read_shard(
    core: Core,
    spout: str,
    number: int,
    at: _Position,
    room: _Room,
    shown: list[EntryOutcomes],
    skip: Callable[[Receipt], bool],
) -> Operation[_Position]:
    """Tells entries of a shard from a position on, until there is no room or no entry; where it came to."""
    stream, from_id = core.shards[number].outcomes(spout), b"%d-%d" % at.entry
    skipped = 0
    while skipped < WINDOW:
        [found] = yield [command("XRANGE", stream, from_id, b"+", b"COUNT", _ENTRIES)]
        entries, unreadable = outcomes.parse_all(number, found)
        if unreadable:
            yield from outcomes.drop(core, spout, unreadable)
        for entry in entries:
            began = _id(entry.receipt) == at.entry and entry.receipt.digest == at.digest
            if not began:
                at = _Position(at.first, at.turn, _id(entry.receipt), entry.receipt.digest)
            if skip(entry.receipt):
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
        if len(found) < _ENTRIES:
            return at
        milliseconds, sequence = outcomes.id_parts(found[-1][0])
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
        known = yield from outcomes.message_ids(core, [one.slab for one in part])
        # Message ids go in the step that confirms their entry, which another reader may do meanwhile.
        if len(known) < len(part) and not (yield from _is_there(core, spout, entry.receipt)):
            return replace(at, slab=len(entry.slabs), index=0), []
        for one in part:
            for number, tree in _trees(one, known.get(one.slab), index):
                if not room:
                    return replace(at, slab=slab, index=number), _by_cause(entry, trees, last=False)
                trees.setdefault(one.cause, []).append(tree)
                room.take(tree.message_id)
            slab, index = slab + 1, 0
            if not room:
                break
    if not trees:
        room.take(None)  # where nothing is left to tell of an entry, too, a page ends
        trees = {Cause(): []}
    return replace(at, slab=slab, index=0), _by_cause(entry, trees, last=slab >= len(entry.slabs))


def _by_cause(entry: Entry, trees: Mapping[Cause, list[EndedTree]], *, last: bool) -> list[EntryOutcomes]:
    """Trees of an entry as they are told. The receipt comes with the last of them."""
    shown = entry.receipt, entry.status
    told = [EntryOutcomes(*shown, cause, entry.at, of, last=False) for cause, of in trees.items()]
    return [*told[:-1], replace(told[-1], last=last)]


def _is_there(core: Core, spout: str, receipt: Receipt) -> Operation[bool]:
    """Whether an entry is not confirmed."""
    [found] = yield [command("XRANGE", core.shards[receipt.shard].outcomes(spout), receipt.id, receipt.id)]
    return any(entry.receipt == receipt for entry in outcomes.parse_all(receipt.shard, found)[0])


def _trees(
    one: SlabOutcome, message_ids: Sequence[bytes] | None, begin: int
) -> Iterator[tuple[int, EndedTree]]:
    """The trees of a slab from the `begin`-th on, each with its number.

    Where the message ids cannot be read, the trees that are named are shown without; of a slab that is named
    as a whole nobody knows then how many it had, and the spout's own timer tells of them.
    """
    count = max(one.indexes or (-1,)) + 1 if message_ids is None else len(message_ids)
    indexes = one.of(count)
    for number in range(begin, len(indexes)):
        index = indexes[number]
        name = None if message_ids is None else message_ids[index]
        yield number, EndedTree(anchor_at(one.slab, index), name, one.latency)


# Receipts


def receipt_text(receipt: Receipt) -> str:
    """The name of an entry for who confirms it."""
    return f"{receipt.shard}-{receipt.id.decode()}-{receipt.digest.decode()}"


def receipt_of(core: Core, text: str) -> Receipt:
    """The entry that a receipt names; ValidationError where it can be none of this topology."""
    parts = text.split("-") if _RECEIPT.match(text) else []
    if not parts or int(parts[0]) >= len(core.shards) or max(int(parts[1]), int(parts[2])) > _MOST_ID:
        raise ValidationError(
            f"receipt: expected one that came with outcomes of this topology, got {shown(text)}"
        )
    return Receipt(int(parts[0]), b"%d-%d" % (int(parts[1]), int(parts[2])), parts[3].encode())


def confirm(core: Core, spout: str, receipts: Sequence[str], key: str | None = None) -> Operation[int]:
    """Confirms the entries of receipts; returns how many trees. Confirming again changes nothing.

    key: names the call for an hour, in which it is answered the same. Raises ValidationError before anything
    has changed, and KeyConflict for a key that was used for something else.
    """
    places = list(dict.fromkeys(receipt_of(core, text) for text in receipts))
    if key is None:
        return (yield from outcomes.confirm(core, spout, places))
    taken = yield from idempotency_keys.take(core, key, "\0".join(["confirm", spout, *receipts]))
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


def _id(receipt: Receipt) -> tuple[int, int]:
    return outcomes.id_parts(receipt.id)
