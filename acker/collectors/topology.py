"""Topologies: where collectors come from. A topology is one ledger namespace with one configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from acker.collectors.bolt import BasicBolt, Bolt, Collector, Errors
from acker.collectors.session import Session
from acker.collectors.spout import Spout
from acker.errors import needing_pyarrow
from acker.ledger.calls.calls import Ticked
from acker.ledger.client import Ledger
from acker.ledger.ids import check_id
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.ledger.steps.step_totals import StepTotals
from acker.ledger.trees import trees

if TYPE_CHECKING:
    from acker.drpc.client import Client
    from acker.inspect.locate.drops import Drop
    from acker.inspect.locate.stuck import StuckPage
    from acker.inspect.locate.why import Why
    from acker.inspect.trees.find_record import Found
    from acker.ledger.trees.trees import Tree

P = ParamSpec("P")
R = TypeVar("R")


class Topology(Session):
    """A topology at the store behind `url`; its configuration is stored at first use.

    url: see `acker.store.address`. settings (ackers, message_timeout ...): see
    `acker.ledger.settings.config.TopologyConfig`; None takes what is stored, or the default.
    timeout: seconds until StoreUnavailable. linger: seconds for which spouts and bolts gather what they send,
    0 to 60 and at most half the message timeout; None: nothing is sent but by `flush`, as where an ack is to
    follow a transaction elsewhere (docs/collectors.md). cluster: a plain URL is of a node of a Redis Cluster.

    For any thread. Pickles as settings: what another process does with it is its own. A forked child starts
    with empty buffers, and sends what is left when it ends. Not where a signal ends it, as the end of
    `with multiprocessing.Pool()` does to its workers: let their function flush, or close and join the pool.
    Raises ValidationError, TopologyConfigError, StoreUnavailable and StoreMisconfigured.
    """

    def spout(self, name: str, max_spout_pending: int | None = None) -> Spout:
        """A new spout, which first gets all outcomes of its name that were not confirmed.

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

    @property
    def ledger(self) -> Ledger:
        """The ledger of the topology: what lines and functions are made with."""
        return self._ledger

    def drpc(self, function: str) -> "Client":
        """Who calls a function of the topology: see `acker.drpc`.

        Raises UnknownFunction, and AckerError where pyarrow is not installed: requests are rows.
        """
        with needing_pyarrow("to call functions"):
            from acker.drpc.client import Client
        return Client(self._ledger, function)

    def tick(self, force: bool = False) -> Ticked:
        """Rotates the buckets whose time has come (`force`: all), drains what expired: the ticker's work."""
        return self._ledger.tick(force)

    def remove(self, force: bool = False) -> int:
        """Removes the topology with all that it holds: see `acker.inspect.operate.removal.remove`.

        Returns how many trees went. Raises TopologyInUse where there are any, unless `force`.
        """
        from acker.inspect.operate import removal

        return self._ledger.run(removal.remove(self.config.name, force=force))

    def remove_spout(self, name: str) -> None:
        """Removes a spout that owes nothing: see `acker.inspect.operate.removal.remove_spout`.

        Raises ValidationError where there is none, and SpoutInUse.
        """
        from acker.inspect.operate import removal

        self._ledger.run(removal.remove_spout(self._ledger.core, name))

    def counters(self) -> dict[str, int]:
        """The exact counts over all shards: see `Ledger.counters`."""
        return self._ledger.counters()

    def steps(self) -> list[Step]:
        """The steps at work on the topology, the one seen last first.

        See `acker.ledger.steps.step_registry`.
        """
        return self._ledger.run(step_registry.steps(self._ledger.core))

    def step_totals(self) -> list[StepTotals]:
        """What each step has done since the topology was made, by name.

        See `acker.ledger.steps.step_totals`.
        """
        return self._ledger.run(step_totals.totals(self._ledger.core))

    def tree(self, anchor: int) -> "Tree | None":
        """What the store knows of the tree of `anchor`; None where it knows nothing (any more)."""
        check_id(anchor, "anchor")
        if not self.config.ackers:
            return None

        return self._ledger.run(trees.tree(self._ledger.core, anchor))

    def find(self, message_id: bytes | str, *, cursor: str | None = None) -> "Found":
        """The records with a message id, as far as they are known, in flight, ended or given up, by spout.

        A call looks at a bounded piece; `Found.cursor` is for the next. See
        `acker.inspect.trees.find_record`, whose `find` also runs on an event loop, by `AsyncStore.run`.
        Raises ValidationError, and AckerError where pyarrow is not installed: dead letters are rows.
        """
        with needing_pyarrow("to find records"):
            from acker.inspect.trees import find_record
        return self._ledger.run(find_record.find(self._ledger.core, message_id, cursor=cursor))

    def why(self, anchor: int, *, rows: bool = False, cursor: str | None = None) -> "Why":
        """Where the tuples of the tree of `anchor` are in streams, who has taken them, and if that is all.

        rows: also counts its rows there, which reads the segments. cursor: that of the answer before, where
        one call did not look at all there is. See `acker.inspect.locate.why`. Raises ValidationError, and
        AckerError where pyarrow is not installed.
        """
        with needing_pyarrow("to look into streams"):
            from acker.inspect.locate.why import why
        return self._ledger.run(why(self._ledger.core, anchor, rows=rows, cursor=cursor))

    def stuck(self, *, cursor: str | None = None) -> "StuckPage":
        """What each subscription of each stream has not acked: who has taken it, and how much nobody has.

        cursor: that of the page before. See `acker.inspect.locate.stuck`. Raises ValidationError, and
        AckerError where pyarrow is not installed.
        """
        with needing_pyarrow("to look into streams"):
            from acker.inspect.locate.stuck import stuck
        return self._ledger.run(stuck(self._ledger.core, cursor=cursor))

    def drops(self) -> "list[Drop]":
        """What streams have dropped with rows that nobody may have acked, the latest first, 1,000 at most.

        See `acker.inspect.locate.drops`. Raises AckerError where pyarrow is not installed.
        """
        with needing_pyarrow("to look into streams"):
            from acker.inspect.locate.drops import drops
        return self._ledger.run(drops(self._ledger.core))
