"""Topologies: where collectors come from. A topology is one ledger namespace with one configuration."""

import logging
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, Unpack

from acker.collectors.bolt import BasicBolt, Bolt, Collector, Errors
from acker.collectors.outbox import Outbox
from acker.collectors.spout import Spout
from acker.collectors.tuples import Owner
from acker.errors import AckerError
from acker.inspect import steps
from acker.inspect.steps import Step
from acker.ledger import config
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.config import Settings
from acker.ledger.core import Core
from acker.ledger.ids import check_id
from acker.ledger.submissions import Ticked
from acker.store.client import Store

if TYPE_CHECKING:
    from acker.inspect.trees import Tree

P = ParamSpec("P")
R = TypeVar("R")

LONGEST_LINGER = 60.0

log = logging.getLogger("acker")


class Topology:
    """A topology at the store behind `url`; its configuration is stored at first use.

    url: see `acker.store.address`. settings (ackers, message_timeout ...): see
    `acker.ledger.config.TopologyConfig`; None takes what is stored, or the default.
    timeout: seconds until StoreUnavailable. linger: seconds for which spouts and bolts gather what they send,
    0 to 60 and at most half the message timeout. cluster: a plain URL is of a node of a Redis Cluster.

    For any thread. Pickles as settings: what another process does with it is its own. A forked child starts
    with empty buffers, and sends what is left when it ends. Not where a signal ends it, as the end of
    `with multiprocessing.Pool()` does to its workers: let their function flush, or close and join the pool.
    Raises ValidationError, TopologyConfigError, StoreUnavailable and StoreMisconfigured.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        timeout: float = 10.0,
        linger: float = 0.005,
        cluster: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        config.check_number(linger, "linger", 0.0, LONGEST_LINGER, float)
        ledger = open_ledger(Store(url, timeout=timeout, cluster=cluster), name, **settings)
        self._set_up(ledger, linger)

    def _set_up(self, ledger: Ledger, linger: float) -> None:
        self._ledger = ledger
        self._linger = linger
        self._outbox = Outbox(ledger, min(linger, ledger.config.message_timeout / 2))
        # Its thread sends what is left when nobody holds the topology any more.
        weakref.finalize(self, self._outbox.end).atexit = False

    def __repr__(self) -> str:
        return f"Topology({self._ledger.store!r}, {self.name!r})"

    def __reduce__(self) -> tuple[Callable[..., "Topology"], tuple[Store, config.TopologyConfig, float]]:
        return _reopen, (self._ledger.store, self.config, self._linger)

    @property
    def name(self) -> str:
        """The topology's name."""
        return self.config.name

    @property
    def config(self) -> config.TopologyConfig:
        """The configuration, as stored."""
        return self._ledger.config

    @property
    def ledger(self) -> Ledger:
        """The ledger: vectors of ids, sent at once."""
        return self._ledger

    @property
    def outbox(self) -> Outbox:
        """What spouts and bolts have buffered."""
        return self._outbox

    @property
    def owner(self) -> Owner:
        """What its tuples are marked with."""
        return self._ledger.store.url, self.config.name

    def spout(self, name: str, max_spout_pending: int | None = None) -> Spout:
        """A new spout, which is first told all outcomes of its name that were not confirmed.

        max_spout_pending: most trees without outcome (1 to 10^9), None for no limit but the high-water mark.
        Raises ValidationError, StoreUnavailable, and AckerError where the topology has 64 other spouts.
        """
        spout = Spout(self, name, max_spout_pending)
        if self.config.ackers:
            spout.register()
        return spout

    def bolt(self, name: str) -> Bolt:
        """A bolt. Raises ValidationError for the name."""
        return Bolt(self, name)

    def basic_bolt(
        self, name: str, *, catch: Errors = ()
    ) -> Callable[[Callable[Concatenate[Collector, P], R]], BasicBolt[P, R]]:
        """Decorates a function `(collector, *args)` to a bolt that is called as `(tuple, *args)`.

        It anchors what it emits, acks when the function returns and fails when it raises: see `BasicBolt`.
        """
        bolt = self.bolt(name)

        def decorate(function: Callable[Concatenate[Collector, P], R]) -> BasicBolt[P, R]:
            return bolt.basic(function, catch=catch)

        return decorate

    def flush(self) -> None:
        """Sends all that spouts and bolts have buffered; the store has it when this returns.

        Raises StoreUnavailable or StoreError. Nothing is lost then: what was not answered is kept, sent again
        by itself and by the next flush, and takes effect once. UnreadableRecord names slabs that were passed
        over, when all else was sent.
        """
        self._outbox.flush()

    def tick(self, force: bool = False) -> Ticked:
        """Rotates the buckets whose time has come (`force`: all), drains what expired: the ticker's work."""
        return self._ledger.tick(force)

    def counters(self) -> dict[str, int]:
        """The exact counts over all shards: see `Ledger.counters`."""
        return self._ledger.counters()

    def steps(self) -> list[Step]:
        """The steps that Spark jobs take on the topology, the one seen last first.

        See `acker.inspect.steps`.
        """
        return self._ledger.run(steps.steps(self._ledger.core))

    def tree(self, anchor: int) -> "Tree | None":
        """What the store knows of the tree of `anchor`; None where it knows nothing (any more)."""
        check_id(anchor, "anchor")
        if not self.config.ackers:
            return None
        from acker.inspect import pages

        return self._ledger.run(pages.tree(self._ledger.core, anchor))

    def restore(self) -> None:
        """Stores the configuration and the spouts again, in a store that lost everything."""
        try:
            self._ledger.run(self._ledger.core.restore())
        except AckerError as error:
            log.error("acker: topology %r could not be restored: %s", self.name, error)

    def close(self) -> None:
        """Flushes, and ends the topology's thread. Its spouts and bolts can send nothing after that.

        Raises what `flush` does; the topology stays open where something could not be sent. A closed one may
        be closed again.
        """
        if self._outbox.closed:
            return
        try:
            self._outbox.flush()
        finally:
            if not self._outbox.unsent:
                self._outbox.closed = True
                self._outbox.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except AckerError as unsent:
            if error is None:
                raise
            # The error that ended the block says more; what is unsent goes by itself, or is logged at exit.
            log.warning("acker: topology %r could not be closed: %s", self.name, unsent)


def _reopen(store: Store, stored: config.TopologyConfig, linger: float) -> Topology:
    topology = Topology.__new__(Topology)
    topology._set_up(Ledger(store, Core(stored)), linger)
    return topology
