"""The read side: one tree, pages of trees, and trees by message id.

acker/inspect/topology/totals.py has the sums.

Nothing here changes the ledger, and each call reads a bounded piece of it, however many trees are in flight.
All times are of the server's clock.

Terms: a slab is the trees that one call tracked together.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from acker.errors import UnknownSpout, ValidationError, shown
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Cursor
from acker.ledger.outcomes import outcomes
from acker.ledger.settings.config import MESSAGE_ID_BYTES, check_message_id, check_name, spout_of
from acker.ledger.slabs import registries
from acker.ledger.slabs import slabs as headers
from acker.ledger.slabs.sections import SPOUT as SECTIONS
from acker.ledger.tick import tick
from acker.ledger.trees import cursors, scripts
from acker.ledger.trees.buckets import BUCKETS, Bucket, Clock
from acker.ledger.trees.cursors import Position
from acker.ledger.trees.trees import State, Tree, trees_at, trees_of
from acker.store.operation import Operation, command
from acker.store.replies import pairs

PAGE_TREES = 1_000
"""Most trees in a page."""

_PAGE_SLABS = 4_096
_FIND_SLABS = 2_048
_PAGE_CALLS = 256
_FIND_BYTES = 2 << 20
_BATCH_BYTES = 2 << 20
_BATCH_TREES = 1 << 16
_MOST_NAMED = 128
_MOST_READ = 512
_ASIDE = 16
_NEVER = 2**62
_IN_FLIGHT: tuple[State, ...] = ("pending", "waiting")


@dataclass(frozen=True, slots=True)
class TreesPage:
    """A page of trees. It may be empty and not the last: go on until there is no cursor.

    looked: through how many trees a message id was looked for.
    """

    trees: tuple[Tree, ...]
    cursor: Cursor
    looked: Annotated[int, HIDDEN] = 0


@dataclass(frozen=True, slots=True)
class _Filter:
    """The filter of a page: its slabs."""

    bucket: int | None
    spout: str | None
    states: tuple[State, ...]
    older_than: float

    def takes(self, clock: Clock, header: bytes) -> bool:
        kind, spout, _, entered, tracked_at = headers.FIXED.unpack_from(header)
        state: State = "pending" if kind == headers.TRACKED else "waiting"
        names = registries.names(clock.spouts)
        return (
            state in self.states
            and (
                self.spout is None
                or (kind == headers.TRACKED and spout_of(names.get(spout, "")) == self.spout)
            )
            and (self.bucket is None or clock.bucket(entered) == self.bucket)
            and (clock.now - tracked_at) / 1000 >= self.older_than
        )


def trees(
    core: Core,
    *,
    bucket: Bucket | None = None,
    spout: str | None = None,
    shard: int | None = None,
    state: State | None = None,
    older_than: float = 0.0,
    limit: int = 100,
    cursor: str | None = None,
) -> Operation[TreesPage]:
    """Returns a page of the trees in flight, pending or waiting, the next ones to expire first.

    They are ordered by bucket, as the buckets were when the first page was read, and by shard in a bucket.
    bucket, spout, shard, state: filters. older_than: least age since the track, in seconds. limit: most trees
    in the page, 1 to 1,000. cursor: the cursor of the previous page.

    A page reads at most 4,096 slabs, so it may have fewer trees, or none, and still a cursor. A tree that
    stays in flight comes once, whatever happens to others; but one that is reset after 800 more slabs were
    listed comes again. Raises ValidationError, also for a spout that the topology does not have.
    """
    wanted = _choice(bucket, BUCKETS, "bucket")
    place = _choice(state, _IN_FLIGHT, "state")
    states: tuple[State, ...] = _IN_FLIGHT if place is None else (_IN_FLIGHT[place],)
    if shard is not None:
        _whole(shard, "shard", 0, core.config.ackers - 1)
    if not 0 <= older_than < math.inf:
        raise ValidationError(f"older_than: expected seconds from 0 on, got {shown(older_than)}")
    query = (core.config.name, "trees", bucket, spout, shard, state, float(older_than))
    position, limit = _start(core, query, limit, cursor, shard)
    if spout is not None:
        yield from _check_spout(core, spout)
    if cursor is None and bucket is None and shard is None and core.config.ackers > 1:
        position.clocks = yield from _clocks(core)
    search = _Filter(wanted, spout, states, older_than)
    end = core.config.ackers if shard is None else shard + 1

    page: list[Tree] = []
    examined = calls = asked = 0
    count = 2
    while len(page) < limit and calls < _PAGE_CALLS:
        calls += 1
        if position.slabs:
            page += yield from _read(core, position, search, limit - len(page))
        elif position.shard < end and examined < _PAGE_SLABS:
            # About as many as fit in the page: the names of slabs that do not fit go into the cursor.
            count = (limit - len(page)) * asked // len(page) if page else count * 2
            count = max(2, min(_MOST_NAMED, count))
            examined += yield from _scan(core, position, search, count)
            asked += count
        else:
            break
    return _page(page, position, end, query)


def find(
    core: Core, message_id: bytes | str, *, limit: int = 100, cursor: str | None = None
) -> Operation[TreesPage]:
    """Returns a page of the trees with a message id, also finished trees while they are held.

    Trees of sections have no message id (`acker.ledger.slabs.sections.SPOUT`) and are left out. An index of
    message ids would cost more than the trees themselves: a page searches 2,048 slabs or 2 MiB, so it may be
    empty and still have a cursor. Continue until there is none. limit: most trees in the page, 1 to 1,000.
    cursor: the cursor of the previous page. Raises ValidationError.
    """
    wanted = check_message_id(message_id)
    query = (core.config.name, "find", wanted)
    position, limit = _start(core, query, limit, cursor, None)
    end = core.config.ackers

    page: list[Tree] = []
    examined = calls = size = examined_bytes = 0
    while len(page) < limit and size < _FIND_BYTES and calls < _PAGE_CALLS:
        calls += 1
        if position.slabs:
            anchors, read, passed = yield from _search(core, position, wanted, limit - len(page))
            page += [one for one in (yield from trees_at(core, anchors)) if one.spout != SECTIONS]
            size, examined_bytes = size + read, examined_bytes + passed
        elif position.shard < end and examined < _FIND_SLABS:
            examined += yield from _scan_directory(core, position)
        else:
            break
    return replace(_page(page, position, end, query), looked=examined_bytes)


# How they are read


def _read(core: Core, position: Position, search: _Filter, most: int) -> Operation[list[Tree]]:
    """Reads named slabs, and moves the position past them."""
    shard = ids.shard_of(position.slabs[0], core.config.ackers)
    slabs = position.slabs[:_MOST_READ]
    [(clock, slabs_read, done, first)] = yield [
        scripts.read_trees(core.shards[shard], slabs, most, position.first)
    ]
    position.slabs, position.first = position.slabs[done:], first
    clock = Clock.from_reply(shard, clock)
    taken = [entry for entry in slabs_read if search.takes(clock, entry[1])]
    position.note(slabs[entry[0] - 1] for entry in taken)
    return trees_of(core, shard, clock, slabs, taken)


def _scan(core: Core, position: Position, search: _Filter, count: int) -> Operation[int]:
    """Names slabs of the position's shard; returns how many it looked at."""
    shard = core.shards[position.shard]
    latest = _NEVER
    if position.clocks:
        oldest, latest = _generations(position)
        position.generation = max(position.generation, oldest, 0)
        if position.generation > latest:
            _next_shard(position)
            return 0
    elif position.generation < 0:
        [(rotations, drained)] = yield from tick.clocks(core, [shard], -1)
        if rotations < 0:
            _next_shard(position)
            return 0
        # A rotation sets a generation aside that entered two rotations before.
        oldest = drained - 2
        if search.bucket is not None and search.bucket < 3:
            oldest = rotations - search.bucket
        position.generation = max(0, oldest)
    aside = range(position.generation + 2, position.generation + 2 + _ASIDE)
    youngest, oldest = (0, _NEVER) if search.bucket is None else (search.bucket, search.bucket)
    ages = youngest, _NEVER if oldest == 3 else oldest
    [(clock, generation, scan, named)] = yield [
        scripts.scan_slabs(shard, position.generation, position.scan, count, ages, aside)
    ]
    clock = Clock.from_reply(shard.number, clock)
    position.generation, position.scan = generation, int(scan)
    if generation - (position.scan == 0) > latest:  # of another turn
        _next_shard(position)
        return 0
    position.slabs = [
        slab
        for slab, header in pairs(named).items()
        if len(slab) == ids.SLAB_BYTES and search.takes(clock, header) and not position.has_listed(slab)
    ]
    if generation < 0 or generation > latest:
        _next_shard(position)
    return len(named) // 2


