"""Trees as a shard tells of them: what each is now, made of the replies of scripts that change nothing."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.slabs import registries
from acker.ledger.slabs import slabs as headers
from acker.ledger.slabs.causes import Cause
from acker.ledger.trees import scripts
from acker.ledger.trees.buckets import BUCKETS, Bucket, Clock
from acker.store.operation import Operation, Reply

State: TypeAlias = Literal["pending", "waiting", "finished"]


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree, as it is now.

    state: `pending`; `waiting`, where messages came before its track; `finished`, kept until its outcome and
        those of its slab are confirmed.
    value: the ack value, 0 when finished. failure: the reason with which a waiting tree will fail.
    spout, message_id: whose it is; None while it waits.
    tracked_at: Unix seconds when it was tracked (while it waits: when its slab's first message came).
    age: seconds since then.
    time_left_earliest, time_left_latest: seconds until it expires, unless it is reset: with ticks on time,
        and with each tick late by `TICK_LAG`; one that is later already has until the `tick_limit` of the
        configuration. The latter is None where it is overdue by more than that, so that no ticker seems to
        run; both are None when finished.
    bucket: None when finished.
    """

    anchor: int
    state: State
    value: int
    failure: str | None
    spout: str | None
    message_id: bytes | None
    tracked_at: float
    age: float
    time_left_earliest: float | None
    time_left_latest: float | None
    shard: int
    bucket: Bucket | None

    @property
    def slab(self) -> int:
        """The anchor of its slab's first tree."""
        return ids.anchor_at(ids.slab_of(self.anchor), 0)

    @property
    def index(self) -> int:
        """Its index in its slab, 0 to 4,095."""
        return ids.index_of(self.anchor)


def trees_at(core: Core, anchors: Sequence[int]) -> Operation[list[Tree]]:
    """The known trees of some anchors."""
    found: list[Tree] = []
    if not core.config.ackers:
        return found
    for at in range(0, len(anchors), 64):
        part = [(anchor, ids.slab_of(anchor)) for anchor in anchors[at : at + 64] if anchor & 1]
        shards = [ids.shard_of(slab, core.config.ackers) for _, slab in part]
        replies = yield [
            scripts.read_tree(core.shards[shard], slab, ids.index_of(anchor))
            for shard, (anchor, slab) in zip(shards, part, strict=True)
        ]
        for shard, (_, slab), (clock, described) in zip(shards, part, replies, strict=True):
            found += trees_of(core, shard, Clock(*clock), [slab], described)
    return found


def trees_of(
    core: Core, shard: int, clock: Clock, slabs: Sequence[bytes], described: Sequence[Reply]
) -> list[Tree]:
    """Trees from what a script says of slabs (lua/ledger/trees/includes/read.lua)."""
    facts = [headers.FIXED.unpack_from(header) for _, header, *_ in described]
    names = registries.names(clock.spouts)
    found = []
    for (kind, spout, _, entered, tracked_at), entry in zip(facts, described, strict=True):
        k, _, indexes, words, message_ids, reasons = entry
        owned = kind == headers.TRACKED
        left = clock.time_left(core.config, entered)
        for place, (index,) in enumerate(struct.iter_unpack("<H", indexes)):
            value = int.from_bytes(words[8 * place : 8 * place + 8], "little", signed=True)
            finished = owned and not value
            reason = reasons[place]
            found.append(
                Tree(
                    anchor=ids.anchor_at(slabs[k - 1], index),
                    state="finished" if finished else "pending" if owned else "waiting",
                    value=value,
                    failure=None if reason is None else Cause.decode(reason).reason,
                    spout=names.get(spout) if owned else None,
                    message_id=message_ids[place] if owned and message_ids else None,
                    tracked_at=tracked_at / 1000,
                    age=max(0, clock.now - tracked_at) / 1000,
                    time_left_earliest=None if finished else left[0],
                    time_left_latest=None if finished else left[1],
                    shard=shard,
                    bucket=None if finished else BUCKETS[clock.bucket(entered)],
                )
            )
    return found


def tree(core: Core, anchor: int) -> Operation[Tree | None]:
    """The tree of an anchor; None where the ledger does not know it (any more). Raises ValidationError."""
    anchor = ids.check_id(anchor, "anchor")
    found = yield from trees_at(core, [anchor])
    return found[0] if found else None
