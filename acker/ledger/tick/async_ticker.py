"""The ticker on an event loop."""

import asyncio
import contextlib
from collections.abc import Iterable

from acker.errors import StoreError, StoreMisconfigured, StoreUnavailable
from acker.ledger.tick.ticker import Hooks, OnTick, Schedule
from acker.store.async_client import AsyncStore


class AsyncTicker:
    """Ticks topologies of a store when they are due: `acker.ledger.tick.ticker.Ticker` on an event loop."""

    def __init__(
        self,
        store: AsyncStore,
        names: Iterable[str] | None = None,
        *,
        on_tick: OnTick | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.store = store
        self._schedule = Schedule(names, on_tick, hooks)

    async def step(self) -> float:
        """One round; returns the seconds after which the next one is due."""
        try:
            return await self.store.run(self._schedule.round())
        except (StoreUnavailable, StoreMisconfigured, StoreError) as error:
            return self._schedule.failed(error)

    async def run(self, stop: asyncio.Event) -> None:
        """Ticks until `stop` is set or the task is cancelled."""
        while not stop.is_set():
            wait = await self.step()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait)
