"""Tracking: the first step of a commit with roots. It keeps their rows, and tracks their trees.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; roots are
rows of a spout that were staged together, and get a tree each; staged rows are stored, but nobody sees them
before a commit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import (
    SpoutPaused,
    SpoutPendingFull,
    TrackConflict,
    TrackRejected,
    UnknownSpout,
    UnreadableRecord,
    ValidationError,
)
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Call, Submission, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.settings import pauses, topologies
from acker.ledger.slabs import sections
from acker.ledger.slabs.slabs import NewSlab, PackedIds
from acker.store import keys
from acker.store.operation import Operation, Reply, Request
from acker.streams.sources import scripts
from acker.streams.sources.columns import message_ids
from acker.streams.sources.roots import Roots, further, kept_rows, vector_keys
from acker.streams.staging import traced

_TRACK = 64
_NO_LIMIT = (1 << 53) - 1

_WAY_OUT = (
    ". Raise it as far as the store has memory. If the source can be asked again, keep='ids' takes less "
    "for each row (docs/spark/spouts.md, Keep ids)"
)
"""The end of an error: what a spout that keeps its rows can do where it may not keep more."""


def check_room(core: Core, members: Iterable[Roots]) -> None:
    """Raises ValidationError if one commit could never track so many roots."""
    total: dict[str, int] = {}
    for roots in members:
        spout, limit = roots.how.spout, roots.how.max_spout_pending
        total[spout] = total.get(spout, 0) + roots.rows
        if limit is not None and total[spout] > limit:
            raise ValidationError(
                f"a batch of {total[spout]:,} rows or more can never be tracked: spout {spout!r} has "
                f"max_spout_pending = {limit:,}. Let the source give less to a batch, or raise the limit for "
                "a batch that Spark has logged already"
            )
    if sum(total.values()) > core.config.high_water_mark:
        raise ValidationError(
            f"a batch of {sum(total.values()):,} rows can never be tracked: topology "
            f"{core.config.name!r} has a high-water mark of {core.config.high_water_mark:,}. Let the source "
            "give less to a batch"
        )


def spouts_of(members: Iterable[Roots]) -> set[str]:
    """The spouts of the roots' trees."""
    spouts = {roots.how.spout for roots in members}
    return spouts | {sections.SPOUT for roots in members if roots.line is not None}


def check_kept(core: Core, roots: Roots, reply: Reply) -> None:
    """Raises SpoutPendingFull if the reply to `keep_request` says that there is no room.

    Raises SpoutPaused if the spout is paused, and UnknownSpout if it was removed meanwhile.
    """
    if topologies.is_late(reply):
        raise UnknownSpout(
            f"spout {roots.how.spout!r} of topology {core.config.name!r} was removed, or an hour has passed, "
            "while rows of it were committed: they are not kept. The same again goes on"
        )
    if isinstance(reply, bytes):
        raise SpoutPaused(pauses.refusal(core.config.name, roots.how.spout, reply))
    if int(reply) < 0:
        way_out = "" if roots.keeps_ids else _WAY_OUT
        raise SpoutPendingFull(
            f"spout {roots.how.spout!r} has too many rows without outcome for {roots.rows:,} more: "
            f"max_spout_pending is {roots.how.max_spout_pending or 0:,}{way_out}"
        )