def _clocks(core: Core) -> Operation[list[tuple[int, int]]]:
    """The rotations of each shard, and how many of them are not drained, for `Position.clocks`."""
    found = yield from tick.clocks(core, core.shards, -1)
    return [(made, min(255, max(0, made - max(0, drained)))) for made, drained in found]


def _generations(position: Position) -> tuple[int, int]:
    """Yields the generations of the position: first the set-aside ones when the read began, then by bucket.

    They are counted from the rotations of that time: a slab that a tick moves meanwhile keeps its turn.
    """
    rotations, backlog = position.clocks[position.shard]
    if position.turn == 0:
        # A rotation sets a generation aside that entered two rotations before.
        return rotations - backlog - 2, rotations - 3
    age = cursors.TURNS - 1 - position.turn
    return rotations - age, rotations - age if age else _NEVER


def _scan_directory(core: Core, position: Position) -> Operation[int]:
    """Names slabs of the position's shard that have message ids; returns how many it looked at."""
    shard = core.shards[position.shard]
    [(scan, named)] = yield [command("HSCAN", shard.slabs, position.scan, "COUNT", _MOST_READ)]
    position.scan = int(scan)
    position.slabs = [
        slab
        for slab, header in pairs(named).items()
        if len(slab) == ids.SLAB_BYTES and headers.is_tracked(header)
    ]
    if position.scan == 0:
        _next_shard(position)
    return len(named) // 2


