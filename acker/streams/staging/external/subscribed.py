"""Subscriptions that a process has seen of an external stream: a store that lost them gets them back.

A store that was set back to a time before a subscription was made would have segments announced without it:
their records would be acked without its work. A sender that is started again knows nothing of it. So the
sender that notices makes the subscription anew before it ends. The step of the subscription learns of that by
its next flush (UnknownSubscription), and starts again from its committed offsets.

Terms: a segment is the rows of an external stream that one sender stamped together; a slot is the random
number of a subscription.
"""

import logging
from collections.abc import Iterable

import redis

from acker.errors import UnknownSubscription
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, command
from acker.streams.log import subscriptions

MOST_GONE = 65_536
"""Letters of dropped slots that the store keeps (lua/streams/upkeep/remove_subscription.lua)."""
_log = logging.getLogger(__name__)


def names(core: Core, stream: str, slots: Iterable[int]) -> Operation[dict[int, str]]:
    """The names of subscriptions by slot, without dropped subscriptions."""
    asked = sorted(slots)
    if not asked:
        return {}
    stream_keys = keys.Stream(core.config.name, stream)
    [found] = yield [command("HMGET", stream_keys.subscriptions, *(f"slot:{slot}" for slot in asked))]
    pairs = zip(asked, found, strict=True)
    return {slot: name.decode("utf-8", "replace") for slot, name in pairs if name is not None}


def refresh(core: Core, stream: str, seen: dict[int, str]) -> Operation[None]:
    """Takes subscriptions that were dropped out of the ones that a process has seen; lost ones stay.

    Subscriptions that were renamed get their new name: a lost one would be made anew under the earlier name.
    """
    asked = sorted(seen)
    stream_keys = keys.Stream(core.config.name, stream)
    [[gone, *present]] = yield [
        command("HMGET", stream_keys.subscriptions, "gone", *(f"slot:{slot}" for slot in asked))
    ]
    dropped = set((gone or b"").decode().split(","))
    for slot, name in zip(asked, present, strict=True):
        if name is not None:
            seen[slot] = name.decode("utf-8", "replace")
        elif str(slot) in dropped:
            del seen[slot]


def is_forgotten(reply: Reply) -> bool:
    """True if segments were not announced, because the store has lost subscriptions."""
    return isinstance(reply, redis.ResponseError) and str(reply) == "ACKER FORGOTTEN"


def missing(core: Core, stream: str, seen: dict[int, str], slot: int) -> Operation[UnknownSubscription]:
    """The error of a step whose subscription is gone. It is made anew first, unless it was dropped."""
    dropped, cut = yield from _dropped(core, stream)
    if slot in dropped or cut:
        return UnknownSubscription(f"stream {stream!r}: the subscription was dropped")
    yield from restore(core, stream, seen)
    return UnknownSubscription(
        f"stream {stream!r}: the store has lost subscription {seen.get(slot, slot)!r}, which was made anew: "
        "it owes nothing for rows sent meanwhile. Start the process again from its committed offsets"
    )


def _dropped(core: Core, stream: str) -> Operation[tuple[set[int], bool]]:
    """The latest dropped slots, and True if the store does not keep all of them."""
    [gone] = yield [command("HGET", keys.Stream(core.config.name, stream).subscriptions, "gone")]
    gone = gone or b""
    return {int(slot) for slot in gone.split(b",") if slot.isdigit()}, len(gone) >= MOST_GONE


def restore(core: Core, stream: str, seen: dict[int, str]) -> Operation[None]:
    """Makes the subscriptions anew that the store has lost; dropped ones stay dropped.

    A stream with more drops than the store keeps gets none: a process that was idle through all of them
    cannot tell a dropped subscription from a lost one. It starts again, and knows the present ones then.
    """
    present = yield from names(core, stream, seen)
    dropped, cut = yield from _dropped(core, stream)
    if cut:
        _log.error(
            "%s: subscriptions of stream %r are gone that this process has seen: %s. They may have been "
            "dropped, so they are not made anew",
            core.config.name, stream, ", ".join(name for slot, name in seen.items() if slot not in present),
        )  # fmt: skip
        return
    lost = [name for slot, name in seen.items() if slot not in present and slot not in dropped]
    _log.error(
        "%s: the store has lost subscriptions of stream %r, and gets them back: %s",
        core.config.name, stream, ", ".join(lost),
    )  # fmt: skip
    for name in filter(None, lost):
        yield from subscriptions.subscribe(core, stream, name, "external")
