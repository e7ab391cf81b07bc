"""The look-up of segments before their rows are worked on: it tells which trees are over.

Terms: a segment is the rows of an external stream that one sender stamped together; a slot is the random
number of a subscription.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import milliseconds
from acker.streams.staging.external import receiving, subscribed
from acker.streams.staging.external.bits import MOST_POSITIONS
from acker.streams.staging.external.declaring import MARGIN, External, longest_ttl, lost, stored_ttl

_ALL = b"\xff" * (MOST_POSITIONS // 8)
"""The bitmap of all rows that a segment may have."""


@dataclass(slots=True)
class Learned:
    """Facts of a look-up that the commit of the rows needs.

    Attributes:
        heads: Replies to `acker.streams.staging.external.receiving.head`, by key, unless there are too many.
        ttl: Seconds for which rows wait whose segment is not emitted yet.
    """

    heads: dict[bytes, Reply] = field(default_factory=dict)
    ttl: int = 0


def find_over(
    core: Core,
    stream: str,
    external: External,
    slot: int,
    asked: Mapping[tuple[str, int], int],
    learned: Learned | None = None,
) -> Operation[dict[tuple[str, int], bool]]:
    """Tells by token and shard if the trees of a segment there are over for a subscription.

    Args:
        core: The topology.
        stream: The stream's name.
        external: The stream, as the caller knows it.
        slot: The subscription.
        asked: By token and shard, the time at which the segment was begun, in Unix seconds.
        learned: Gets what the commit of the rows needs.

    Raises:
        StreamLost: The stream has another epoch than the caller knows: it was lost, or removed.
        UnknownSubscription: The subscription was dropped, or the store has lost it; then it is made anew.
    """
    stream_keys, places = keys.Stream(core.config.name, stream), list(asked)
    tokens = list(dict.fromkeys(token for token, _ in places))
    staged = [core.shards[shard].staged(token, slot) for token, shard in places]
    whole = learned is not None and len(places) <= receiving.MOST_HEADS
    [[epoch, name], stored, instant, *replies] = yield [
        command("HMGET", stream_keys.subscriptions, "epoch", f"slot:{slot}"),
        stored_ttl(core),
        Request(stream_keys.entries, ["TIME"]),
        *(command("GET", stream_keys.announced(token)) for token in tokens),
        *(receiving.head(key) if whole else command("HGET", key, "state") for key in staged),
    ]
    if epoch != external.epoch:
        raise lost(stream)
    if name is None:
        raise (yield from subscribed.missing(core, stream, external.seen, slot))
    at, ttl = milliseconds(instant), longest_ttl(core, stored)
    announced, states = dict(zip(tokens, replies, strict=False)), replies[len(tokens) :]
    if learned is not None:
        learned.ttl = ttl
        if whole:
            learned.heads.update(zip(staged, states, strict=True))
            states = [state for state, *_ in states]
    over = dict[tuple[str, int], bool]()
    for (token, shard), state in zip(places, states, strict=True):
        if state is None:
            old = at >= (asked[token, shard] + ttl + MARGIN) * 1000
            over[token, shard] = old or not _is_for(slot, announced[token])
        else:
            over[token, shard] = not state.strip(b"2")
    return over


def _is_for(slot: int, announced: Reply) -> bool:
    """False if a segment was announced for other subscriptions: the one of `slot` has joined later."""
    return announced is None or b"%d" % slot in announced.split(b",")


def find_received(
    core: Core, slot: int, places: Iterable[tuple[str, int]]
) -> Operation[dict[tuple[str, int], bytes]]:
    """Finds the rows that a subscription has received, as bitmaps by token and shard.

    A segment that is acked has all its rows. One whose trees ended otherwise has none that anybody knows of.
    """
    asked = list(places)
    replies = yield [
        command("HMGET", core.shards[shard].staged(token, slot), "state", "full", "void", "bits")
        for token, shard in asked
    ]
    bitmaps = dict[tuple[str, int], bytes]()
    for place, (state, full, void, bits) in zip(asked, replies, strict=True):
        acked = state is not None and not state.strip(b"2")
        bitmaps[place] = b"" if void else _ALL if full or acked else bits or b""
    return bitmaps
