"""What a commit does with roots before anything else: keeps their rows, and tracks their trees."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import SpoutPendingFull, TrackConflict, TrackRejected, UnreadableRecord, ValidationError
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Call, Writer, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.slabs import sections
from acker.ledger.slabs.slabs import NewSlab, PackedIds
from acker.store import keys
from acker.store.operation import Operation, Request, abreast
from acker.streams.sources import columns, scripts
from acker.streams.sources.columns import message_ids
from acker.streams.sources.roots import Roots, further, kept_rows, vector_keys
from acker.streams.staging import traced, vectors
from acker.streams.staging.acks import fail_once, unlink
from acker.streams.staging.vectors import Made

_TRACK = 64
_NO_LIMIT = (1 << 53) - 1


def check_room(core: Core, members: Iterable[Roots]) -> None:
    """Raises ValidationError where so many roots could never be tracked by one commit."""
    total: dict[str, int] = {}
    for roots in members:
        spout, limit = roots.how.spout, roots.how.max_spout_pending
        total[spout] = total.get(spout, 0) + roots.rows
        if limit is not None and total[spout] > limit:
            raise ValidationError(
                f"a batch of {total[spout]:,} rows or more can never be tracked: spout {spout!r} has "
                f"max_spout_pending = {limit:,}; let the source give less to a batch, and raise that for a "
                "batch that Spark has logged already"
            )
    if sum(total.values()) > core.config.high_water_mark:
        raise ValidationError(
            f"a batch of {sum(total.values()):,} rows can never be tracked: topology "
            f"{core.config.name!r} has a high-water mark of {core.config.high_water_mark:,}; let the source "
            "give less to a batch"
        )


def track(core: Core, members: Sequence[Roots], replays: bool = False) -> Operation[None]:
    """Keeps the rows of staged roots and tracks them; the same again changes nothing.

    A driver that comes late, when trees are over, tracks none of them again (lua/ledger/calls/track.lua).
    replays: they take the place of trees that are not confirmed yet, or of a dead letter, which has looked
    for room before its commit was stored; so no limit applies to them.
    Raises SpoutPendingFull and TrackRejected; what there was room for is kept and tracked then. TrackConflict
    and UnreadableRecord for a slab that is somebody else's, or whose record cannot be read: nothing of the
    commit is applied or published then.
    """
    limit = _NO_LIMIT if replays else None
    spouts = {roots.how.spout for roots in members}
    spouts |= {sections.SPOUT for roots in members if roots.line is not None}
    if len(members) == 1:
        [roots] = members
        looks: list[Operation[Any]] = [
            _keep(core, roots, replays),
            core.register_spouts(spouts),
            kept_rows(core, roots),
        ]
        *_, rows = yield from abreast(looks)
        if not replays:
            yield from _raise_highest(core, members)
        yield from _track(core, roots, limit, _every(roots), rows)
        return
    for roots in members:
        yield from _keep(core, roots, replays)
    if not replays:
        yield from _raise_highest(core, members)
    if members:
        yield from core.register_spouts(spouts)
    for roots in members:
        yield from _track(core, roots, limit, _every(roots), (yield from kept_rows(core, roots)))


def _every(roots: Roots) -> range:
    """The numbers of all slabs."""
    return range(-(-roots.rows // roots.slab))


def _keep(core: Core, roots: Roots, replays: bool) -> Operation[None]:
    [kept] = yield [_keeping(core, roots, replays)]
    if int(kept) < 0:
        raise SpoutPendingFull(
            f"spout {roots.how.spout!r} has too many rows without outcome for {roots.rows:,} more: "
            f"max_spout_pending is {roots.how.max_spout_pending or 0:,}"
        )


def _keeping(core: Core, roots: Roots, replays: bool) -> Request:
    own = keys.Spout(core.config.name, roots.how.spout)
    limit = 0 if replays else roots.how.max_spout_pending or 0
    token, names = roots.token, roots.names()
    return scripts.keep(core.config, own, token, roots.dump(), roots.rows, limit, roots.slab, names)


def _raise_highest(core: Core, members: Sequence[Roots]) -> Operation[None]:
    """Raises the watermark's upper end, when all is kept that holds it back: roots come in any order."""
    yield _raising(core, members)


def _raising(core: Core, members: Sequence[Roots]) -> list[Request]:
    requests = []
    for roots in members:
        if roots.offsets:
            own = keys.Spout(core.config.name, roots.how.spout)
            after = {name: high + 1 for name, (_, high) in roots.offsets.items()}
            requests.append(scripts.raise_highest(own, after))
    return requests


def track_again(core: Core, roots: Roots, numbers: Sequence[int]) -> Operation[None]:
    """Tracks some slabs of kept roots, by their numbers, over any limit: they were held before."""
    yield from core.register_spout(roots.how.spout, ask=True)
    # One that cannot be read is put away by a drain, and looked after again.
    rows = yield from kept_rows(core, roots)
    yield from _track(core, roots, _NO_LIMIT, numbers, rows, again=True)


