"""Callers of functions: a service has one client for each function that it is asked to call."""

import asyncio

from acker.drpc.calling.client import Client
from acker.drpc.registry import MOST, Description
from acker.ledger.client import open_ledger
from acker.store.client import Store
from api.settings.settings import Settings


class Callers:
    """The clients of functions. Their calls are written, and their answers awaited, by threads of their own.

    A client has no thread while nobody waits for an answer of its function.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: Store | None = None
        self._clients: dict[str, Client] = {}

    async def client(self, function: Description) -> Client:
        """The client of a function as it is registered now."""
        client = self._clients.get(function.name)
        if client is None or client.function != function:
            client = await asyncio.to_thread(self._open, function)
            if len(self._clients) >= MOST:
                self._clients.pop(next(iter(self._clients)))
            self._clients[function.name] = client
        return client

    def _open(self, function: Description) -> Client:
        if self._store is None:
            self._store = Store(
                self._settings.url.get_secret_value(),
                timeout=self._settings.timeout,
                cluster=self._settings.cluster,
            )
        return Client(open_ledger(self._store, function.topology, create=False), function.name)
