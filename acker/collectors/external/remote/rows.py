"""Reading rows for a client: the trees of each, and a name of its segment, by which it is acked.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together; a slot is the random number of a subscription.
"""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import redis

from acker.collectors.external.remote.sealed import segment_name
from acker.errors import UnknownSubscription
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import kinds, subscriptions
from acker.streams.staging.external import declaring, scripts, serving
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.rows.lookup import find_over
from acker.streams.staging.external.rows.stamps import Seal, Stamp

State: TypeAlias = Literal["tracked", "untracked", "unstamped", "damaged", "foreign", "newer", "over"]
_Group: TypeAlias = tuple[str, tuple[int, ...]]
"""A segment, and the shards in which trees of a row are open: rows of a group have one name."""
_COUNTED = 60
"""Seconds for which the note lives that the rows of a call were counted."""


@dataclass(frozen=True, slots=True)
class RemoteRow:
    """A row as a client gets it.

    Attributes:
        state: Tracked, or the reason for which it is not.
        anchors: Its trees that are not over.
        segment: A name of its segment; rows with the same name are acked together. Empty if untracked.
        position: Its position there.
    """

    state: State
    anchors: tuple[int, ...] = ()
    segment: str = ""
    position: int = 0


def declare(core: Core, stream: str, subscription: str) -> Operation[bool]:
    """Makes a stream external, and a subscription of it; True if the subscription is new.

    Raises:
        StreamKindError: The stream is managed.
        AckerError: The stream has its most subscriptions, or this one is being dropped.
    """
    yield from declaring.declare(core, stream)
    key = keys.Stream(core.config.name, stream).subscriptions
    [known] = yield [command("HEXISTS", key, f"name:{subscription}")]
    yield from subscriptions.subscribe(core, stream, subscription, "external")
    return not known


def find(core: Core, stream: str, subscription: str) -> Operation[tuple[External, int]]:
    """An external stream, and the slot of its subscription.

    Raises:
        UnknownSubscription: There is none.
        StreamKindError: The stream is managed.
    """
    slot = yield from subscriptions.find(core, stream, subscription)
    key = keys.Stream(core.config.name, stream).subscriptions
    [field] = yield [command("HGET", key, kinds.FIELD)]
    kinds.check(stream, field, "external")
    external = yield from declaring.declare(core, stream)
    return external, slot


def seal_of(core: Core, stream: str, external: External) -> Seal:
    """The keys that seal the texts of a stream."""
    return Seal(core.config.name, stream, external.stamp_keys, external.number)


def read(
    core: Core,
    stream: str,
    subscription: str,
    stamps: Sequence[str | None],
    *,
    step: str = "",
    shared: bool = False,
) -> Operation[list[RemoteRow]]:
    """Reads stamps as rows of a subscription carry them, and counts the rows.

    Args:
        core: The topology.
        stream: The stream's name.
        subscription: The subscription.
        stamps: What the rows carry; None for no stamp.
        step: The name of the step; by default the subscription's.
        shared: True if the step shares the subscription with steps of other names.

    Raises:
        SubscriptionInUse: A live step of another name serves the subscription.
        UnknownSubscription: The stream has no such subscription.
        StreamKindError: The stream is managed.
    """
    external, slot = yield from find(core, stream, subscription)
    yield from serving.serve(core, stream, slot, subscription, step or subscription, shared=shared)
    seal, ackers = seal_of(core, stream, external), core.config.ackers
    decoded = seal.read_many(stamps)
    asked = {
        (stamp.token, _shard(anchor, ackers)): stamp.sent
        for stamp in decoded
        if isinstance(stamp, Stamp) and ackers
        for anchor in stamp.anchors
    }
    over = (yield from find_over(core, stream, external, slot, asked)) if asked else {}
    groups = dict[_Group, Stamp]()
    rows = list[tuple[RemoteRow, _Group | None]]()
    for stamp in decoded:
        if not isinstance(stamp, Stamp):
            rows.append((RemoteRow(stamp), None))
            continue
        by_shard = dict[int, int]()
        anchors = list[int]()
        for anchor in dict.fromkeys(stamp.anchors) if ackers else ():
            shard = _shard(anchor, ackers)
            if not over[stamp.token, shard]:
                anchors.append(anchor)
                by_shard.setdefault(shard, anchor)
        if not anchors:
            rows.append((RemoteRow("over" if ackers else "untracked"), None))
            continue
        group = stamp.token, tuple(sorted(by_shard))
        if group not in groups or stamp.position > groups[group].position:
            groups[group] = stamp._replace(anchors=tuple(by_shard[of] for of in group[1]))
        rows.append((RemoteRow("tracked", tuple(anchors), position=stamp.position), group))
    names = {
        group: segment_name(seal, stamp.token, stamp.position, stamp.sent, stamp.anchors)
        for group, stamp in groups.items()
    }
    named = [row if group is None else replace(row, segment=names[group]) for row, group in rows]
    yield from _count(core, stream, slot, named)
    return named


def _count(core: Core, stream: str, slot: int, rows: Sequence[RemoteRow]) -> Operation[None]:
    """Counts rows by what they carried, as the flush of a program in Python does."""
    counted = Counter(row.state for row in rows if row.state != "tracked")
    found = [("seen_rows", len(rows)), *((f"seen_{state}", count) for state, count in counted.items())]
    stream_keys, note = keys.Stream(core.config.name, stream), secrets.token_hex(16)
    [reply] = yield [scripts.note_received(core.config, stream_keys, note, slot, 0, _COUNTED, found)]
    if isinstance(reply, redis.ResponseError):
        raise UnknownSubscription(f"stream {stream!r}: the subscription was dropped")


def _shard(anchor: int, ackers: int) -> int:
    return ids.shard_of(ids.slab_of(anchor), ackers)
