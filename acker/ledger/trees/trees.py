"""Reads trees from the replies of scripts that change nothing.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.fields import Id, Instant, MessageId, Name, Named, Seconds, Whole
from acker.ledger.settings.config import spout_of
from acker.ledger.slabs import registries
from acker.ledger.slabs import slabs as headers
from acker.ledger.slabs.causes import Cause
from acker.ledger.trees import scripts
from acker.ledger.trees.buckets import BUCKETS, Clock, Standing
from acker.ledger.trees.wait import Wait
from acker.store.operation import Operation, Reply
from acker.store.records import Bounds

State: TypeAlias = Literal["pending", "waiting", "finished"]


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree in flight, or with an unconfirmed outcome.

    The remaining times assume no reset, and ticks on time or late by `TICK_LAG` each; a tick that is later
    already has until the `tick_limit` of the configuration.
    """

    anchor: Id
    state: Annotated[
        State,
        "`waiting`: messages came before its track. `finished`: kept until its outcome is confirmed.",
    ]
    value: Annotated[Id, Named("ack_value"), "XOR of emitted and acked tuple ids; 0: complete."]
    failure: Annotated[str | None, "The reason with which a waiting tree will fail."]
    spout: Annotated[Name | None, "null while it waits."]
    message_id: MessageId
    tracked_at: Annotated[Instant, "Its track; the first message of its slab while it waits."]
    age: Annotated[Seconds, "Seconds since then."]
    time_left_earliest: Annotated[Seconds | None, "Until it expires at the earliest."]
    time_left_latest: Annotated[
        Seconds | None,
        "Until it expires at the latest; null if it is finished, if its clock stands still, or if no ticker "
        "seems to run.",
    ]
    shard: Whole
    bucket: Annotated[Standing | None, "`waiting` while its clock stands still; null if it is finished."]
    wait: Annotated[Wait | None, "Why its clock stands still; null while it runs."] = None

    @property
    def slab(self) -> Annotated[Id, "The first anchor of its slab: the trees that are reset together."]:
        """The anchor of its slab's first tree."""
        return ids.anchor_at(ids.slab_of(self.anchor), 0)

    @property
    def index(self) -> Annotated[int, Bounds(0, 4095)]:
        """The index of the tree in its slab, 0 to 4,095."""
        return ids.index_of(self.anchor)


def trees_at(core: Core, anchors: Sequence[int]) -> Operation[list[Tree]]:
    """The known trees of some anchors."""
    trees: list[Tree] = []
    if not core.config.ackers:
        return trees
    for at in range(0, len(anchors), 64):
        part = [(anchor, ids.slab_of(anchor)) for anchor in anchors[at : at + 64] if anchor & 1]
        shards = [ids.shard_of(slab, core.config.ackers) for _, slab in part]
        replies = yield [
            scripts.read_tree(core.shards[shard], slab, ids.index_of(anchor))
            for shard, (anchor, slab) in zip(shards, part, strict=True)
        ]
        for shard, (_, slab), (clock, described) in zip(shards, part, replies, strict=True):
            trees += trees_of(core, shard, Clock.from_reply(shard, clock), [slab], described)
    return trees


def trees_of(
    core: Core, shard: int, clock: Clock, slabs: Sequence[bytes], described: Sequence[Reply]
) -> list[Tree]:
    """Trees in a script's reply on slabs (lua/ledger/trees/includes/read.lua)."""
    facts = [headers.FIXED.unpack_from(header) for _, header, *_ in described]
    names = registries.names(clock.spouts)
    trees = []
    for (kind, spout, _, entered, tracked_at), entry in zip(facts, described, strict=True):
        k, _, indexes, words, message_ids, reasons = entry
        owned = kind == headers.TRACKED
        left = clock.time_left(core.config, entered)
        for place, (index,) in enumerate(struct.iter_unpack("<H", indexes)):
            value = int.from_bytes(words[8 * place : 8 * place + 8], "little", signed=True)
            finished = owned and not value
            reason = reasons[place]
            trees.append(
                Tree(
                    anchor=ids.anchor_at(slabs[k - 1], index),
                    state="finished" if finished else "pending" if owned else "waiting",
                    value=value,
                    failure=None if reason is None else Cause.decode(reason).reason,
                    spout=spout_of(names[spout]) if owned and spout in names else None,
                    message_id=message_ids[place] if owned and message_ids else None,
                    tracked_at=tracked_at / 1000,
                    age=max(0, clock.now - tracked_at) / 1000,
                    time_left_earliest=None if finished else left[0],
                    time_left_latest=None if finished else left[1],
                    shard=shard,
                    bucket=None if finished else BUCKETS[clock.bucket(entered)],
                )
            )
    return trees


def tree(core: Core, anchor: int) -> Operation[Tree | None]:
    """The tree of an anchor; None if the ledger does not hold it. Raises ValidationError."""
    anchor = ids.check_id(anchor, "anchor")
    found = yield from trees_at(core, [anchor])
    return found[0] if found else None
