"""Keeping, right before shards rotate, of what the next rotation would expire although nobody is late.

Terms: a slab is the trees that one call tracked together.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from acker.errors import StoreError, UnreadableRecord
from acker.ledger.calls.core import FLIGHT_SHARDS, Core
from acker.ledger.tick import tick
from acker.store.operation import InPieces, Operation, Request, command
from acker.store.replies import seconds, whole

BeforeRotation: TypeAlias = Callable[[Core], Operation[int]]

KEEP_FOR = 1.0
"""Seconds for which waiting rows of one topology are kept before the next topology gets its turn."""
_log = logging.getLogger(__name__)


class Keeper:
    """Keeps the slabs of a topology in passes, each of them in pieces.

    No lock: calls at once, from several threads, make passes of their own, and each keeps the same.

    Args:
        keep: The pass; None where nothing is to be kept.
    """

    def __init__(self, keep: BeforeRotation | None) -> None:
        self._keep = keep
        self._core: Core | None = None
        self._until = -math.inf
        self._rotations: Sequence[int] = ()
        self._pass: tuple[Sequence[int], InPieces[int]] | None = None

    def piece(self, core: Core) -> Operation[Sequence[int] | None]:
        """Goes on with a pass for a second at most, if a shard is due.

        Returns the rotations that may follow, as `acker.ledger.tick.tick.rotate` takes them: none of a shard
        that another ticker rotates in between, however long this process is stopped here, and none before all
        waiting rows were kept, which may take many calls.
        """
        if self._keep is None:
            return None
        try:
            left = yield from due(core)
        except UnreadableRecord:  # the fault of one shard keeps no other from its rotation
            left = 0.0
        nothing = [-1] * len(core.shards)
        if left is None or left > 0:
            return nothing
        begun, self._pass = self._pass, None  # an error ends the pass
        if self._core is not core:  # removed and made anew
            self._core, self._until, begun = core, -math.inf, None
        if time.monotonic() < self._until:
            return self._rotations
        if begun is None:
            begun = (yield from _rotations(core)), InPieces(self._keep(core))
        rotations, kept = begun
        if not (yield from kept.piece(KEEP_FOR)):
            self._pass = begun
            return nothing
        # Shards that are due soon after need no further pass: the kept slabs are in their nurseries.
        self._rotations, self._until = rotations, time.monotonic() + core.config.tick_ms / 8000
        if kept.result:
            _log.debug("%s: %d slabs wait for their jobs", core.config.name, kept.result)
        return rotations


def due(core: Core) -> Operation[float | None]:
    """Seconds until the next rotation of any shard, 0 or less if one is due; None without tracking."""
    soonest = None
    replies = yield [
        request
        for shard in core.shards
        for request in (Request(shard.clock, ["TIME"]), command("HGET", shard.clock, "rotated_at"))
    ]
    for instant, rotated_at in zip(replies[::2], replies[1::2], strict=True):
        left = 0.0
        if rotated_at is not None:
            left = (whole(rotated_at, "time of a rotation") + core.config.tick_ms) / 1000 - seconds(instant)
        soonest = left if soonest is None else min(soonest, left)
    return soonest


def _rotations(core: Core) -> Operation[list[int]]:
    """The number of rotations of each shard; -1 if it cannot be read."""
    counts: list[int] = []
    for first in range(0, len(core.shards), FLIGHT_SHARDS):
        shards = core.shards[first : first + FLIGHT_SHARDS]
        try:
            counts += yield from tick.rotations(core, shards)
        except StoreError:
            for shard in shards:
                try:
                    counts += yield from tick.rotations(core, [shard])
                except StoreError:
                    counts.append(-1)
    return counts
