"""The tick: rotates the three buckets of each shard, and expires the slabs of the oldest.

Any number of tickers may run at any time: by the rotation's number only one of them wins.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from acker.errors import StoreError
from acker.ledger import ids
from acker.ledger.calls import encoding
from acker.ledger.calls.calls import Ticked
from acker.ledger.calls.core import FLIGHT_SHARDS, Core
from acker.ledger.tick import observed, scripts
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds, whole

MOST_REASONS = 32
"""Most reasons of expirations in one tick."""
HOLD = 10.0
"""Seconds from the begin of a scan in which its reasons hold. A tree may have moved on since: the ticker may
have been stopped, or have waited for a store that failed over."""
MOST_LOOKS = 3
"""Most scans of one tick, if its reasons become old while it drains."""
_MOST_ASIDE = 1000
"""Most rotations of a shard in one drain: many more than a ticker ever finds."""
_CLOCK = ("rotations", "drained")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Looked:
    """The begin of a scan of a shard. at: ms by the shard's clock. rotations: its rotations by then."""

    at: int
    rotations: int


@dataclass(frozen=True, slots=True)
class Reasons:
    """The reasons of trees that rotations have set aside, as far as they were scanned.

    texts: `MOST_REASONS` at most. codes: name of a slab -> the reason of each of its trees, as
    lua/ledger/tick/drain.lua takes it. looks: the scans of shards, by number.
    """

    texts: tuple[str, ...] = ()
    codes: Mapping[bytes, bytes] = field(default_factory=dict)
    looks: Mapping[int, Looked] = field(default_factory=dict)

    def codes_of(self, slabs: Sequence[bytes]) -> list[bytes]:
        """The codes of slabs; empty without reasons."""
        return [self.codes.get(slab, b"") for slab in slabs] if self.texts else []

    def until(self, shard: int) -> int:
        """The end of their validity in a shard, in ms by its clock; 0 if they cannot become old."""
        look = self.looks.get(shard)
        return 0 if look is None or not self.texts else look.at + int(HOLD * 1000)

    def covers(self, shard: int, rotation: int) -> bool:
        """True if the scan started after the rotation; later rotations are left to the next scan."""
        look = self.looks.get(shard)
        return look is None or rotation < look.rotations


Explain: TypeAlias = Callable[[Core], Operation[Reasons]]


@dataclass(slots=True)
class _Explained:
    """The reasons of a tick, scanned again after they became old."""

    reasons: Reasons
    explain: Explain | None = None
    left: int = MOST_LOOKS

    def again(self, core: Core) -> Operation[None]:
        """Scans again; without reasons after `MOST_LOOKS` scans, because trees must expire in time."""
        self.left -= 1
        if self.explain is None or self.left <= 0:
            self.reasons = Reasons()
        else:
            self.reasons = yield from self.explain(core)


def rotate(
    core: Core, force: bool = False, trust: bool = True, expected: Sequence[int] | None = None
) -> Operation[int]:
    """Rotates the buckets of each due shard; returns the number of these shards.

    trust: True to use the server's clock if nothing was measured yet (`acker.ledger.slabs.ages`), as a single
    tick must. expected: rotations of each shard when it was found due; a shard with another number is only
    measured. Raises StoreError for a fault of a shard, after the other shards were rotated.
    """
    rotated = 0
    broken: StoreError | None = None
    for first in range(0, len(core.shards), FLIGHT_SHARDS):
        shards = core.shards[first : first + FLIGHT_SHARDS]
        try:
            rotated += yield from _rotate(core, shards, force, trust, expected)
        except StoreError:
            for shard in shards:
                try:
                    rotated += yield from _rotate(core, [shard], force, trust, expected)
                except StoreError as error:
                    broken = broken or error
    if broken is not None:
        raise broken
    return rotated


def clocks(core: Core, shards: Sequence[keys.Shard], default: int = 0) -> Operation[list[tuple[int, int]]]:
    """The number of rotations of each shard, and of its drained ones. Raises StoreError.

    default: stands for both if the shard was never used.
    """
    replies = yield [command("HMGET", shard.clock, *_CLOCK) for shard in shards]
    return [
        (_number(core, shard, 0, rotated, default), _number(core, shard, 1, drained, default))
        for shard, (rotated, drained) in zip(shards, replies, strict=True)
    ]


def rotations(core: Core, shards: Sequence[keys.Shard]) -> Operation[list[int]]:
    """The number of rotations of each shard. Raises StoreError."""
    found = yield [command("HGET", shard.clock, _CLOCK[0]) for shard in shards]
    return [_number(core, shard, 0, made) for shard, made in zip(shards, found, strict=True)]


def _number(core: Core, shard: keys.Shard, place: int, value: bytes | None, default: int = 0) -> int:
    what = f"{_CLOCK[place]} of shard {shard.number} of topology {core.config.name!r}"
    return whole(value, what, default)


