"""Kinds of streams: a stream is managed, its rows in the store, or external, its rows elsewhere.

Terms: a segment is the rows of an external stream that one sender stamped together; a slot is the random
number of a subscription.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import redis

from acker.errors import StampsExpired, StreamLost, ValidationError, shown
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import passing_over
from acker.store.replies import milliseconds, pairs, positive, whole
from acker.streams.log import kinds
from acker.streams.staging.external import scripts, subscribed

MARGIN = 600
"""Seconds by which clocks may differ."""
LOST_AFTER, DOWNTIME = 3600.0, 7 * 86400.0
"""Seconds, by default, of rows received after which an open segment counts as lost; and in any case."""
MOST_SEGMENTS = 1_000_000
"""Open segments of a stream, by default at most."""
MOST_BYTES = 4 << 30
"""Bytes of the vectors of a stream's open segments, by default at most: 8 for each tree and subscription."""
_MOST_TTL = 7 * 86400
_OPTIONS = (b"lost_after", b"downtime", b"most_segments", b"most_bytes", b"slots", b"epoch")


@dataclass(frozen=True, slots=True)
class External:
    """An external stream, as the store has it.

    Attributes:
        stamp_keys: The keys of its stamps, by number; one or two.
        number: The number of the key that new stamps have.
        lost_after: Seconds of rows received after which an open segment counts as lost.
        downtime: Seconds after which an open segment counts as lost in any case.
        now: The server's time (ms).
        epoch: A random name of the stream's content: a stream that was made anew has another.
        seen: The subscriptions that this process has seen, as names by slot. A store that has lost one is
            refused: it would take rows that the subscription does not owe an ack for.
        named: One time of this process's clock: when the names were read last.
    """

    stamp_keys: dict[int, bytes]
    number: int
    lost_after: float
    downtime: float
    now: int
    epoch: bytes
    seen: dict[int, str] = field(default_factory=dict)
    named: list[float] = field(default_factory=lambda: [time.monotonic()])

    @property
    def key(self) -> str:
        """The key that new stamps have, as the store keeps it."""
        return self.stamp_keys[self.number].hex()


def declare(
    core: Core,
    stream: str,
    *,
    lost_after: float | None = None,
    downtime: float | None = None,
    most_segments: int | None = None,
    most_bytes: int | None = None,
) -> Operation[External]:
    """Has a stream be external, and sets what is given of its options.

    Args:
        core: The topology.
        stream: The stream's name.
        lost_after: Seconds, from 1; None leaves it as it is, 3,600 at first.
        downtime: Seconds, 1 to 28 days; None leaves it as it is, 7 days at first.
        most_segments: Open segments at most, from 1; None leaves it as it is, 1,000,000 at first.
        most_bytes: Bytes of their vectors at most, from 1; None leaves it as it is, 4 GiB at first.

    Raises:
        StreamKindError: The stream is managed.
        ValidationError: An option is out of range.
    """
    words = (
        _number("lost_after", lost_after, 1, 28 * 86400),
        _number("downtime", downtime, 1, 28 * 86400),
        _number("most_segments", most_segments, 1, 1 << 40),
        _number("most_bytes", most_bytes, 1, 1 << 50),
    )
    stream_keys = keys.Stream(core.config.name, stream)
    key, epoch = secrets.token_hex(32), str(secrets.randbits(52))
    call = partial(scripts.declare_external, core.config, stream_keys, key, *words, epoch)
    reply = yield from kinds.make_noted(core, stream, call)
    if isinstance(reply, redis.ResponseError):
        raise kinds.kind_error(stream, "managed")
    now, number, key, before, *options = reply
    slots = _slots(options[4])
    seen = yield from subscribed.names(core, stream, slots)
    return _external(stream, int(now), int(number), (key, before), options, seen)


def read(core: Core, stream: str) -> Operation[External]:
    """Reads an external stream, by one flight where it is one already; declares it where it is not.

    Raises StreamKindError if the stream is managed.
    """
    subscriptions = keys.Stream(core.config.name, stream).subscriptions
    looks = command("HGETALL", subscriptions), Request(subscriptions, ["TIME"])
    stored, instant = yield from core.name_stream(stream, *looks)
    fields = pairs(stored)
    number = whole(fields.get(kinds.FIELD.encode()), f"stream {stream!r}, its key", -1)
    key, before = (fields.get(b"stamp_key:%d" % (of % 256), b"") for of in (number, number - 1))
    if number < 0 or not key or b"epoch" not in fields:
        return (yield from declare(core, stream))
    seen = {slot: fields.get(b"slot:%d" % slot) for slot in _slots(fields.get(b"slots", b""))}
    names = {slot: name.decode("utf-8", "replace") for slot, name in seen.items() if name is not None}
    options = [fields.get(name, b"") for name in _OPTIONS]
    return _external(stream, milliseconds(instant), number, (key, before), options, names)


