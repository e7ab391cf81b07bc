"""Runs beside the requests: the beat, the ticker, and who settles for spouts, lines and functions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from acker.drpc.answer_all import Answering
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger.loops import Threads
from acker.ledger.tick.async_ticker import AsyncTicker
from acker.lines.coordinate_all import Coordinating
from acker.store.client import Store
from acker.streams.spouts.settler import Settler
from api.service.service import Service
from api.streams.live import Live

_ATTEMPTS = 20
_log = logging.getLogger(__name__)


@asynccontextmanager
async def running(service: Service, live: Live) -> AsyncIterator[None]:
    """Runs all of it meanwhile."""
    settings = service.settings
    tasks: list[asyncio.Task[None]] = [asyncio.create_task(live.run(), name="live")]
    threads = Threads()
    if settings.ticker:
        ticker = AsyncTicker(service.own_store, hooks=HOOKS)
        tasks.append(asyncio.create_task(ticker.run(asyncio.Event()), name="ticker"))
        # These are made for threads; they have connections of their own.
        store = Store(settings.url.get_secret_value(), timeout=settings.timeout, cluster=settings.cluster)
        for one in (Coordinating(store), Settler(store), Answering(store)):
            threads.start(one.run, threads.stop)
    if settings.otel:
        from api.background.otel import Exporter, otlp

        tasks.append(asyncio.create_task(Exporter(service, otlp()).run(), name="exporter"))
    try:
        yield
    finally:
        await asyncio.gather(asyncio.to_thread(threads.end), _end(tasks))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancels tasks until they have ended: one that is just connecting may pass over being cancelled."""
    for _ in range(_ATTEMPTS):
        for task in tasks:
            task.cancel()
        _, left = await asyncio.wait(tasks, timeout=0.5)
        if not left:
            break
    for task in tasks:
        if not task.done():
            _log.error("%s does not end", task.get_name())
        elif not task.cancelled() and task.exception() is not None:
            _log.error("%s ended", task.get_name(), exc_info=task.exception())
