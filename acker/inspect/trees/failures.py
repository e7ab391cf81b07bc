"""The latest trees that failed or expired, kept after their spouts have confirmed them.

lua/ledger/includes/recent.lua writes them; each shard keeps at least the topology's `outcomes_kept` of them.
They are for people to look at: a spout gets its own by `acker.ledger.outcomes.outcomes`. Entries that cannot
be read are passed over.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

import heapq
import itertools
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from acker.errors import ValidationError, shown
from acker.inspect import scripts
from acker.inspect.trees.failure import Ended, Entry, Failure, parse
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Cursor, Named
from acker.ledger.slabs import masked
from acker.ledger.slabs.causes import Cause
from acker.ledger.slabs.sections import SPOUT as SECTIONS
from acker.ledger.trees import cursors
from acker.ledger.trees.trees import Tree
from acker.store.operation import Operation, command
from acker.store.replies import whole

PAGE = 1_000
"""Most trees in a page."""
_ENTRIES = 16
_MOST_ENTRIES = 64
_EXAMINED = 500
_EXAMINED_FOR_ID = 4_000
_READ_BYTES = 1 << 18
_BYTES_FOR_ID = 4 << 20
_COUNTED = 256
_FIND_TREES = 128
_FIND_CALLS = 32
_PLACE = struct.Struct("<HQH")
_CURSOR_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class FailuresPage:
    """A page of outcomes, latest first.

    looked: how many trees it looked at for them.
    """

    trees: Annotated[tuple[Failure, ...], Named("outcomes")]
    cursor: Cursor
    looked: Annotated[int, HIDDEN] = 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """The number of failed or expired trees of a shard so far; together: the id of its newest entry."""

    ended: int = 0
    failed: int = 0
    expired: int = 0


def page(
    core: Core,
    *,
    status: Ended | None = None,
    spout: str | None = None,
    step: str | None = None,
    reason: str = "",
    cause: str | None = None,
    message_id: bytes | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Operation[FailuresPage]:
    """Returns a page of the latest trees that failed or expired, latest first.

    status, spout, step (that failed them), message_id: filters; trees of sections have no message id. reason:
    a filter for a part of their reason, in any case. cause: a filter for their whole cause
    (`acker.ledger.slabs.masked`). limit: most trees in the page, 1 to 1,000. cursor: the
    cursor of the previous page.

    A page reads at most 500 entries, or 4,000 for a message id, or some 4 MiB. An entry has trees that ended
    together. Raises ValidationError for another call's cursor.
    """
    if not 1 <= limit <= PAGE:
        raise ValidationError(f"limit: expected a whole number from 1 to {PAGE:,}, got {shown(limit)}")
    places = (yield from _newest(core)) if cursor is None else _decode(cursor, core)
    said = _Said(step, reason.casefold(), cause)
    count = max(1, min(_ENTRIES, limit // max(1, len(places))))
    waiting = yield from _entries(core, places, list(places), count)
    places = {shard: place for shard, place in places.items() if shard in waiting}
    latest = [(-entries[0].at, shard) for shard, entries in waiting.items()]
    heapq.heapify(latest)
    failures: list[Failure] = []
    examined = read = size = 0
    most, count = _EXAMINED if message_id is None else _EXAMINED_FOR_ID, _ENTRIES
    while latest and len(failures) < limit and examined < most and size < _BYTES_FOR_ID:
        examined += 1
        _, shard = heapq.heappop(latest)
        entry = waiting[shard].pop(0)
        number, offset = places[shard]
        size += len(entry.packed)
        if (
            status in (None, entry.status)
            and spout in (None, entry.spout)
            and any(map(said.by, entry.causes))
            and (message_id is None or entry.spout != SECTIONS)
        ):
            start = offset if number == entry.number else 0
            there = [tree for tree in entry.trees(message_id) if tree.offset >= start]
            trees = [tree for tree in there if said.by(tree.cause)]
            room = limit - len(failures)
            failures += trees[:room]
            if len(trees) > room:
                places[shard] = (entry.number, trees[room].offset)
                break
        places[shard] = (entry.number - 1, 0)
        read += entry.count()
        if not waiting[shard]:
            waiting |= {shard: []} | (yield from _entries(core, places, [shard], count))
            few = sum(len(one.packed) for one in waiting[shard]) < _READ_BYTES
            count = min(_MOST_ENTRIES, 2 * count) if few else _ENTRIES
        if waiting[shard]:
            heapq.heappush(latest, (-waiting[shard][0].at, shard))
        else:
            del places[shard]
    return FailuresPage(tuple(failures), _encode(places) if places else None, read)


@dataclass(frozen=True, slots=True)
class _Said:
    """A filter of causes: their step, a part of their reason, and their cause without what varies."""

    step: str | None
    part: str
    cause: str | None

    def by(self, cause: Cause) -> bool:
        """True if a cause matches."""
        return (
            self.step in (None, cause.step)
            and self.part in cause.reason.casefold()
            and (self.cause is None or self.cause == masked.cause(cause.reason))
        )


def find(core: Core, anchor: int) -> Operation[Failure | None]:
    """Returns the failure or expiry of a tree by its anchor; None if there is none, or it is not kept."""
    if not core.config.ackers or not anchor & 1:
        return None
    slab, index = ids.slab_of(anchor), ids.index_of(anchor)
    shard = core.shards[ids.shard_of(slab, core.config.ackers)]
    [counted] = yield [command("HGET", shard.counters, "recent")]
    # The id of an entry has the number of ended trees: so ids bound the entries that a call reads.
    newest = whole(counted, "a shard's count of what ended")
    tops = range(newest, max(0, newest - core.config.outcomes_kept - 1), -_FIND_TREES)
    calls = 1
    while tops:
        replies = yield [
            scripts.find_recent(shard, slab, index, top, max(0, top - _FIND_TREES + 1))
            for top in tops[:calls]
        ]
        for fields in filter(None, replies):
            entry = parse(shard.number, fields)
            found = next((tree for tree in entry.trees() if tree.anchor == anchor), None)
            if found is not None:
                return found
        tops, calls = tops[calls:], min(_FIND_CALLS, 4 * calls)
    return None


def how_ended(core: Core, tree: Tree) -> Operation[Failure | Literal["acked"] | None]:
    """Returns the end of a tree that the ledger holds; None while it is in flight, or if it is not kept."""
    if tree.state != "finished":
        return None
    found = yield from find(core, tree.anchor)
    if found is not None:
        return found
    since = yield from kept_since(core, tree.anchor)
    return "acked" if since is None or since < tree.tracked_at else None  # or it failed long ago


def kept_since(core: Core, anchor: int) -> Operation[float | None]:
    """Since when all failures and expirations of an anchor's shard are kept (Unix seconds); None: always."""
    shard = core.shards[ids.shard_of(ids.slab_of(anchor), core.config.ackers)]
    [oldest] = yield [command("XRANGE", shard.recent, "-", "+", "COUNT", _ENTRIES)]
    if not oldest:
        return None
    entries = [parse(shard.number, fields) for fields in oldest]
    if entries[0].number == len(entries[0].trees()):
        return None
    return next((entry.at for entry in entries if entry.packed), entries[-1].at) / 1000