def _track(
    core: Core,
    roots: Roots,
    limit: int | None,
    numbers: Sequence[int],
    rows: pa.Table | None,
    again: bool = False,
) -> Operation[None]:
    """Tracks slabs of roots. rows: that are kept."""
    if rows is None:
        return  # all of it was tracked before, and settled; or nobody can track what cannot be read
    last, how = roots.sections, "again" if again else "once"
    named = _packed(message_ids(rows, roots.how.message_id), roots.slab)
    # The trees that are settled come first: of what has no room nothing is kept open by a section before.
    for part in ([last], [] if again else range(1, last)):
        staged = _noted(core, roots)
        for first in range(0, len(numbers) if part else 0, _TRACK):
            of = {one: _slabs(roots, one, numbers[first : first + _TRACK], named) for one in part}
            tracks = [
                core.track(slabs, _spout(roots, one), limit, how, staged[one]) for one, slabs in of.items()
            ]
            yield from idempotence.submit(core, [call for one in tracks for call in one.calls])
            for track, slabs in zip(tracks, of.values(), strict=True):
                _check(core, roots, track.result(), [] if again else slabs)
            if last in part:
                every = np.concatenate([slab.anchors for slab in of[last]])
                yield from traced.tracked(core, every, roots.how.spout)


def _noted(core: Core, roots: Roots) -> dict[int, dict[int, bytes]]:
    """By section and shard, the key where it is noted which slabs of roots were tracked."""
    found = {section: dict[int, bytes]() for section in range(1, roots.sections + 1)}
    for section, key, shard in [*((1, *one) for one in vector_keys(core, roots)), *further(core, roots)]:
        found[section][shard] = key
    return found


def known_calls(
    core: Core, roots: Roots, rows: pa.Table, writer: Writer
) -> tuple[list[Request], list[Call]] | None:
    """As `track` does, the requests that keep roots, and the calls that track them; None where they are many.

    The calls are to be made in their order, for they have the stamps of one writer.
    """
    every = _every(roots)
    if len(every) > _TRACK:
        return None
    kept = [_keeping(core, roots, replays=False), *_raising(core, [roots])]
    named, staged = _packed(message_ids(rows, roots.how.message_id), roots.slab), _noted(core, roots)
    calls: list[Call] = []
    for section in (roots.sections, *range(1, roots.sections)):
        slabs = _slabs(roots, section, every, named)
        calls += core.track(slabs, _spout(roots, section), None, "once", staged[section]).calls
    if any(call.turn for call in calls):  # message ids go ahead in pieces
        return None
    for call in calls:
        call.stamp = writer.id, writer.next(call.shard)
    return kept, calls


def _spout(roots: Roots, section: int) -> str:
    return roots.how.spout if section == roots.sections else sections.SPOUT


def _slabs(roots: Roots, section: int, numbers: Sequence[int], named: Sequence[PackedIds]) -> list[NewSlab]:
    """Slabs of a section as they are tracked. named: their message ids, which the last one has."""
    anchors, values = roots.anchors(section), roots.values(section)
    slabs = []
    for number in numbers:
        part = slice(number * roots.slab, (number + 1) * roots.slab)
        own = named[number] if section == roots.sections else PackedIds.empty(len(anchors[part]))
        slabs.append(NewSlab(anchors[part], values[part], own))
    return slabs


def _check(core: Core, roots: Roots, letters: Sequence[str], slabs: Sequence[NewSlab]) -> None:
    """Raises what the answers to tracks say (lua/ledger/calls/track.lua)."""
    for letter in set(letters) & {"R", "W"}:
        raise TrackRejected(core.config.rejection(letter))
    for letter, slab in zip(letters, slabs, strict=bool(slabs)):
        anchor = int(slab.anchors[0])
        if letter == "C":
            raise TrackConflict(
                f"the slab of anchor {anchor} is tracked with other content, so rows of spout "
                f"{roots.how.spout!r} cannot be: try the same again when its trees have expired"
            )
        if letter == "U":
            raise UnreadableRecord(unreadable([anchor]), [anchor])


def _packed(column: pa.ChunkedArray, slab: int) -> list[PackedIds]:
    """The message ids of each slab, straight from the column's buffers."""
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = found.chunk(0)
    found = found.cast(pa.large_binary())
    _, offsets, data = found.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[found.offset : found.offset + len(found) + 1]
    lengths = np.diff(places).astype("<u2")
    text = memoryview(data if data is not None else b"")
    return [
        PackedIds(
            lengths[at : at + slab].tobytes() + text[places[at] : places[min(at + slab, len(found))]],
            min(slab, len(found) - at),
        )
        for at in range(0, len(found), slab)
    ]


def end_roots(core: Core, one: Roots, failed: str | None = None, made: Made | None = None) -> Operation[None]:
    """Acks the tuples of roots, or fails their trees; their vectors are of no use after that."""
    places = vector_keys(core, one)
    if made is not None:  # who went before may have noted here what is not there to be failed any more
        for _, shard in places:
            made.needed[shard] += 0
    if one.refused:
        rows = yield from kept_rows(core, one)
        if rows is not None:  # rows that are gone were failed, and settled
            reasons = columns.refusals(rows, one.how.message_id)
            yield from fail_once(core, places, one.anchors(), reasons, made, needed=False)
    elif failed is None:
        yield from vectors.apply(core, places, "2", made)
    else:
        causes = [failed] * one.rows
        yield from fail_once(core, places, one.anchors(), causes, made, needed=False)
    if one.refused or failed is not None:
        yield from unlink(core, [key for key, _ in places])
    yield from unlink(core, [key for _, key, _ in further(core, one)])
