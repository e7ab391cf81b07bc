"""The ledger of a service on an event loop: the same operations, and what it looks at."""

from typing import TypeVar, Unpack

from acker.inspect.operate.removal import remove, remove_spout
from acker.inspect.topology import totals as all_totals
from acker.inspect.topology.totals import Totals
from acker.inspect.trees import pages
from acker.inspect.trees.pages import TreesPage
from acker.ledger.calls import core as operations
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Failed, Submission, Ticked
from acker.ledger.calls.core import Core
from acker.ledger.ids import IdsLike, as_ids
from acker.ledger.outcomes import counts, latency_histogram
from acker.ledger.settings import config
from acker.ledger.settings.config import Settings
from acker.ledger.settings.topologies import names as topology_names
from acker.ledger.slabs import causes
from acker.ledger.tick import tick
from acker.ledger.trees import trees
from acker.ledger.trees.buckets import Bucket
from acker.ledger.trees.trees import State, Tree
from acker.store.async_client import AsyncStore
from acker.store.operation import Operation

T = TypeVar("T")


class AsyncLedger:
    """The ledger of one topology for a service: its reads, the tick, and what an operator does by hand.

    Every method is that of the same name in `acker.ledger.client`, `acker.inspect.trees.pages`,
    `acker.inspect.topology.totals` or `acker.inspect.operate.removal`, and raises what that raises.
    """

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
        return await self.store.run(idempotence.send(self.core, submission))

    async def tree(self, anchor: int) -> Tree | None:
        """The tree of an anchor; None where the ledger does not know it (any more)."""
        return await self.run(trees.tree(self.core, anchor))

    async def trees(
        self,
        *,
        bucket: Bucket | None = None,
        spout: str | None = None,
        shard: int | None = None,
        state: State | None = None,
        older_than: float = 0.0,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TreesPage:
        """A page of the trees in flight, as `acker.inspect.trees.pages.trees` says."""
        return await self.run(
            pages.trees(
                self.core,
                bucket=bucket,
                spout=spout,
                shard=shard,
                state=state,
                older_than=older_than,
                limit=limit,
                cursor=cursor,
            )
        )

    async def find(
        self, message_id: bytes | str, *, limit: int = 100, cursor: str | None = None
    ) -> TreesPage:
        """A page of the trees with a message id, as `acker.inspect.trees.pages.find` says."""
        return await self.run(pages.find(self.core, message_id, limit=limit, cursor=cursor))

    async def totals(self) -> Totals:
        """How full each shard and bucket is, how old, and what its counters say."""
        return await self.run(all_totals.totals(self.core))

    async def counters(self) -> dict[str, int]:
        """The exact counts over all shards since the topology was made."""
        return await self.run(counts.counters(self.core))

    async def latency(self, *fractions: float) -> list[float | None]:
        """Percentiles of the complete latency of acked trees, in seconds: 0.5 is the median."""
        found = await self.run(counts.latencies(self.core))
        return [latency_histogram.percentile(found, fraction) for fraction in fractions]

    async def tick(self, force: bool = False) -> Ticked:
        """Rotates the buckets of shards whose time has come (`force`: of all), and drains what expired."""
        return await self.run(tick.tick(self.core, force))

    async def drain(self, most: int | None = None) -> Ticked:
        """Expires what rotations set aside: all of it, or about `most` trees."""
        return await self.run(tick.drain(self.core, most))

    async def remove(self, force: bool = False) -> int:
        """Removes the topology with all that it holds; returns how many trees went with it."""
        return await self.run(remove(self.config.name, force=force))

    async def remove_spout(self, name: str) -> None:
        """Removes a spout that owes nothing, so that there is room for another."""
        await self.run(remove_spout(self.core, name))

    async def fail(self, anchors: IdsLike, reason: str = "", *, retry: bool = True) -> Failed:
        """Fails trees: final and at once. `reason` is at most 1 KiB. retry=False: for good."""
        encoded = causes.checked(reason, retry=retry)
        found = as_ids(anchors, "anchors")
        return await self.send(self.core.fail(found, encoded)) if self.config.ackers else Failed()

    async def reset_timeout(self, anchors: IdsLike) -> int:
        """Gives trees, and all others of their slabs, the message timeout again; returns how many slabs."""
        found = as_ids(anchors, "anchors")
        return await self.send(await self.run(self.core.resetting(found))) if self.config.ackers else 0


async def open_ledger(
    store: AsyncStore,
    name: str,
    *,
    create: bool = True,
    **settings: Unpack[Settings],
) -> AsyncLedger:
    """Opens the ledger of a topology, as `acker.ledger.client.open_ledger` does."""
    return AsyncLedger(store, await store.run(operations.open_topology(name, settings, create)))


async def topologies(store: AsyncStore) -> list[str]:
    """The names of all topologies, sorted."""
    return await store.run(topology_names())
