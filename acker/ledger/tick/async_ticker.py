"""The ticker on an event loop."""

import asyncio
from collections.abc import Iterable

from acker.ledger.tick.ticker import Hooks, OnTick, Schedule
from acker.store import loops
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
        """Runs one round, as `Ticker.step` does."""
        return await self.store.run(self._schedule.round())

    async def run(self, stop: asyncio.Event) -> None:
        """Ticks until `stop` is set or the task is cancelled."""
        await loops.run_async(stop, self.step, self._schedule.pace())