def _rotate(
    core: Core, shards: Sequence[keys.Shard], force: bool, trust: bool, expected: Sequence[int] | None
) -> Operation[int]:
    if expected is None:
        numbers = yield from rotations(core, shards)
    else:
        numbers = [expected[shard.number] for shard in shards]
    horizon = int(core.horizon * 1000)
    calls = []
    for shard, rotation in zip(shards, numbers, strict=True):
        known = core.ages.last_rotation(shard.number)
        stamp, age = known or (b"", 0)
        once, period = trust and known is None, core.config.tick_ms
        calls.append(scripts.rotate(shard, rotation, period, horizon, force, stamp, age, once))
    replies = yield from core.ask(calls)
    for shard, (_, _, _, stamp, age) in zip(shards, replies, strict=True):
        core.ages.learn(shard.number, bytes(stamp), int(age))
    return sum(reply[0] for reply in replies)


def drain(
    core: Core, most: int | None = None, reasons: Reasons | None = None, explain: Explain | None = None
) -> Operation[Ticked]:
    """Expires the slabs that rotations set aside: all of them, or about `most` trees. reasons: known reasons.

    One shard after the other, in calls of some milliseconds, so that other clients get their turn. explain:
    scans for the reasons again after they became old; without it trees then expire without a reason.
    """
    total = Ticked()
    why = _Explained(reasons or Reasons(), explain)
    broken: StoreError | None = None
    for shard in core.shards:
        left = None if most is None else most - total.expired - total.orphaned
        try:
            drained = yield from _drain_shard(core, shard, left, why)
        except StoreError as error:
            broken = broken or error  # a fault of one shard must not keep the others waiting
            continue
        total = Ticked(0, total.expired + drained.expired, total.orphaned + drained.orphaned)
    if broken is not None:
        raise broken
    return total


def aside(core: Core, shard: keys.Shard) -> Operation[list[tuple[int, bytes]]]:
    """The undrained rotations of a shard, with the keys of their slabs. Raises StoreError."""
    [(rotations, drained)] = yield from clocks(core, [shard])
    return _aside(shard, rotations, drained)


def _aside(shard: keys.Shard, rotations: int, drained: int) -> list[tuple[int, bytes]]:
    numbers = range(drained, min(rotations, drained + _MOST_ASIDE))
    return [(rotation, shard.expired(rotation)) for rotation in numbers]


def begin_scan(core: Core, shard: keys.Shard) -> Operation[tuple[Looked, list[bytes]]]:
    """Begins a scan of the undrained rotations of a shard; returns their keys. Raises StoreError."""
    instant, stored = yield [Request(shard.clock, ["TIME"]), command("HMGET", shard.clock, *_CLOCK)]
    rotations, drained = (_number(core, shard, place, value) for place, value in enumerate(stored))
    undrained = _aside(shard, rotations, drained)
    return Looked(milliseconds(instant), drained + len(undrained)), [key for _, key in undrained]


def _drain_shard(core: Core, shard: keys.Shard, most: int | None, why: _Explained) -> Operation[Ticked]:
    expired = orphaned = 0
    for rotation, key in (yield from aside(core, shard)):
        if not why.reasons.covers(shard.number, rotation):
            break
        count, left = 16, 1
        while left > 0:
            if most is not None and expired + orphaned >= most:
                return Ticked(0, expired, orphaned)
            [members] = yield [command("SRANDMEMBER", key, count)]
            slabs = [member for member in members if len(member) == ids.SLAB_BYTES]
            odd = [member for member in members if len(member) != ids.SLAB_BYTES]
            call = scripts.drain(
                core.config,
                shard,
                rotation,
                slabs,
                odd,
                why.reasons.texts,
                why.reasons.codes_of(slabs),
                why.reasons.until(shard.number),
            )
            [(trees, orphans, left, unreadable)] = yield from core.ask([call])
            if trees < 0:
                yield from why.again(core)
                continue
            for name in unreadable:
                what = f"slab {name.hex()} of shard {shard.number}"
                _log.error("%s: %s cannot be read", core.config.name, what)
            expired, orphaned = expired + trees, orphaned + orphans
            count = min(encoding.CALL_DRAINS, count * 2) if trees + orphans < 4096 else max(8, count // 2)
    return Ticked(0, expired, orphaned)


def tick(
    core: Core,
    force: bool = False,
    most: int | None = None,
    trust: bool = True,
    expected: Sequence[int] | None = None,
    explain: Explain | None = None,
) -> Operation[Ticked]:
    """Rotates due shards and drains the slabs set aside, or about `most` trees of them.

    trust, expected: see `rotate`. explain: scans for reasons in between. Raises StoreError for a fault of a
    shard, after the rest was done.
    """
    rotated = 0
    broken: StoreError | None = None
    try:
        rotated = yield from rotate(core, force, trust, expected)
    except StoreError as error:
        broken = error
    reasons = None if explain is None else (yield from explain(core))
    drained = yield from drain(core, most, reasons, explain)
    yield from observed.confirm_all(core)
    if broken is not None:
        raise broken
    return Ticked(rotated, drained.expired, drained.orphaned)
