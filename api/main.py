"""The service put together."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware

from api import openapi, problems
from api.asgi.access import Access
from api.asgi.dashboard import Dashboard
from api.asgi.head import Head
from api.asgi.logs import Requests
from api.asgi.prefix import Prefix
from api.background import background
from api.routes import (
    activity,
    dead_letters,
    drpc,
    events,
    graph,
    lines,
    outcomes,
    places,
    records,
    stats,
    topologies,
    trees,
)
from api.routes.clients import external, messages, spouts
from api.routes.service import access, health, metrics
from api.service.service import Service
from api.settings.settings import Settings
from api.streams.live import Live

PREFIX = "/api/v1"


def create_app(settings: Settings) -> FastAPI:
    """The app of a service with these settings; it connects when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Service(settings) as service:
            app.state.service, app.state.live = service, Live(service)
            with _ending_streams(app.state.live):
                async with background.running(service, app.state.live):
                    yield

    app = FastAPI(
        title="acker",
        version=_version(),
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=openapi.operation_id,
        redirect_slashes=False,
    )
    routes = APIRouter(prefix=PREFIX, dependencies=[Depends(problems.check_query)])
    for part in (
        access, topologies, graph, stats, trees, places, lines, outcomes, records, dead_letters, messages,
        spouts, external, drpc, events, activity,
    ):  # fmt: skip
        routes.include_router(part.router)
    app.include_router(routes)
    app.include_router(health.router)
    app.include_router(metrics.router)
    app.router.default = Dashboard()
    problems.handle(app)
    app.add_middleware(Head)
    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)
    app.add_middleware(Access, settings=settings)
    app.add_middleware(Requests)
    app.add_middleware(Prefix)
    app.openapi = lambda: openapi.build(app, tokens=bool(settings.access))  # type: ignore[method-assign]
    return app


def freeze() -> None:
    """Has the garbage collector pass over all that is there now, for good: for programs that are set up.

    These are some 100,000 objects of modules and schemas. To look at each of them, as it does now and then,
    takes 50 ms, in which nobody is answered.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def _ending_streams(live: Live) -> Iterator[None]:
    """Ends event streams when the process is asked to stop: before the lifespan ends, requests must."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(live.close)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    if threading.current_thread() is threading.main_thread():
        for name in (signal.SIGINT, signal.SIGTERM):
            before[name] = signal.signal(name, handle)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _version() -> str:
    try:
        return version("acker")
    except PackageNotFoundError:
        return "0"