def all_slabs(roots: Roots) -> range:
    """The numbers of all slabs."""
    return range(-(-roots.rows // roots.slab))


Seen: TypeAlias = Mapping[str, tuple[bytes, int]]
"""The removals of spouts as a commit has read them, and the time (ms) until which its calls count."""


def read_removals(core: Core, members: Sequence[Roots], one_server: bool) -> Operation[Seen]:
    """Reads the removals of spouts: a late copy of a call keeps nothing for a spout that was removed since.

    one_server: True if a chain has the calls, which ends late copies by itself: nothing is read.
    """
    spouts = sorted({roots.how.spout for roots in members})
    if one_server:
        return dict.fromkeys(spouts, (b"", 0))
    removals = [keys.Spout(core.config.name, spout).removals for spout in spouts]
    marks = yield from topologies.read_marks(removals)
    return dict(zip(spouts, marks, strict=True))


def keep_request(core: Core, roots: Roots, replays: bool, seen: Seen) -> Request:
    """The request that keeps the rows of staged roots. replays: no limit applies to them, and no pause."""
    spout_keys = keys.Spout(core.config.name, roots.how.spout)
    limit = -1 if replays else roots.how.max_spout_pending or 0
    roots_id, names = roots.id, roots.names()
    return scripts.keep_rows(
        core.config, spout_keys, roots_id, roots.dump(), roots.rows, limit, roots.slab, names,
        seen[roots.how.spout], staged=roots.keeps_ids,
    )  # fmt: skip


def raise_requests(core: Core, members: Sequence[Roots], seen: Seen) -> list[Request]:
    """Requests that raise the watermark's upper end, after all rows below it are kept.

    Roots come in any order.
    """
    requests = []
    for roots in members:
        if roots.offsets:
            spout_keys = keys.Spout(core.config.name, roots.how.spout)
            after = {name: high + 1 for name, (_, high) in roots.offsets.items()}
            requests.append(scripts.raise_highest(spout_keys, after, seen[roots.how.spout]))
    return requests


def track_again(core: Core, roots: Roots, numbers: Sequence[int]) -> Operation[None]:
    """Tracks some slabs of kept roots again, by their numbers, over any limit."""
    yield from core.register_spout(roots.how.spout, ask=True)
    # An unreadable slab is put away by a drain, and then looked after again.
    rows = yield from kept_rows(core, roots)
    for part in track_calls(core, roots, rows, replays=True, again=numbers) if rows is not None else ():
        yield from idempotence.submit(core, part.calls)
        yield from part.check(again=True)


@dataclass(frozen=True, slots=True)
class Tracking:
    """Calls that track slabs of roots, and the checks of their replies.

    anchors: the trees among them that are settled.
    """

    core: Core
    roots: Roots
    tracks: list[tuple[Submission[list[str]], list[NewSlab]]]
    anchors: Ids

    @property
    def calls(self) -> list[Call]:
        """All calls, in their order."""
        return [call for track, _ in self.tracks for call in track.calls]

    @property
    def trees(self) -> int:
        """The number of trees that a call tracks, about."""
        return sum(len(slab.anchors) for _, slabs in self.tracks for slab in slabs) // max(1, len(self.calls))

    def check(self, _: object = None, *, again: bool = False) -> Operation[None]:
        """Raises the errors in the replies, and notes traces.

        again: True for slabs that the ledger has lost.
        """
        for track, slabs in self.tracks:
            _check(self.core, self.roots, track.result(), [] if again else slabs)
        yield from traced.tracked(self.core, self.anchors, self.roots.how.spout)


def track_calls(
    core: Core, roots: Roots, rows: pa.Table, *, replays: bool, again: Sequence[int] | None = None
) -> Iterator[Tracking]:
    """The calls that track the trees of kept roots, part by part; the same again changes nothing.

    A driver that comes late, when trees are over, tracks none of them again (lua/ledger/calls/track.lua).
    `Tracking.check` raises TrackRejected: the trees with room are tracked then. It raises TrackConflict for a
    slab that belongs to other content, and UnreadableRecord for an unreadable one: nothing of the commit is
    applied or published then.

    Args:
        core: The ledger.
        roots: The roots.
        rows: Their rows.
        replays: True if they replace unconfirmed trees, or a dead letter, whose commit has looked for room
            before it was stored. So no limit applies to them.
        again: Numbers of slabs that were held before and that the ledger has lost.
    """
    last, mode = roots.sections, "once" if again is None else "again"
    numbers = all_slabs(roots) if again is None else again
    named = _packed(message_ids(rows, roots.how.message_id), roots.slab)
    limit = _NO_LIMIT if replays else None
    # The settled trees come first: if there is no room, no section before keeps anything open.
    for part in ([last], [] if again is not None else range(1, last)):
        staged = _noted(core, roots)
        for first in range(0, len(numbers) if part else 0, _TRACK):
            of = {section: _slabs(roots, section, numbers[first : first + _TRACK], named) for section in part}
            tracks = [
                (core.track(slabs, _spout(roots, section), limit, mode, staged[section]), slabs)
                for section, slabs in of.items()
            ]
            settled = [slab.anchors for slab in of.get(last, ())]
            yield Tracking(core, roots, tracks, np.concatenate([np.zeros(0, np.int64), *settled]))


def _noted(core: Core, roots: Roots) -> dict[int, dict[int, bytes]]:
    """The key that notes the tracked slabs of roots, by section and shard."""
    noted = {section: dict[int, bytes]() for section in range(1, roots.sections + 1)}
    for section, key, shard in [*((1, *one) for one in vector_keys(core, roots)), *further(core, roots)]:
        noted[section][shard] = key
    return noted


def _spout(roots: Roots, section: int) -> str:
    return roots.how.spout if section == roots.sections else sections.SPOUT


def _slabs(roots: Roots, section: int, numbers: Sequence[int], named: Sequence[PackedIds]) -> list[NewSlab]:
    """Slabs of a section to track. named: the message ids of slabs, which only the last section has."""
    anchors, values = roots.anchors(section), roots.values(section)
    slabs = []
    for number in numbers:
        part = slice(number * roots.slab, (number + 1) * roots.slab)
        own = named[number] if section == roots.sections else PackedIds.empty(len(anchors[part]))
        slabs.append(NewSlab(anchors[part], values[part], own))
    return slabs


def _check(core: Core, roots: Roots, letters: Sequence[str], slabs: Sequence[NewSlab]) -> None:
    """Raises the errors in the replies to tracks (lua/ledger/calls/track.lua)."""
    for letter in set(letters) & {"R", "W"}:  # P never: roots are held up before their rows are kept
        raise TrackRejected(core.config.rejection(letter))
    for letter, slab in zip(letters, slabs, strict=bool(slabs)):
        anchor = int(slab.anchors[0])
        if letter == "C":
            raise TrackConflict(
                f"the slab of anchor {anchor} is tracked with other content, so rows of spout "
                f"{roots.how.spout!r} are not tracked: try the same again when its trees have expired"
            )
        if letter == "U":
            raise UnreadableRecord(unreadable([anchor]), [anchor])


def _packed(column: pa.ChunkedArray, slab: int) -> list[PackedIds]:
    """The message ids of each slab, straight from the column's buffers."""
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0)
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(places).astype("<u2")
    text = memoryview(data if data is not None else b"")
    return [
        PackedIds(
            lengths[at : at + slab].tobytes() + text[places[at] : places[min(at + slab, len(values))]],
            min(slab, len(values) - at),
        )
        for at in range(0, len(values), slab)
    ]
