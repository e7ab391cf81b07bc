"""The ledger client: vectors of signed 64-bit ids, sent at once. What collectors and Spark executors use."""

import time
from collections.abc import Sequence
from typing import Any, TypeVar, Unpack

from acker.errors import TrackConflict, TrackRejected, UnknownTopology, UnreadableRecord
from acker.ledger.calls import core as operations
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Call, Failed, Submission, Ticked, Updated, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids, IdsLike, as_ids
from acker.ledger.outcomes import counts, latency_histogram
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader, Receipt, confirm, message_ids
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

    Every method raises StoreUnavailable, after the store's bounded time, where the store cannot be reached.
    A call that changes the ledger takes effect once, however often it had to be sent. WritersFull where that
    takes a writer that is new to a shard, and the shard can remember no further one.
    """

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
        """Notes a spout among those of the topology; see `acker.ledger.calls.core.Core.register_spout`."""
        self.run(self.core.register_spout(name, ask))

    def track(
        self, anchors: IdsLike, values: IdsLike, message_ids: Sequence[bytes | str], *, spout: str
    ) -> None:
        """Tracks one slab: `anchors` in order from index 0, an ack value and a message id (<= 1 KiB) each.

        A value is the XOR of the ids of the tuples emitted first; 0 is acked at once.
        Raises ValidationError; TrackRejected over the high-water mark; TrackConflict where the slab is
        tracked with other content; UnreadableRecord. The same content again changes nothing.
        """
        slab = NewSlab(
            as_ids(anchors, "anchors"),
            as_ids(values, "values"),
            [config.check_message_id(message_id) for message_id in message_ids],
        )
        [letter] = self.track_slabs([slab], spout=spout)
        if letter in "RW":
            raise TrackRejected(self.config.rejection(letter))
        if letter == "C":
            raise TrackConflict(f"slab of anchor {slab.anchors[0]} is tracked with other content")
        if letter == "U":
            first = int(slab.anchors[0])
            raise UnreadableRecord(unreadable([first]), [first])

    def track_slabs(self, slabs: Sequence[NewSlab], *, spout: str) -> list[str]:
        """Tracks many slabs at once; a letter for each.

        A tracked, D tracked before, C conflict, R rejected, U: what is held of it cannot be read.
        """
        self.register_spout(spout)
        if not self.config.ackers:
            for slab in slabs:
                slab.check()
            return ["A"] * len(slabs)
        return self.send(self.core.track(slabs, spout))

    def update(self, anchors: IdsLike, deltas: IdsLike) -> Updated:
        """XORs `deltas[i]` into the ack value of the tree of `anchors[i]`; zero completes the tree.

        A tree not tracked yet waits for its track; a finished one counts as late. Raises ValidationError;
        UnreadableRecord where slabs had to be passed over, when all else is done. So do `fail` and
        `reset_timeout`.
        """
        anchors, deltas = _pair(anchors, deltas)
        if not self.config.ackers:
            return Updated()
        return self.send(self.core.update(anchors, deltas))

    def fail(self, anchors: IdsLike, reason: str = "", *, retry: bool = True) -> Failed:
        """Fails trees: final and at once. `reason` is at most 1 KiB. Raises ValidationError.

        retry=False: for good, so their records become dead letters, and are not tried again.
        """
        encoded = causes.checked(reason, retry=retry)
        found = as_ids(anchors, "anchors")
        if not self.config.ackers:
            return Failed()
        return self.send(self.core.fail(found, encoded))

    def reset_timeout(self, anchors: IdsLike) -> int:
        """Gives trees, and all others of their slabs, the whole message timeout again; how many slabs.

        Storm's OutputCollector.resetTimeout; the unit is the slab. Trees that are finished are passed over.
        """
        found = as_ids(anchors, "anchors")
        if not self.config.ackers:
            return 0
        return self.send(self.run(self.core.resetting(found)))

    def tick(self, force: bool = False) -> Ticked:
        """Rotates the buckets of shards whose time has come (`force`: of all), and drains what expired."""
        return self.run(tick.tick(self.core, force))

    def outcomes(self, reader: OutcomeReader, timeout: float = 0.0) -> list[Entry]:
        """The next outcomes of a spout; waits up to `timeout` seconds for the first."""
        before = reader.position
        try:
            return self._outcomes(reader, time.monotonic() + timeout)
        except BaseException:
            reader.position = before  # what an interrupt has taken from the caller is read again
            raise

    def _outcomes(self, reader: OutcomeReader, deadline: float) -> list[Entry]:
        if not self.config.ackers:
            time.sleep(max(0.0, deadline - time.monotonic()))
            return []
        while True:
            found = self.run(reader.read())
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            if self.store.cluster:
                time.sleep(min(left, _POLL))
            else:
                block = min(left, _BLOCK, self.store.timeout / 4)
                [reply] = self.store.send([reader.blocking(max(1, int(block * 1000)))])
                if found := reader.take(reply):
                    return found

    def confirm(self, spout: str, entries: Sequence[Receipt]) -> int:
        """Confirms entries of a spout's outcomes (`Entry.place`); returns how many trees."""
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

    settings: see `acker.ledger.settings.config.TopologyConfig`; None takes what is stored, or the default.
    Raises ValidationError, TopologyConfigError, UnknownTopology (`create` False), StoreUnavailable and
    StoreMisconfigured.
    """
    return Ledger(store, store.run(operations.open_topology(name, settings, create)))


def follow(
    known: Ledger | None,
    store: Store,
    name: str,
    *,
    create: bool = True,
    **settings: Unpack[Settings],
) -> Ledger:
    """`known` as long as it is right: the topology may have been removed and made anew, with other shards.

    Takes and raises what `open_ledger` does; one exchange with the store.
    """
    found = open_ledger(store, name, create=create, **settings)
    if known is None or known.config != found.config:
        return found
    known.core.spouts = found.core.spouts
    return known


def remake(known: Ledger) -> Ledger:
    """As `follow`, for who works on; a topology that has gone, with its store or removed, is made anew.

    It keeps its settings.
    """
    config, store = known.config, known.store
    try:
        return follow(known, store, config.name, create=False)
    except UnknownTopology:
        settings: Any = {setting: getattr(config, setting) for setting in SETTINGS}
        return follow(known, store, config.name, **settings)
