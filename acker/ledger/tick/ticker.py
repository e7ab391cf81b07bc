"""The ticker: ticks topologies when it is time. Any number of tickers may run at once, and any may die."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from acker.errors import (
    AckerError,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    UnreadableRecord,
    is_interrupt,
)
from acker.ledger.calls import core as operations
from acker.ledger.calls.calls import Ticked
from acker.ledger.calls.core import FLIGHT_SHARDS, Core
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name
from acker.ledger.slabs.causes import log_error, said_by
from acker.ledger.tick import tick
from acker.ledger.user_functions.undone import undone
from acker.store.client import Store
from acker.store.operation import Operation, Request, command
from acker.store.replies import seconds, whole

OnTick: TypeAlias = Callable[[str, Ticked], object]
BeforeRotation: TypeAlias = Callable[[Core], Operation[int]]

FIND_EVERY = 1.0
"""Seconds after which a new topology is found at the latest."""
LOOK_EVERY = 5.0
"""Seconds after which a topology is looked at again, though no tick is due by what was known of it: it may
have been made anew, or another ticker may have died while it drained."""
PIECE = 200_000
"""Trees of one topology that are drained before the others get their turn."""
_LONGEST_PAUSE = 5.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """A topology: what was stored of it, when to look at it again, what was last wrong.

    kept_until: when to look again for what waits; it and `due` are of the monotonic clock.
    made: how many rotations the shards had made right before that was kept.
    """

    core: Core | None = None
    due: float = 0.0
    trouble: str = ""
    kept_until: float = -math.inf
    made: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Operations that the layers above add to the tick of a topology (`acker.inspect.operate.ticker_hooks`).

    before_rotation: keeps slabs of calls and of waiting rows, right before shards rotate; returns how many.
    explain: finds why trees expire that rotations have set aside.
    """

    before_rotation: BeforeRotation | None = None
    explain: tick.Explain | None = None