def is_unchanged(core: Core, stream: str, external: External, slot: int, name: str) -> Operation[bool]:
    """Return True if a stream still has the content, the keys and the subscription that the caller knows."""
    numbers = external.number, (external.number - 1) % 256
    fields = ["epoch", kinds.FIELD, f"slot:{slot}", f"name:{name}", *map("stamp_key:{}".format, numbers)]
    asked = command("HMGET", keys.Stream(core.config.name, stream).subscriptions, *fields)
    [stored] = yield from core.name_stream(stream, asked)
    stamp_keys = [external.stamp_keys.get(number, b"").hex().encode() for number in numbers]
    wanted = [external.epoch, b"%d" % external.number, name.encode(), b"%d" % slot, *stamp_keys]
    return [value or b"" for value in stored] == wanted


def _slots(text: bytes) -> list[int]:
    return [int(slot) for slot in text.split(b",") if slot.isdigit()]


def _external(
    stream: str,
    now: int,
    number: int,
    stored_keys: tuple[bytes, bytes],
    options: Sequence[bytes],
    seen: dict[int, str],
) -> External:
    """An external stream as the store has it. options: the values of `_OPTIONS`."""
    key, before = stored_keys
    label = f"stream {stream!r}"
    stamp_keys = {number: bytes.fromhex(key.decode())}
    if before:
        stamp_keys[(number - 1) % 256] = bytes.fromhex(before.decode())
    lost_after = positive(options[0] or None, f"{label}, lost_after", LOST_AFTER)
    downtime = positive(options[1] or None, f"{label}, downtime", DOWNTIME)
    whole(options[2] or None, f"{label}, most_segments", MOST_SEGMENTS)
    whole(options[3] or None, f"{label}, most_bytes", MOST_BYTES)
    return External(stamp_keys, number, lost_after, downtime, now, options[5], seen)


def check_subscribed(core: Core, stream: str, external: External, slot: int) -> Operation[None]:
    """Checks that the store still has a subscription; one that it has lost is made anew.

    Nobody owes an ack for rows that are sent while a stream has no subscription. A step without rows would
    not notice otherwise.

    Raises:
        StreamLost: The store has lost the stream.
        UnknownSubscription: The store has lost the subscription, or it was dropped.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    [[epoch, name]] = yield [command("HMGET", stream_keys.subscriptions, "epoch", f"slot:{slot}")]
    if epoch != external.epoch:
        yield from core.restore()
        yield from declare(core, stream)
        yield from subscribed.restore(core, stream, external.seen)
        raise lost(stream)
    if name is None:
        raise (yield from subscribed.missing(core, stream, external.seen, slot))


def stored_ttl(core: Core) -> Request:
    """Reads the stored stamp_ttl of a topology, which may have been raised since the process began."""
    return command("HGET", keys.config(core.config.name), "stamp_ttl")


def longest_ttl(core: Core, stored: Reply) -> int:
    """The longer of the stored stamp_ttl and the one that the process knows; an unreadable one is missing."""
    configured = core.config.stamp_ttl
    with passing_over(core.config.name):
        return max(configured, min(whole(stored, "stamp_ttl"), _MOST_TTL))
    return configured


def lost(stream: str) -> StreamLost:
    """The error of a process that goes on with a stream that the store does not have any more."""
    return StreamLost(
        f"stream {stream!r}: since this process began to use it, the store has lost it, or it was removed, "
        "or its key was rotated twice: nothing more of the flush takes effect. Start the process again from "
        "its committed offsets"
    )


def expired(core: Core, stream: str) -> StampsExpired:
    """The error of a flush that comes too late."""
    return StampsExpired(
        f"stream {stream!r}: stamps were given more than {core.config.stamp_ttl:,} s before their flush. It "
        "may have taken effect in part: rows that no earlier attempt of it has emitted stay untracked. Start "
        "the process again from its committed offsets"
    )


def _number(name: str, value: Any, low: float, high: float) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValidationError(f"{name}: expected {low:,} to {high:,}, got {shown(value)}")
    return repr(value)
