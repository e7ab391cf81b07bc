"""The ledger client of collectors and Spark executors: vectors of signed 64-bit ids, sent at once.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a vector has a number for each tree, the XOR of tuple ids; a delta is the XOR of the
ids that a call adds to a tree.
"""

import time
from collections.abc import Sequence
from typing import Any, TypeVar, Unpack

from acker.errors import SpoutPaused, TrackConflict, TrackRejected, UnknownTopology, UnreadableRecord
from acker.ledger.calls import core as operations
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Call, Failed, Submission, Ticked, Updated, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids, IdsLike, as_ids
from acker.ledger.outcomes import counts, latency_histogram
from acker.ledger.outcomes.outcomes import Confirmation, Entry, OutcomeReader, confirm, message_ids
from acker.ledger.settings import config
from acker.ledger.settings.config import SETTINGS, Settings
from acker.ledger.slabs import causes
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick import tick
from acker.store.client import Store
from acker.store.operation import Operation

T = TypeVar("T")

_POLL = 0.02
_BLOCK = 1.0


class Ledger:
    """The ledger of one topology, for any thread. It pickles, and a forked child makes its own connections.

    A call that changes the ledger takes effect once, however often it is sent.

    Raises:
        StoreUnavailable: By every method: the store did not answer within its time-out.
        WritersFull: By calls that change the ledger: the call has a new writer, and a shard remembers no
            further one.
    """

    off = False
    """True if acker is turned off, so that nothing is sent (acker/collectors/modes/off.py)."""

    def __init__(self, store: Store, core: Core) -> None:
        self.store = store
        self.core = core

    @property
    def config(self) -> config.TopologyConfig:
        """The topology's configuration."""
        return self.core.config

    def run(self, operation: Operation[T]) -> T:
        """Runs an operation on the store."""
        return self.store.run(operation)

    def send(self, submission: Submission[T]) -> T:
        """Sends a submission; after StoreUnavailable the same one can be sent again."""
        return self.store.run(idempotence.send(self.core, submission))

    def submit(self, calls: Sequence[Call]) -> None:
        """Sends calls; after StoreUnavailable the same ones can be sent again."""
        self.store.run(idempotence.submit(self.core, calls))

    def register_spout(self, name: str, ask: bool = False) -> None:
        """Registers a spout of the topology; see `acker.ledger.calls.core.Core.register_spout`."""
        self.run(self.core.register_spout(name, ask))

    def track(
        self, anchors: IdsLike, values: IdsLike, message_ids: Sequence[bytes | str], *, spout: str
    ) -> None:
        """Tracks one slab. The same content again changes nothing.

        Args:
            anchors: Anchors of the slab, in order from index 0.
            values: Ack values: the XOR of the ids of each tree's first tuples; 0 is acked at once.
            message_ids: A message id for each anchor, at most 1 KiB.
            spout: Name of the spout.

        Raises:
            ValidationError: An argument is not valid.
            TrackRejected: The topology is over its high-water mark.
            SpoutPaused: The spout is paused.
            TrackConflict: The slab is tracked with other content.
            UnreadableRecord: The slab's record cannot be read.
        """
        slab = NewSlab(
            as_ids(anchors, "anchors"),
            as_ids(values, "values"),
            [config.check_message_id(message_id) for message_id in message_ids],
        )
        [letter] = self.track_slabs([slab], spout=spout)
        if letter in "RW":
            raise TrackRejected(self.config.rejection(letter))
        if letter == "P":
            raise SpoutPaused(self.core.rejection(letter, spout))
        if letter == "C":
            raise TrackConflict(
                f"the tree of anchor {slab.anchors[0]} was tracked before, with other content"
            )
        if letter == "U":
            first = int(slab.anchors[0])
            raise UnreadableRecord(unreadable([first]), [first])

    def track_slabs(self, slabs: Sequence[NewSlab], *, spout: str) -> list[str]:
        """Tracks many slabs at once; returns a letter for each.

        A tracked, D tracked before, C conflict, R rejected, P: the spout is paused, U: its record cannot be
        read. Raises
        ValidationError for an argument that is not valid, as the name of a member of a group.
        """
        if not str(spout).endswith(config.OBSERVED):
            config.check_spout(spout)
        self.register_spout(spout)
        if not self.config.ackers:
            for slab in slabs:
                slab.check()
            return ["A"] * len(slabs)
        return self.send(self.core.track(slabs, spout))

    def update(self, anchors: IdsLike, deltas: IdsLike) -> Updated:
        """XORs `deltas[i]` into the ack value of the tree that `anchors[i]` names; zero completes the tree.

        The store keeps a delta for a tree that is not tracked yet until `track` names the tree. A delta for a
        finished tree is only counted, as late.

        Returns:
            The numbers of deltas that changed nothing: `late`, for finished trees, and `orphaned`, for trees
            that are not tracked yet and that the store had no room to keep deltas for. A caller that ignores
            `orphaned` may let a tree complete early: a tuple that was emitted by such a delta is not in the
            tree, so the ack of another tuple can make it zero. Such a caller must not ack the tuple's parent.

        Raises:
            ValidationError: An argument is not valid.
            UnreadableRecord: Slabs, which are stored groups of trees, cannot be read. Their deltas were
                passed over, and all others applied. `fail` and `reset_timeout` raise it, too.
        """
        anchors, deltas = _pair(anchors, deltas)
        if not self.config.ackers:
            return Updated()
        return self.send(self.core.update(anchors, deltas))

    def fail(self, anchors: IdsLike, reason: str = "", *, retry: bool = True) -> Failed:
        """Fails trees, at once and finally.

        Args:
            anchors: The trees.
            reason: Text for the outcome, at most 1 KiB.
            retry: False to make their records dead letters, without another attempt.

        Raises:
            ValidationError: An argument is not valid.
        """
        encoded = causes.checked(reason, retry=retry)
        anchor_ids = as_ids(anchors, "anchors")
        if not self.config.ackers:
            return Failed()
        return self.send(self.core.fail(anchor_ids, encoded))

    def reset_timeout(self, anchors: IdsLike) -> int:
        """Gives all trees of the slabs of anchors the whole timeout again; returns the number of slabs.

        Storm's OutputCollector.resetTimeout; the unit is the slab. Finished trees are passed over.
        """
        anchor_ids = as_ids(anchors, "anchors")
        if not self.config.ackers:
            return 0
        return self.send(self.run(self.core.resetting(anchor_ids)))

    def tick(self, force: bool = False) -> Ticked:
        """Rotates the buckets of due shards (`force`: of all), and drains the expired trees."""
        return self.run(tick.tick(self.core, force))

    def outcomes(self, reader: OutcomeReader, timeout: float = 0.0) -> list[Entry]:
        """The next outcomes of a spout; waits up to `timeout` seconds for the first."""
        before = reader.offset
        try:
            return self._outcomes(reader, time.monotonic() + timeout)
        except BaseException:
            reader.offset = before  # entries that an interrupt took from the caller are read again
            raise

    def _outcomes(self, reader: OutcomeReader, deadline: float) -> list[Entry]:
        if not self.config.ackers:
            time.sleep(max(0.0, deadline - time.monotonic()))
            return []
        while True:
            entries = self.run(reader.read())
            left = deadline - time.monotonic()
            if entries or left <= 0:
                return entries
            if self.store.cluster:
                time.sleep(min(left, _POLL))
            else:
                block = min(left, _BLOCK, self.store.timeout / 4)
                [reply] = self.store.send([reader.blocking(max(1, int(block * 1000)))])
                if entries := reader.take(reply):
                    return entries

    def confirm(self, spout: str, entries: Sequence[Confirmation]) -> int:
        """Confirms entries of a spout's outcomes (`Entry.place`); returns the number of trees."""
        return self.run(confirm(self.core, spout, entries))

    def message_ids(self, slabs: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """The message ids of slabs: slab -> one for each tree."""
        return self.run(message_ids(self.core, slabs))

    def counters(self) -> dict[str, int]:
        """The exact counts over all shards since the topology was made.

        See `acker.ledger.outcomes.counts.COUNTERS`.
        """
        return self.run(counts.counters(self.core))

    def latency(self, *fractions: float) -> list[float | None]:
        """Percentiles of the complete latency of acked trees, in seconds: 0.5 is the median."""
        found = self.run(counts.latencies(self.core))
        return [latency_histogram.percentile(found, fraction) for fraction in fractions]


def _pair(anchors: IdsLike, values: IdsLike) -> tuple[Ids, Ids]:
    return as_ids(anchors, "anchors"), as_ids(values, "deltas")


def open_ledger(
    store: Store,
    name: str,
    *,
    create: bool = True,
    **settings: Unpack[Settings],
) -> Ledger:
    """Opens the ledger of a topology, whose configuration is stored at first use.

    settings: see `acker.ledger.settings.config.TopologyConfig`; None is the stored value, or the default.
    Raises ValidationError, TopologyConfigError, UnknownTopology (`create` False), StoreUnavailable and
    StoreMisconfigured.
    """
    return Ledger(store, store.run(operations.open_topology(name, settings, create)))


def follow(
    ledger: Ledger | None,
    store: Store,
    name: str,
    *,
    create: bool = True,
    **settings: Unpack[Settings],
) -> Ledger:
    """Returns `ledger` while it is right: the topology may have been removed and made anew.

    Has the arguments and errors of `open_ledger`, and takes one exchange with the store.
    """
    opened = open_ledger(store, name, create=create, **settings)
    if ledger is None or ledger.config != opened.config:
        return opened
    ledger.core.spouts = opened.core.spouts
    return ledger


def remake(ledger: Ledger) -> Ledger:
    """Like `follow`, for a worker that goes on: a topology that has gone is made anew, with its settings."""
    config, store = ledger.config, ledger.store
    try:
        return follow(ledger, store, config.name, create=False)
    except UnknownTopology:
        settings: Any = {setting: getattr(config, setting) for setting in SETTINGS}
        return follow(ledger, store, config.name, **settings)
