"""The pass over open segments in the model (acker/streams/upkeep/open_segments.py)."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TypeAlias

from tests.helpers.models.external.rules import Rules
from tests.helpers.models.external.shard import Key, Received, Shard, Staged
from tests.helpers.models.external.stream import Entry, Stream
from tests.helpers.models.external.trees import is_over

Place: TypeAlias = tuple[int, Key]


def keep(rules: Rules, shards: Sequence[Shard], streams: Mapping[str, Stream]) -> None:
    """Keeps the clocks of open segments' trees, ends what a process has left, and takes entries out."""
    for stream in streams.values():
        for entry in list(stream.entries.values()):
            before = {place: copy(shards[place[0]].staged.get(place[1])) for place in _places(entry)}
            if rules.keeps_clocks:
                _keep_clocks(shards, stream, entry)
            if rules.pass_ends:
                _end(shards, entry)
            lost = _drop_lost(shards, stream, entry)
            if rules.pass_closes and _is_closed(stream, entry, before, lost):
                del stream.entries[entry.segment.token]


def _places(entry: Entry) -> list[Place]:
    return [(shard, Key(entry.segment.token, slot)) for slot in entry.slots for shard in entry.segment.shards]


def _keep_clocks(shards: Sequence[Shard], stream: Stream, entry: Entry) -> None:
    for number, key in _places(entry):
        shard = shards[number]
        staged = shard.staged.get(key)
        if staged is not None and staged.state == 1 and stream.waits(entry, key.slot):
            shard.trees.send_back({shard.trees.slab_of(anchor) for anchor in staged.content.vector})


def _end(shards: Sequence[Shard], entry: Entry) -> None:
    for number, key in _places(entry):
        shard = shards[number]
        staged = shard.staged.get(key)
        if staged is None or staged.state != 1:
            continue
        letter = "f" if staged.full else "v" if staged.void else ""
        if not letter and staged.fails:
            letter = shard.receive("none", None, [Received(key, frozenset(), {})])
        if letter == "f":
            shard.ack(key)
        elif letter == "v":
            shard.fail_staged(key)
            shard.leave_tombstone(key)


def _drop_lost(shards: Sequence[Shard], stream: Stream, entry: Entry) -> set[Place]:
    """Drops the vectors of lost segments whose trees nobody knows any more."""
    lost = set()
    for number, key in _places(entry):
        shard = shards[number]
        staged = shard.staged.get(key)
        if staged is None or staged.state != 1 or stream.waits(entry, key.slot):
            continue
        if staged.full or staged.void or staged.fails:
            continue
        slabs = {shard.trees.slab_of(anchor) for anchor in staged.content.vector}
        if not any(slab in shard.trees.slabs for slab in slabs):
            lost.add((number, key))
            shard.leave_tombstone(key)
    return lost


def _is_closed(stream: Stream, entry: Entry, before: Mapping[Place, Staged | None], lost: set[Place]) -> bool:
    """True if no subscription has rows of a segment to ack, or may get some. before: the hashes at first."""
    old = stream.now >= entry.segment.sent + stream.times.ttl + stream.times.margin
    for place, staged in before.items():
        state = staged.state if staged is not None else None
        if place not in lost and ((state is None and not old) or state in (0, 1)):
            return False
    return True


def open_trees(shard: Shard) -> set[int]:
    """The trees of a shard that are not over."""
    return {anchor for slab in shard.trees.slabs.values() if not is_over(slab) for anchor in slab.values}
