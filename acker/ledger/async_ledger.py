"""The ledger of a service on an event loop: the asyncio twin of `acker.ledger.client`."""

from typing import TypeVar, Unpack

from acker.ledger.calls import core as operations
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Submission
from acker.ledger.calls.core import Core
from acker.ledger.settings import config, topologies
from acker.ledger.settings.config import Settings
from acker.store.async_client import AsyncStore
from acker.store.operation import Operation

T = TypeVar("T")


class AsyncLedger:
    """The ledger of one topology for a service, which runs operations on it."""

    def __init__(self, store: AsyncStore, core: Core) -> None:
        self.store = store
        self.core = core

    @property
    def config(self) -> config.TopologyConfig:
        """The topology's configuration."""
        return self.core.config

    async def run(self, operation: Operation[T]) -> T:
        """Runs an operation on the store."""
        return await self.store.run(operation)

    async def send(self, submission: Submission[T]) -> T:
        """Sends a submission; after StoreUnavailable the same one can be sent again."""
        return await self.run(idempotence.send(self.core, submission))


async def open_ledger(
    store: AsyncStore,
    name: str,
    *,
    create: bool = True,
    **settings: Unpack[Settings],
) -> AsyncLedger:
    """Opens the ledger of a topology, as `acker.ledger.client.open_ledger` does."""
    return AsyncLedger(store, await store.run(operations.open_topology(name, settings, create)))


async def names(store: AsyncStore) -> list[str]:
    """The names of all topologies, sorted."""
    return await store.run(topologies.names())
