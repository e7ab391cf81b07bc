"""A running service: its store, its ledgers, and the tasks beside the requests."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Self, TypeVar

from fastapi import Depends, Path
from starlette.requests import Request as HTTPRequest

from acker.errors import StoreUnavailable, UnknownSpout, UnknownTopology
from acker.inspect.topology import health as rules
from acker.inspect.topology.health import Health
from acker.inspect.topology.history import Reading, Window
from acker.inspect.topology.totals import Totals
from acker.inspect.topology.unreadable_topology import Damaged, damaged, unreachable
from acker.ledger import async_ledger
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.steps.registration import AtWork
from acker.store import keys
from acker.store.async_client import AsyncStore
from acker.store.operation import Request
from api.fields import Name
from api.service.functions import Callers
from api.service.shared_flights import SharedFlights
from api.settings.settings import Settings

T = TypeVar("T")
_AT_ONCE = 8
SHARING = 64
"""Topologies that are read at once where they share flights."""
_AWAY_SECONDS = 2.0
"""Seconds for the reading of a topology, once a server of the store has not answered."""
_HISTORIES = 8
"""Topologies whose history is kept in memory once it is looked at: at most some 8 MB each."""


class Service:
    """The service of one store."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = AsyncStore(
            settings.url.get_secret_value(), timeout=settings.timeout, cluster=settings.cluster
        )
        self.own_store = AsyncStore(
            settings.url.get_secret_value(), timeout=settings.timeout, cluster=settings.cluster
        )
        """The same store by connections that no request of a client takes: for ticks."""
        self.shared = SharedFlights(
            settings.url.get_secret_value(), timeout=settings.timeout, cluster=settings.cluster
        )
        """And for history, health and metrics, which read all topologies side by side."""
        self.callers = Callers(settings)
        self._ledgers: dict[tuple[str, bool], AsyncLedger] = {}
        self._at_work: dict[str, AtWork] = {}
        self._health: dict[str, tuple[float, Health]] = {}
        self._histories: OrderedDict[str, dict[Window, list[Reading]]] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.aclose()
        await self.own_store.aclose()
        await self.shared.aclose()

    @property
    def at_once(self) -> int:
        """Topologies that are read at once by what the service does by itself."""
        return SHARING if self.shared.shares else _AT_ONCE

    async def ping(self) -> None:
        """Returns when the store answers; StoreUnavailable where it does not."""
        await self.own_store.send([Request(keys.TOPOLOGIES, ["PING"])])

    def history(self, name: str) -> dict[Window, list[Reading]]:
        """Readings of a topology's history, for `history.window` to go on from."""
        readings = self._histories[name] = self._histories.pop(name, {})
        if len(self._histories) > _HISTORIES:
            self._histories.popitem(last=False)
        return readings

    async def health(
        self, ledger: AsyncLedger, read: Totals | None = None, *, most_age: float = 1.0, note: bool = False
    ) -> Health:
        """Returns the health of a topology.

        Args:
            ledger: The ledger of the topology.
            read: The totals of the topology, if they are known.
            most_age: Seconds; a newer answer is used again.
            note: True reads now, and stores the time since which each trouble exists.
        """
        name = ledger.config.name
        at, health = self._health.get(name, (0.0, None))
        if health is None or note or time.monotonic() - at > most_age:
            health = await ledger.run(rules.health(ledger.core, read, note=note))
            self._health[name] = time.monotonic(), health
        return health

    def at_work(self, name: str) -> AtWork:
        """The steps that are known by their messages to this service."""
        return self._at_work.setdefault(name, AtWork(program="REST"))

    def forget_health(self, name: str) -> None:
        """Has the health of a topology be looked at anew."""
        self._health.pop(name, None)

    async def of_each(
        self,
        names: Iterable[str],
        read: Callable[[AsyncLedger], Awaitable[T]],
        *,
        background: bool = False,
        partly: bool = False,
    ) -> list[T | Damaged]:
        """Reads each topology that is there, eight at a time; Damaged where one cannot be read.

        Args:
            names: The topologies.
            read: Reads one.
            background: As of `ledger`.
            partly: True if a topology whose server does not answer is Damaged; the first eight are not all.

        Raises:
            StoreUnavailable: The store does not answer, or a server of it.
        """
        turns = asyncio.Semaphore(self.at_once if background else _AT_ONCE)
        answered = away = 0

        async def read_one(name: str) -> T | Damaged | None:
            nonlocal answered, away
            async with turns:
                try:
                    async with asyncio.timeout(_AWAY_SECONDS if away else None):
                        outcome = await read(await self.ledger(name, background=background))
                    answered += 1
                    return outcome
                except UnknownTopology:
                    return None
                except (StoreUnavailable, TimeoutError) as error:
                    away += 1
                    if not partly or (away >= _AT_ONCE and not answered):
                        raise
                    return unreachable(name, error)
                except Exception as error:  # noqa: BLE001 - it must not keep the others from being seen
                    return damaged(name, error)

        return [outcome for outcome in await asyncio.gather(*map(read_one, names)) if outcome is not None]

    async def ledger(self, name: str, *, background: bool = False) -> AsyncLedger:
        """The ledger of a topology, as stored now; UnknownTopology where there is none.

        background: True for what the service does by itself, over its own connections.
        """
        try:
            stored = await async_ledger.open_ledger(
                self.shared if background else self.store, name, create=False
            )
        except UnknownTopology:
            for place in (False, True):
                self._ledgers.pop((name, place), None)
            self._at_work.pop(name, None)
            self._health.pop(name, None)
            raise
        ledger = self._ledgers.get((name, background))
        if ledger is None or ledger.config != stored.config:
            ledger = self._ledgers[name, background] = stored
        ledger.core.spouts = stored.core.spouts
        return ledger


def _service(request: HTTPRequest) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


ServiceDep = Annotated[Service, Depends(_service)]


async def _ledger(service: ServiceDep, topology: Annotated[Name, Path()]) -> AsyncLedger:
    return await service.ledger(topology)


def check_spout(ledger: AsyncLedger, spout: str | None) -> None:
    """Raises UnknownSpout for the name of a spout that the topology does not have."""
    if spout is not None and spout not in ledger.core.spouts:
        raise UnknownSpout(f"topology {ledger.config.name!r} has no spout {spout!r}")


LedgerDep = Annotated[AsyncLedger, Depends(_ledger)]
"""The ledger of the topology that the path names."""
