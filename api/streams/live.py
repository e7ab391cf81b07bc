"""The beat, once a second: the history is written, and the watchers get the changes.

However many streams there are, a topology is read once a second and its events are encoded once.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from itertools import pairwise
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from acker.errors import AckerError, StoreMisconfigured, StoreUnavailable, UnknownTopology
from acker.inspect.topology import history
from acker.inspect.topology.health import Health
from acker.inspect.topology.history import Reading
from acker.inspect.trees import failures
from acker.inspect.trees.failure import Failure
from acker.inspect.trees.failures import Numbers
from acker.ledger import async_ledger
from acker.ledger.async_ledger import AsyncLedger
from acker.store.loops import Pace, run_async
from api.problems import Refused
from api.service.service import Service
from api.streams import events
from api.streams.events import Frame

SINGLE = 20
"""Most outcomes that are reported one by one in a second."""
LOOK_SECONDS = 5.0
"""Seconds between two looks at the health of a topology."""
_AFTER_SECOND = 0.1
"""Seconds after each full one of the store's clock at which a reading is taken, away from its edge."""
_QUEUE = 32

log = logging.getLogger(__name__)


class Subscriber:
    """A stream: what it has still to be sent. One that does not keep up is ended, and comes again."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Frame | None] = asyncio.Queue(_QUEUE)

    def send(self, frame: Frame | None) -> bool:
        """Hands it some events, or None as the last; whether it keeps up."""
        try:
            self.queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.end()
            return False
        return True

    def end(self) -> None:
        """Ends it, whatever it has still to be sent."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class CountedStream(StreamingResponse):
    """Server-sent events, as long as its client has a place for them.

    Raises Refused, or the error of the store, before it begins: its first events are there by then.
    """

    def __init__(self, live: "Live", client: str, events: AsyncGenerator[bytes]) -> None:
        super().__init__(
            events,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._live, self._client, self._events = live, client, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        with self._live.place(self._client):
            async with aclosing(self._events):
                first = await anext(self._events, None)
                if first is not None:
                    self.body_iterator = _from_first(first, self._events)
                await super().__call__(scope, receive, send)


async def _from_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


class _Watched:
    """A watched topology: its watchers, and the reading that they have."""

    def __init__(self) -> None:
        self.subscribers: set[Subscriber] = set()
        self.last: Reading | None = None
        self.numbers: dict[int, Numbers] | None = None


class Live:
    """The beat of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._turns = asyncio.Semaphore(service.at_once)
        self._troubles: dict[str, str] = {}
        self._offset = 0.0
        self._watched: dict[str, _Watched] = {}
        self._places: Counter[str] = Counter()
        self._looked: dict[str, float] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if the service stops, so that no request waits any longer."""
        return self._closed

    @property
    def streams(self) -> int:
        """The number of streams and of requests that wait for outcomes."""
        return self._places.total()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """Counts a stream of a client, or a request of it that waits, meanwhile.

        Raises Refused where there is no room for it: in the step that takes the place, however many come at
        once.
        """
        settings = self._service.settings
        if self.streams >= settings.streams:
            raise _too_many(f"the service has {settings.streams} event streams, its most")
        if self._places[client] >= settings.streams_of_client:
            raise _too_many(f"this client has {settings.streams_of_client} event streams, its most")
        self._places[client] += 1
        try:
            yield
        finally:
            self._places[client] -= 1
            self._places += Counter()  # leaves out places that have none

    async def subscribe(self, ledger: AsyncLedger) -> Subscriber:
        """A new stream of a topology's events from now on."""
        subscriber = Subscriber()
        if self._closed:
            subscriber.end()
            return subscriber
        watched = self._watched.setdefault(ledger.config.name, _Watched())
        watched.subscribers.add(subscriber)
        try:
            await self._begin(ledger, watched)
        except BaseException:
            self.unsubscribe(ledger.config.name, subscriber)
            raise
        return subscriber

    def unsubscribe(self, name: str, subscriber: Subscriber) -> None:
        """Forgets a stream."""
        watched = self._watched.get(name)
        if watched is not None:
            watched.subscribers.discard(subscriber)
            if not watched.subscribers:
                del self._watched[name]

    def _end_of(self, name: str) -> None:
        """Ends the streams of a topology that is gone."""
        if (watched := self._watched.pop(name, None)) is not None:
            for subscriber in watched.subscribers:
                subscriber.end()

    def close(self) -> None:
        """Ends all streams, also later ones."""
        self._closed = True
        for watched in self._watched.values():
            for subscriber in watched.subscribers:
                subscriber.end()

    async def run(self) -> None:
        """Beats until it is cancelled."""
        await run_async(None, self._step, Pace(log, "no history for now", 1.0, 1.0))

    async def _step(self) -> float:
        await self.beat()
        wait = (_AFTER_SECOND - time.time() - self._offset) % 1.0
        return wait if wait > 0.05 else wait + 1.0

    async def beat(self) -> None:
        """Takes a reading of every topology, and sends it to the watchers."""
        if self._service.settings.history:
            names = await async_ledger.names(self._service.shared)
        else:
            names = list(self._watched)
        self._troubles = {name: trouble for name, trouble in self._troubles.items() if name in names}
        self._looked = {name: at for name, at in self._looked.items() if name in names}
        for name in self._watched.keys() - set(names):
            self._end_of(name)
        visits = await asyncio.gather(*(self._visit(name) for name in names), return_exceptions=True)
        for failure in visits:
            if failure is not None:
                raise failure

    async def _visit(self, name: str) -> None:
        async with self._turns:
            try:
                ledger = await self._service.ledger(name, background=True)
                if self._service.settings.history:
                    at = await ledger.run(history.record(ledger.core))
                    if at is not None:
                        self._offset = at / 1000 - time.time()
                    await self._look_after(ledger)
                if name in self._watched:
                    await self._tell(ledger, self._watched[name])
            except (StoreUnavailable, StoreMisconfigured):
                raise
            except UnknownTopology:  # removed since its name was read
                self._end_of(name)
            except Exception as error:  # noqa: BLE001 - one topology must not keep the others without history
                trouble = str(error) if isinstance(error, AckerError) else repr(error)
                if self._troubles.get(name) != trouble:
                    self._troubles[name] = trouble
                    log.error("topology %s has no history: %.1000s", name, trouble)
            else:
                self._troubles.pop(name, None)

    async def _look_after(self, ledger: AsyncLedger) -> None:
        """Notes since when a topology has its troubles, every few seconds."""
        name, now = ledger.config.name, time.monotonic()
        if now - self._looked.get(name, 0.0) >= LOOK_SECONDS:
            self._looked[name] = now
            await self._service.health(ledger, note=True)

    async def health(self, ledger: AsyncLedger) -> Health:
        """Returns the health of a topology, as the last reading has it."""
        return await self._service.health(ledger, most_age=LOOK_SECONDS)

    async def _tell(self, ledger: AsyncLedger, watched: _Watched) -> None:
        await self._begin(ledger, watched)
        if watched.last is None or watched.numbers is None:
            return
        readings = await ledger.run(history.after(ledger.core, watched.last.at, most=_QUEUE))
        if not readings:
            return
        trees, now = await ledger.run(failures.since(ledger.core, watched.numbers, SINGLE))
        if any(now[shard].ended < old.ended for shard, old in watched.numbers.items() if shard in now):
            self._end_of(ledger.config.name)  # the topology was removed, and is another one now
            return
        counts = Counter(tree.status for tree in trees)
        rest = {
            status: sum(
                getattr(now[shard], status) - getattr(old, status) for shard, old in watched.numbers.items()
            )
            - counts[status]
            for status in ("failed", "expired")
        }
        found = await self.health(ledger)
        parts = frames(found, [watched.last, *readings], trees, **rest)
        watched.last, watched.numbers = readings[-1], now
        for subscriber in list(watched.subscribers):
            if not all(subscriber.send(part) for part in parts):
                watched.subscribers.discard(subscriber)

    @staticmethod
    async def _begin(ledger: AsyncLedger, watched: _Watched) -> None:
        """Notes from where on watchers read, unless that is known."""
        if watched.last is None or watched.numbers is None:
            numbers = await ledger.run(failures.numbers(ledger.core))
            latest = await ledger.run(history.latest(ledger.core, 1))
            if watched.last is None and latest:
                watched.last, watched.numbers = latest[0], numbers


def frames(
    health: Health, readings: Sequence[Reading], trees: Sequence[Failure], failed: int, expired: int
) -> list[Frame]:
    """The events of the readings after the first, and of what ended meanwhile: trees, and how many more."""
    samples = [Frame(after.at, events.sample(health, before, after)) for before, after in pairwise(readings)]
    last = samples.pop()
    # The sample comes last: its id says that all before it was sent.
    ended = events.outcomes(trees) + events.summary(last.at, failed, expired)
    return [*samples, Frame(last.at, ended + last.data)]


def _too_many(detail: str) -> Refused:
    return Refused("too-many-streams", detail, {"Retry-After": "5"})


def _live(request: Request) -> Live:
    live = request.app.state.live
    assert isinstance(live, Live)
    return live


LiveDep = Annotated[Live, Depends(_live)]