def _next_shard(position: Position) -> None:
    position.shard, position.generation, position.scan = position.shard + 1, -1, 0
    if position.clocks and position.shard == len(position.clocks) and position.turn < cursors.TURNS - 1:
        position.shard, position.turn = 0, position.turn + 1


def _search(
    core: Core, position: Position, wanted: bytes, most: int
) -> Operation[tuple[list[int], int, int]]:
    """Searches a message id in named slabs; returns anchors, the number of bytes read, and trees.

    The bytes are compared here: the server only copies them, so hostile ids do not block it.
    """
    shard = core.shards[ids.shard_of(position.slabs[0], core.config.ackers)]
    slabs = position.slabs[:_MOST_READ]
    [stored] = yield [command("HMGET", shard.slabs, *slabs)]
    counts = [0 if header is None else header.count for header in map(headers.read, stored)]
    slabs = slabs[: _until(counts, _BATCH_TREES)]
    if sum(counts[: len(slabs)]) * (MESSAGE_ID_BYTES + 2) > _BATCH_BYTES:
        sizes = yield [command("HSTRLEN", shard.message_ids, slab) for slab in slabs]
        slabs = slabs[: _until(sizes, _BATCH_BYTES)]
    [packed] = yield [command("HMGET", shard.message_ids, *slabs)]
    anchors: list[int] = []
    size = 0
    for done, (slab, count, blob) in enumerate(zip(slabs, counts, packed, strict=False)):
        if blob is not None and count:
            in_pieces = yield from outcomes.pieces(core, slab, blob, count)
            size += sum(len(own or b"") for own, _ in in_pieces)
            for index in _indexes_in(in_pieces, wanted):
                if index >= position.first:
                    if len(anchors) == most:
                        position.slabs, position.first = position.slabs[done:], index
                        return anchors, size, sum(counts[:done])
                    anchors.append(ids.anchor_at(slab, index))
        position.first = 0
        if size >= _BATCH_BYTES:
            position.slabs = position.slabs[done + 1 :]
            return anchors, size, sum(counts[: done + 1])
    position.slabs = position.slabs[len(slabs) :]
    return anchors, size, sum(counts[: len(slabs)])


def _until(weights: Sequence[int], most: int) -> int:
    """Returns the number of them that weigh at most so much together, or 1."""
    return max(1, int(np.searchsorted(np.cumsum(weights), most, side="right")))


def _indexes_in(pieces: Sequence[tuple[bytes | None, int]], wanted: bytes) -> list[int]:
    """Returns the positions of a message id in a slab, in its pieces."""
    firsts = itertools.accumulate((count for _, count in pieces), initial=0)
    return [
        first + index
        for first, (packed, count) in zip(firsts, pieces, strict=False)
        for index in _indexes(packed or b"", count, wanted)
    ]


def _indexes(packed: bytes, count: int, wanted: bytes) -> list[int]:
    """Returns the positions of a message id in a slab (packed as in acker/ledger/calls/encoding.py)."""
    if len(packed) < 2 * count or packed.find(wanted, 2 * count) < 0:  # too short: it cannot be read
        return []
    lengths = np.frombuffer(packed, dtype="<u2", count=count).astype(np.int64)
    starts = np.cumsum(lengths) - lengths + 2 * count
    candidates = np.flatnonzero(lengths == len(wanted)).tolist()
    return [index for index in candidates if packed.startswith(wanted, int(starts[index]))]


# How they are asked


def _start(
    core: Core, query: tuple[object, ...], limit: int, cursor: str | None, shard: int | None
) -> tuple[Position, int]:
    _whole(limit, "limit", 1, PAGE_TREES)
    if cursor is None:
        return Position(shard or 0), limit
    return cursors.decode(cursor, query, core.config.ackers), limit


def _page(members: list[Tree], position: Position, end: int, query: tuple[object, ...]) -> TreesPage:
    # A tree that was reset while the page was read may have come again: it is told as it was then.
    trees = tuple({member.anchor: member for member in members}.values())
    if not position.slabs and position.shard >= end:
        return TreesPage(trees, None)
    return TreesPage(trees, cursors.encode(position, query))


def _whole(value: object, label: str, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValidationError(
            f"{label}: expected a whole number from {low:,} to {high:,}, got {shown(value)}"
        )


def _choice(value: object, choices: Sequence[str], label: str) -> int | None:
    if value is None:
        return None
    if value not in choices:
        raise ValidationError(f"{label}: expected one of {', '.join(choices)}, got {shown(value)}")
    return choices.index(str(value))


def _check_spout(core: Core, name: str) -> Operation[None]:
    check_name(name, "spout")
    if name not in core.spouts:
        yield from core.refresh_spouts()
    if name not in core.spouts:
        raise UnknownSpout(f"spout: topology {core.config.name!r} has no spout {name!r}")
