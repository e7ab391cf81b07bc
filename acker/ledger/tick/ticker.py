"""The ticker: ticks topologies when it is time. Any number of tickers may run at once, and any may die.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from acker.errors import (
    AckerError,
    StoreMisconfigured,
    StoreUnavailable,
    is_interrupt,
)
from acker.ledger.calls import core as operations
from acker.ledger.calls.calls import Ticked
from acker.ledger.calls.core import Core
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name
from acker.ledger.slabs.causes import log_error, said_by
from acker.ledger.tick import tick
from acker.ledger.tick.keeper import BeforeRotation, Keeper, due
from acker.ledger.user_functions.undone import undone
from acker.store import loops
from acker.store.client import Store
from acker.store.loops import Pace
from acker.store.operation import Operation

OnTick: TypeAlias = Callable[[str, Ticked], object]

FIND_EVERY = 1.0
"""Most seconds until a new topology is found."""
LOOK_EVERY = 5.0
"""Most seconds between two visits of a topology without a due tick: it may have been made anew, or another
ticker may have died while it drained."""
PIECE = 200_000
"""Trees of one topology that are drained before the next topology gets its turn."""
_LONGEST_PAUSE = 5.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """A topology: its stored state, the monotonic time of the next visit, and its last trouble."""

    keeper: Keeper
    core: Core | None = None
    due: float = 0.0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Operations that the layers above add to the tick of a topology (`acker.inspect.operate.ticker_hooks`).

    before_rotation: keeps slabs of calls and of waiting rows, right before shards rotate; returns their
    number. explain: finds the reasons of trees that rotations have set aside.
    """

    before_rotation: BeforeRotation | None = None
    explain: tick.Explain | None = None


class Schedule:
    """The schedule of ticks, without I/O, for `Ticker` and its asyncio twin.

    names: the topologies; None ticks all, including later ones.
    on_tick: a function that gets each tick with an effect; further ticks wait for its end.
    hooks: additions of the layers above to a tick.
    """

    def __init__(
        self, names: Iterable[str] | None = None, on_tick: OnTick | None = None, hooks: Hooks | None = None
    ) -> None:
        self.names = None if names is None else sorted({check_name(name, "topology") for name in names})
        self._on_tick = on_tick
        self._hooks = hooks or Hooks()
        self._known: dict[str, _Known] = {}

    def round(self, stopped: Callable[[], bool] = lambda: False) -> Operation[float]:
        """Ticks due topologies and drains a bounded piece of each; returns seconds until the next round.

        stopped: returns True if the remaining topologies are to wait.
        """
        names = self.names if self.names is not None else (yield from topologies.names())
        self._known = {name: self._known.get(name) or self._new() for name in names}
        # The longest waiting topology comes first: another one's shard may lie on the one node that hangs.
        for name, topology in sorted(self._known.items(), key=lambda item: item[1].due):
            if stopped():
                break
            if topology.due > time.monotonic():
                continue
            try:
                wait = yield from self._visit(name, topology)
                topology.trouble = ""
            except (StoreUnavailable, StoreMisconfigured):
                topology.due = time.monotonic() + FIND_EVERY
                raise
            except Exception as error:  # noqa: BLE001 - one topology must not end the ticks of all others
                wait = FIND_EVERY
                trouble = str(error) if isinstance(error, AckerError) else said_by(error)
                if topology.trouble != trouble:
                    topology.trouble = trouble
                    _log.error("topology %s is not ticked: %.1000s", name, trouble)
            topology.due = time.monotonic() + wait
        soonest = min((topology.due for topology in self._known.values()), default=float("inf"))
        longest = FIND_EVERY if self.names is None else LOOK_EVERY
        return max(0.0, min(longest, soonest - time.monotonic()))

    def _new(self) -> _Known:
        return _Known(Keeper(self._hooks.before_rotation))

    def _visit(self, name: str, topology: _Known) -> Operation[float]:
        # A topology may have been removed and made anew, with other shards.
        stored = yield from operations.open_topology(name, {}, create=False)
        if topology.core is None or topology.core.config != stored.config:
            topology.core = stored
        core = topology.core
        rotations = yield from topology.keeper.piece(core)
        explain = self._hooks.explain
        ticked = yield from tick.tick(core, most=PIECE, trust=False, expected=rotations, explain=explain)
        if ticked != Ticked():
            _log.debug("%s: %s", name, ticked)
            if self._on_tick is not None:
                self._report(self._on_tick, name, ticked)
        if ticked.expired + ticked.orphaned >= PIECE:
            return 0.0
        left = yield from due(core)
        return LOOK_EVERY if left is None else max(0.0, min(LOOK_EVERY, left))

    def _report(self, on_tick: OnTick, name: str, ticked: Ticked) -> None:
        """Calls the user's `on_tick`, whose errors end no ticks."""
        try:
            if kind := undone(on_tick(name, ticked)):
                _log.error("on_tick returned an unfinished %s: its work is not done", kind)
        except BaseException as error:
            if is_interrupt(error):
                raise
            log_error(_log, error, "topology %s was ticked, and on_tick has raised: %s", name, said_by(error))

    @staticmethod
    def pace() -> Pace:
        """Returns the pauses of the loop of a ticker."""
        return Pace(_log, "no ticks for now", 0.1, _LONGEST_PAUSE)


class Ticker:
    """Ticks topologies of a store when they are due, sleeping in between.

    names: the topologies; None ticks all, including later ones.
    on_tick: a function that gets each tick with an effect.
    hooks: without hooks, rows do not wait through a downtime, and trees expire without a place.
    If the store is away, misconfigured or refuses a command, the ticker logs that and waits for it.
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
        """Runs one round, which ends early if `stop` is set; returns seconds until the next one.

        Raises StoreUnavailable, StoreMisconfigured and StoreError.
        """
        return self.store.run(self._schedule.round(stopped))

    def run(self, stop: threading.Event) -> None:
        """Ticks until `stop` is set; while the store is away, the end takes up to its time-out."""
        loops.run(stop, lambda: self.step(stop.is_set), self._schedule.pace(), first=0)