def numbers(core: Core) -> Operation[dict[int, Numbers]]:
    """Returns the numbers of failed or expired trees of each shard so far."""
    replies = yield [command("HMGET", shard.counters, "recent", "failed", "expired") for shard in core.shards]
    return {
        shard.number: Numbers(*(whole(count, "a shard's counter") for count in counts))
        for shard, counts in zip(core.shards, replies, strict=True)
    }


def since(
    core: Core, seen: Mapping[int, Numbers], most: int
) -> Operation[tuple[list[Failure], dict[int, Numbers]]]:
    """The latest trees that ended after the numbers `seen` of their shards, oldest first, `most` at most.

    Returns them and the numbers now: their difference is how many there were.
    """
    now = yield from numbers(core)
    before = {shard: seen.get(shard, Numbers()).ended for shard in now}
    changed = [shard for shard, number in now.items() if number.ended > before[shard]]
    failures: list[Failure] = []
    replies = yield [
        command(
            "XREVRANGE", core.shards[shard].recent, f"{now[shard].ended}-0", f"({before[shard]}-0",
            "COUNT", most,
        )
        for shard in changed
    ]  # fmt: skip
    for shard, entries in zip(changed, replies, strict=True):
        parsed = [parse(shard, fields) for fields in entries]
        trees = (tree for entry in parsed for tree in entry.trees())
        failures += itertools.islice(trees, most)
    failures.sort(key=lambda tree: (tree.at, tree.shard, tree.number, tree.offset))
    return failures[max(0, len(failures) - most) :], now


class Counted(NamedTuple):
    """Trees that failed or expired after `since` (Unix seconds).

    failed: by (spout, step that has failed them, "" where not known); expired: by spout.
    """

    since: float
    failed: Mapping[tuple[str, str], int]
    expired: Mapping[str, int]


def counted(core: Core, since: float) -> Operation[Counted]:
    """Counts failed and expired trees since a moment (Unix seconds), or a later one if there are too many.

    It reads some 256 entries, so it may be called repeatedly.
    """
    most = max(4, _COUNTED // max(1, len(core.shards)))
    places = yield from _newest(core)
    read = (yield from _entries(core, places, list(places), most)).values()
    since = max([since, *(entries[-1].at / 1000 for entries in read if len(entries) == most)])
    failed, expired = Counter[tuple[str, str]](), Counter[str]()
    for entry in itertools.chain.from_iterable(read):
        if entry.spout is not None and entry.at / 1000 >= since:
            if entry.status == "failed":
                for step, count in entry.steps().items():
                    failed[entry.spout, step] += count
            else:
                expired[entry.spout] += entry.count()
    return Counted(since, failed, expired)


# How they are read


def _newest(core: Core) -> Operation[dict[int, tuple[int, int]]]:
    """Returns the beginning of each shard's list, if it has any: (number of an entry, position in it)."""
    found = yield from numbers(core)
    return {shard: (number.ended, 0) for shard, number in found.items() if number.ended}


def _entries(
    core: Core, places: Mapping[int, tuple[int, int]], shards: Sequence[int], count: int
) -> Operation[dict[int, list[Entry]]]:
    """The next entries of shards that have any."""
    replies = yield [
        command("XREVRANGE", core.shards[shard].recent, f"{places[shard][0]}-0", "-", "COUNT", count)
        for shard in shards
    ]
    return {
        shard: [parse(shard, fields) for fields in entries]
        for shard, entries in zip(shards, replies, strict=True)
        if entries
    }


def _encode(places: Mapping[int, tuple[int, int]]) -> str:
    packed = b"".join(_PLACE.pack(shard, *place) for shard, place in sorted(places.items()))
    return cursors.as_text(packed)


def _decode(cursor: str, core: Core) -> dict[int, tuple[int, int]]:
    packed = cursors.from_text(cursor, _CURSOR_BYTES)
    if len(packed) % _PLACE.size:
        raise cursors.malformed()
    places = {shard: (number, offset) for shard, number, offset in _PLACE.iter_unpack(packed)}
    if not places or len(places) * _PLACE.size != len(packed):
        raise cursors.malformed()
    if max(places) >= core.config.ackers or max(number for number, _ in places.values()) >= 2**63:
        raise ValidationError("cursor: expected one that a page of this topology gave")
    return places
