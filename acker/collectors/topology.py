"""Topologies: they make collectors. A topology is one ledger namespace with one configuration.

Terms: a tree is all that comes of a record; an anchor is its number; a segment is a stored piece of a stream.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from acker.collectors.bolt import BasicBolt, Bolt, Collector, Errors
from acker.collectors.modes.observing import ObservedLedger, ObservingOutbox
from acker.collectors.modes.observing_spout import open_spout
from acker.collectors.session import Session
from acker.collectors.spout import Spout
from acker.errors import needing_pyarrow
from acker.inspect.trees import clocks
from acker.ledger.calls.calls import Ticked
from acker.ledger.client import Ledger
from acker.ledger.ids import check_id
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.ledger.steps.step_totals import StepTotals

if TYPE_CHECKING:
    from acker.collectors.external.blocking import BlockingExchange
    from acker.collectors.external.incoming import Incoming
    from acker.collectors.external.outgoing import Outgoing
    from acker.drpc.calling.client import Client
    from acker.inspect.locate.completion import Completion
    from acker.inspect.locate.drops import Drop
    from acker.inspect.locate.stuck import StuckPage
    from acker.inspect.locate.why import Why
    from acker.inspect.trees.find_record import Found
    from acker.ledger.trees.trees import Tree

P = ParamSpec("P")
R = TypeVar("R")


class Topology(Session):
    """A topology at a store; its configuration is stored at first use. Makes spouts and bolts.

    Any thread may use it. It pickles as its settings, so another process gets its own buffers. A forked child
    starts with empty buffers, and sends the rest when it ends, unless a signal ends it. The end of
    `with multiprocessing.Pool()` does that to its workers: let their function flush, or close and join the
    pool.

    Examples:
        >>> with Topology(URL, "shop", message_timeout=60.0) as topology:
        ...     spout, bolt = topology.spout("orders"), topology.bolt("price")
        ...     [order] = spout.emit("order-1")
        ...     bolt.ack(order)
        ...     [outcome.status for outcome in spout.outcomes(timeout=5.0)]
        ['acked']
    """

    def spout(self, name: str, max_spout_pending: int | None = None, *, observe: bool = False) -> Spout:
        """A new spout, which first gets all unconfirmed outcomes of its name.

        Args:
            name: Name of the spout.
            max_spout_pending: Most trees without an outcome (1 to 10^9); None for no limit but the high-water
                mark.
            observe: True only records: an emit neither waits nor fails for the store's sake, the spout has no
                outcomes, and its name gets `.observed` at its end (docs/collectors.md).

        Raises:
            ValidationError: An argument is not valid.
            StoreUnavailable: The store did not answer in time.
            SpoutsFull: The topology has 64 other spouts.

        Examples:
            >>> spout = topology.spout("orders", max_spout_pending=1000)
            >>> [order] = spout.emit("order-1")
            >>> spout.pending
            1
        """
        return open_spout(self, name, max_spout_pending, observe=observe)

    def bolt(self, name: str) -> Bolt:
        """A bolt.

        Args:
            name: Name of the bolt.

        Raises:
            ValidationError: The name is not valid.

        Examples:
            >>> bolt = topology.bolt("price")
            >>> [order] = spout.emit("order-1")
            >>> bolt.ack(order)
        """
        return Bolt(self, name)

    def basic_bolt(
        self, name: str, *, catch: Errors = ()
    ) -> Callable[[Callable[Concatenate[Collector, P], R]], BasicBolt[P, R]]:
        """A decorator that makes a function `(collector, *args)` a bolt, called as `(tuple, *args)`.

        The bolt anchors the function's records, acks when it returns and fails when it raises: see
        `BasicBolt`.

        Args:
            name: Name of the bolt.
            catch: Types of exceptions that fail the tuple and are not raised further.
        """
        bolt = self.bolt(name)

        def decorate(function: Callable[Concatenate[Collector, P], R]) -> BasicBolt[P, R]:
            return bolt.basic(function, catch=catch)

        return decorate

    def incoming(
        self,
        stream: str,
        *,
        subscription: str,
        step: str | None = None,
        shared: bool = False,
        linger: float | None = None,
        lost_after: float | None = None,
        downtime: float | None = None,
    ) -> "Incoming":
        """Opens the receiver of an external stream for a subscription, which is created if it is missing.

        In a topology with `observe=True` it is opened when the store is there, and never fails because of it.

        Args:
            stream: The stream's name; it becomes external where nothing was written to it.
            subscription: Its name, as of the step: each subscription has all rows.
            step: The name of the step, by default the subscription's. Processes of one step share it.
            shared: True if steps of other names may serve the subscription, too, which say so as well. Then
                each row is acked when one of the steps has worked on it.
            linger: Seconds (0.01 to 60) after which a thread sends what waits of all external streams, if no
                row is in work (docs/transports.md). None for `flush` alone.
            lost_after: Seconds of rows received after which an open segment counts as lost. None leaves it as
                it is: an hour at first.
            downtime: Seconds after which it counts as lost in any case. None leaves it: 7 days at first.

        Raises:
            StreamKindError: The stream is managed.
            ValidationError: A name or an option is out of range.
            SubscriptionInUse: A live step of another name serves the subscription. A step is live for 30
                seconds after it was opened, and for at least 20 after its last flush.
            AckerError: pyarrow is not installed.
        """
        with needing_pyarrow("to receive rows of external streams"):
            from acker.collectors.external.incoming import Incoming
            from acker.collectors.external.opening import open_incoming
            from acker.collectors.modes.observing_streams import ObservingExchange, ObservingIncoming
        exchange, given = self._external(), (stream, subscription, step, shared)
        options = dict[str, Any](linger=linger, lost_after=lost_after, downtime=downtime)
        if isinstance(exchange, ObservingExchange):
            return ObservingIncoming(exchange, *given, self.flush, **options)
        opening = open_incoming(exchange, *given, **options)
        return Incoming(exchange, self._ledger.run(opening), self.flush)

    def outgoing(
        self,
        stream: str,
        *,
        segment_rows: int = 1_000,
        linger: float | None = None,
        lost_after: float | None = None,
        downtime: float | None = None,
        most_segments: int | None = None,
        most_bytes: int | None = None,
    ) -> "Outgoing":
        """Opens the sender of an external stream; in a topology with `observe=True` as `incoming`.

        Args:
            stream: The stream's name; it becomes external where nothing was written to it.
            segment_rows: 1 to 65,536. A row that is lost costs its segment: its records are replayed.
            linger: As of `incoming`.
            lost_after: As of `incoming`.
            downtime: As of `incoming`.
            most_segments: Open segments that the stream may have; None leaves it: 1,000,000 at first.
            most_bytes: Bytes of their vectors; None leaves it: 4 GiB at first.

        Raises:
            StreamKindError: The stream is managed.
            ValidationError: The name or an option is out of range.
            AckerError: pyarrow is not installed.
        """
        with needing_pyarrow("to send rows of external streams"):
            from acker.collectors.external.opening import open_outgoing
            from acker.collectors.modes.observing_streams import ObservingExchange, ObservingOutgoing
        exchange = self._external()
        options = dict[str, Any](
            linger=linger, lost_after=lost_after, downtime=downtime,
            most_segments=most_segments, most_bytes=most_bytes,
        )  # fmt: skip
        if isinstance(exchange, ObservingExchange):
            return ObservingOutgoing(exchange, stream, segment_rows, **options)
        return self._ledger.run(open_outgoing(exchange, stream, segment_rows, **options))

    def _external(self) -> "BlockingExchange":
        """The exchange of external streams, which its first stream makes."""
        from acker.collectors.external.blocking import BlockingExchange

        with self._outbox.lock:
            if not isinstance(self._exchange, BlockingExchange):
                self._exchange = self._new_exchange()
            return self._exchange

    def _new_exchange(self) -> "BlockingExchange":
        from acker.collectors.external.blocking import BlockingExchange
        from acker.collectors.modes.observing_streams import ObservingExchange

        if isinstance(self._ledger, ObservedLedger):
            assert isinstance(self._outbox, ObservingOutbox)
            return ObservingExchange(self._ledger, self._outbox, self.owner)
        return BlockingExchange(self._ledger, self._outbox, self.owner)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the topology, which lines and functions take."""
        return self._ledger

    def drpc(self, function: str) -> "Client":
        """A client of a function of the topology: see `acker.drpc`.

        Args:
            function: Name of the function.

        Raises:
            UnknownFunction: The topology has no function of that name.
            NotInstalled: pyarrow is missing.
        """
        with needing_pyarrow("to call functions"):
            from acker.drpc.calling.client import Client
        return Client(self._ledger, function)

    def tick(self, force: bool = False) -> Ticked:
        """Rotates the due buckets and drains the expired trees, as the ticker does; returns the counts.

        It keeps what waits for a second at most: where more waits, the buckets rotate in a later call.

        Args:
            force: True to rotate all buckets at once, whatever waits.

        Examples:
            >>> [order] = spout.emit("order-1")
            >>> topology.flush()
            >>> rotations = [topology.tick(force=True) for _ in range(3)]  # nobody acks the order
            >>> [outcome.status for outcome in spout.outcomes(timeout=5.0)]
            ['expired']
        """
        if isinstance(self._outbox, ObservingOutbox):
            return self._outbox.tick(lambda: self._tick(force))
        return self._tick(force)

    def remove(self, force: bool = False) -> int:
        """Removes the topology with all its data: see `acker.inspect.operate.removal.remove`.

        Args:
            force: True to remove a topology with trees in flight or unconfirmed outcomes.

        Returns:
            The number of removed trees.

        Raises:
            TopologyInUse: There are such trees or outcomes, and `force` is False.
        """
        from acker.inspect.operate import removal

        return self._ledger.run(removal.remove(self.config.name, force=force))

    def remove_spout(self, name: str) -> None:
        """Removes a spout without trees, outcomes and rows: see `acker.inspect.operate.removal.remove_spout`.

        Args:
            name: Name of the spout.

        Raises:
            UnknownSpout: The topology has no spout of that name.
            SpoutInUse: The spout has trees in flight, unconfirmed outcomes or kept rows.
        """
        from acker.inspect.operate import removal

        self._ledger.run(removal.remove_spout(self._ledger.core, name))

    def counters(self) -> dict[str, int]:
        """The exact counts over all shards: see `Ledger.counters`."""
        return self._ledger.counters()

    def steps(self) -> list[Step]:
        """The steps at work on the topology, the latest first: see `acker.ledger.steps.step_registry`."""
        return self._ledger.run(step_registry.steps(self._ledger.core))

    def step_totals(self) -> list[StepTotals]:
        """The counts of each step since the topology was made, by name.

        See `acker.ledger.steps.step_totals`.
        """
        return self._ledger.run(step_totals.totals(self._ledger.core))

    def tree(self, anchor: int) -> "Tree | None":
        """The tree of an anchor; None if the store does not hold it, or no longer holds it.

        Args:
            anchor: The anchor.
        """
        check_id(anchor, "anchor")
        if not self.config.ackers:
            return None
        return self._ledger.run(clocks.tree(self._ledger.core, anchor))

    def find(self, message_id: bytes | str, *, cursor: str | None = None) -> "Found":
        """The known records with a message id, by spout: in flight, ended, or dead letters.

        A call searches a bounded piece. `acker.inspect.trees.find_record.find` also runs on an event loop, by
        `AsyncStore.run`.

        Args:
            message_id: The message id.
            cursor: `Found.cursor` of the answer before, which continues the search.

        Raises:
            ValidationError: An argument is not valid.
            NotInstalled: pyarrow is missing.
        """
        with needing_pyarrow("to find records"):
            from acker.inspect.trees import find_record
        return self._ledger.run(find_record.find(self._ledger.core, message_id, cursor=cursor))

    def why(self, anchor: int, *, rows: bool = False, cursor: str | None = None) -> "Why":
        """The places of the tuples of the tree of `anchor`: in streams and at readers.

        See `acker.inspect.locate.why`.

        Args:
            anchor: The tree.
            rows: True to count the tree's rows there, which reads the segments.
            cursor: Cursor of the answer before, if that call did not search everything.

        Raises:
            ValidationError: An argument is not valid.
            NotInstalled: pyarrow is missing.

        Examples:
            >>> writer = StreamWriter(topology.ledger, "unpriced")
            >>> batch = writer.batch(pa.table({"id": ["order-1"]}))
            >>> anchors, _ = spout.emit_many(["order-1"], values=batch.ids())
            >>> segments = writer.publish(batch, anchors)
            >>> [place.stream for place in topology.why(int(anchors[0])).places]
            ['unpriced']
        """
        with needing_pyarrow("to look into streams"):
            from acker.inspect.locate.why import why
        return self._ledger.run(why(self._ledger.core, anchor, rows=rows, cursor=cursor))

    def complete(self, before: str | datetime | float) -> "Completion":
        """Tells whether all records that were first tracked before a time are acked or dead letters.

        A replay counts as its record. See `acker.inspect.locate.completion`, and docs/cli.md.

        Args:
            before: ISO time with a zone, an age as `2h`, a datetime with a zone, or Unix seconds.

        Returns:
            The answer: its `state` is `complete`, `open` or `unknown`.

        Raises:
            ValidationError: The time is not valid.
            NotInstalled: pyarrow is missing.
        """
        with needing_pyarrow("to look into streams"):
            from acker.inspect.locate.completion import completion
        return self._ledger.run(completion(self._ledger.core, before))

    def stuck(self, *, cursor: str | None = None) -> "StuckPage":
        """The unacked segments of each subscription of each stream: claimed, by reader, and unclaimed.

        The first page has what bolts in plain Python hold, too. See `acker.inspect.locate.stuck`.

        Args:
            cursor: Cursor of the page before.

        Raises:
            ValidationError: An argument is not valid.
            NotInstalled: pyarrow is missing.
        """
        with needing_pyarrow("to look into streams"):
            from acker.inspect.locate.stuck import stuck
        return self._ledger.run(stuck(self._ledger.core, cursor=cursor))

    def drops(self) -> "list[Drop]":
        """The segments that streams dropped with possibly unacked rows, the latest first, 1,000 at most.

        See `acker.inspect.locate.drops`.

        Raises:
            NotInstalled: pyarrow is missing.
        """
        with needing_pyarrow("to look into streams"):
            from acker.inspect.locate.drops import drops
        return self._ledger.run(drops(self._ledger.core))