class Schedule:
    """Which topologies to tick when, without I/O: what `Ticker` and its asyncio twin run.

    names: the topologies; None ticks all, those made later too.
    on_tick: is called with each tick that did something; further ticks wait for its end.
    hooks: what the layers above add to a tick.
    """

    def __init__(
        self, names: Iterable[str] | None = None, on_tick: OnTick | None = None, hooks: Hooks | None = None
    ) -> None:
        self.names = None if names is None else sorted({check_name(name, "topology") for name in names})
        self._on_tick = on_tick
        self._hooks = hooks or Hooks()
        self._known: dict[str, _Known] = {}
        self._failures = 0

    def round(self, stopped: Callable[[], bool] = lambda: False) -> Operation[float]:
        """Ticks what is due, drains a bounded piece of it; returns seconds until the next round.

        stopped: whether the topologies that are left are to wait.
        """
        names = self.names if self.names is not None else (yield from topologies.names())
        self._known = {name: self._known.get(name) or _Known() for name in names}
        # What waits longest comes first: the shard of one may lie on the one node that hangs.
        for name, known in sorted(self._known.items(), key=lambda item: item[1].due):
            if stopped():
                break
            if known.due > time.monotonic():
                continue
            try:
                wait = yield from self._visit(name, known)
                known.trouble = ""
            except (StoreUnavailable, StoreMisconfigured):
                known.due = time.monotonic() + FIND_EVERY
                raise
            except Exception as error:  # noqa: BLE001 - one topology must not end the ticks of all others
                wait = FIND_EVERY
                trouble = str(error) if isinstance(error, AckerError) else said_by(error)
                if known.trouble != trouble:
                    known.trouble = trouble
                    _log.error("topology %s is not ticked: %.1000s", name, trouble)
            known.due = time.monotonic() + wait
        if self._failures:
            _log.warning("the store answers again after %d attempts", self._failures)
            self._failures = 0
        soonest = min((known.due for known in self._known.values()), default=float("inf"))
        longest = FIND_EVERY if self.names is None else LOOK_EVERY
        return max(0.0, min(longest, soonest - time.monotonic()))

    def _visit(self, name: str, known: _Known) -> Operation[float]:
        # A topology may have been removed and made anew, with other shards.
        stored = yield from operations.open_topology(name, {}, create=False)
        if known.core is None or known.core.config != stored.config:
            known.core = stored
        core = known.core
        made = yield from self._keep(core, known)
        explain = self._hooks.explain
        ticked = yield from tick.tick(core, most=PIECE, trust=False, made=made, explain=explain)
        if ticked != Ticked():
            _log.debug("%s: %s", name, ticked)
            if self._on_tick is not None:
                self._report(self._on_tick, name, ticked)
        if ticked.expired + ticked.orphaned >= PIECE:
            return 0.0
        left = yield from due(core)
        return LOOK_EVERY if left is None else max(0.0, min(LOOK_EVERY, left))

    def _report(self, on_tick: OnTick, name: str, ticked: Ticked) -> None:
        """Calls `on_tick`, which is the user's: what it raises ends no ticks."""
        try:
            if kind := undone(on_tick(name, ticked)):
                _log.error("on_tick has returned a %s: nobody has done its work", kind)
        except BaseException as error:
            if is_interrupt(error):
                raise
            log_error(_log, error, "topology %s was ticked, and on_tick has raised: %s", name, said_by(error))

    def _keep(self, core: Core, known: _Known) -> Operation[Sequence[int] | None]:
        """Keeps what waits, right before shards rotate.

        Returns which rotations may follow, as `acker.ledger.tick.tick.rotate` takes it: of a shard that
        another ticker rotates in between, however long this one is stopped here, none.
        """
        keep = self._hooks.before_rotation
        if keep is None:
            return None
        try:
            left = yield from due(core)
        except UnreadableRecord:  # of one shard, which keeps no other from its rotation
            left = 0.0
        if left is None or left > 0:
            return [-1] * len(core.shards)
        if time.monotonic() >= known.kept_until or len(known.made) != len(core.shards):
            known.made = yield from _rotations(core)
            kept = yield from keep(core)
            # Shards that are due soon after need no pass of their own: what was kept is in their nurseries.
            known.kept_until = time.monotonic() + core.config.tick_ms / 8000
            if kept:
                _log.debug("%s: %d slabs wait for their jobs", core.config.name, kept)
        return known.made

    def failed(self, error: AckerError) -> float:
        """Notes that a round failed; returns seconds until the next, more from one failure to another."""
        if not self._failures:
            _log.warning("no ticks for now: %s", error)
        self._failures += 1
        pause = min(_LONGEST_PAUSE, 0.1 * 2.0 ** min(self._failures, 10))
        return random.SystemRandom().uniform(0.5, 1.0) * pause


def _rotations(core: Core) -> Operation[list[int]]:
    """How many rotations each shard has made; -1 where that cannot be read."""
    made: list[int] = []
    for first in range(0, len(core.shards), FLIGHT_SHARDS):
        shards = core.shards[first : first + FLIGHT_SHARDS]
        try:
            made += yield from tick.rotations(core, shards)
        except StoreError:
            for shard in shards:
                try:
                    made += yield from tick.rotations(core, [shard])
                except StoreError:
                    made.append(-1)
    return made


class Ticker:
    """Ticks topologies of a store when they are due, sleeping in between.

    names: the topologies; None ticks all, those made later too.
    on_tick: is called with each tick that did something.
    hooks: without them, rows do not wait through a downtime, and trees expire without a place.
    A store that is away or set up badly, or that refuses a command, is logged and waited for.
    """

    def __init__(
        self,
        store: Store,
        names: Iterable[str] | None = None,
        *,
        on_tick: OnTick | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.store = store
        self._schedule = Schedule(names, on_tick, hooks)

    def step(self, stopped: Callable[[], bool] = lambda: False) -> float:
        """One round, which ends early where it is to stop; returns seconds until the next one is due."""
        try:
            return self.store.run(self._schedule.round(stopped))
        except (StoreUnavailable, StoreMisconfigured, StoreError) as error:
            return self._schedule.failed(error)

    def run(self, stop: threading.Event) -> None:
        """Ticks until `stop` is set; while the store is away, that takes up to its time-out to be seen."""
        while not stop.is_set():
            stop.wait(self.step(stop.is_set))


def due(core: Core) -> Operation[float | None]:
    """Seconds until the next rotation of a shard is due: 0 or less where one is; None without tracking."""
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
