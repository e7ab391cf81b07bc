"""A stream as its owner sees it: who reads it, how far they are, and how much of it is kept."""

from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name, check_text
from acker.streams.commits import release
from acker.streams.log import fencing, subscriptions
from acker.streams.log.stream_totals import StreamTotals, stream_totals
from acker.streams.upkeep import retention


class Stream:
    """A stream of a topology. It need not have been written yet."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = check_name(name, "stream")

    def subscribe(self, name: str) -> None:
        """Makes a subscription where there is none of that name: it has all that is staged from now on.

        The first of a stream, and the first after all were dropped, also has what waited for one. A query
        makes its own when it starts. Raises AckerError over 64, ValidationError.
        """
        self.ledger.run(subscriptions.subscribe(self.ledger.core, self.name, name))

    def unsubscribe(self, name: str, *, ack: bool = False) -> int:
        """Drops a subscription with all that it has not acked; returns of how many segments.

        Their trees fail, to be replayed for the others; with `ack` they go on without it. Its queries end
        with UnknownSubscription, which this raises, too, where there is none of that name.
        """
        check_name(name, "subscription")
        return self.ledger.run(retention.unsubscribe(self.ledger.core, self.name, name, ack=ack))

    def limit(self, *, max_age: float | None = None, max_bytes: int | None = None) -> None:
        """Sets how much is kept for who has not acked it: seconds (default 7 days), bytes (default 16 GiB).

        Over that the oldest segments are dropped, whenever something is written or read, and counted; their
        trees expire. None leaves a limit as it is. Raises ValidationError.
        """
        self.ledger.run(retention.limit(self.ledger.core, self.name, max_age=max_age, max_bytes=max_bytes))

    def readers(self, subscription: str = subscriptions.DEFAULT) -> dict[str, float]:
        """The readers of a subscription -> seconds since each asked for segments. UnknownSubscription."""
        core = self.ledger.core
        check_name(subscription, "subscription")
        slot = self.ledger.run(subscriptions.find(core, self.name, subscription))
        found = self.ledger.run(fencing.readers(core, self.name, slot))
        return {reader: silent for reader, (_, silent) in found.items()}

    def give_back(self, reader: str, subscription: str = subscriptions.DEFAULT) -> int:
        """Takes from a reader what it did not ack, for the others of its subscription; how many segments.

        For a query that was given up together with its checkpoint. A commit of it that is under way is
        finished first; any later one ends with ReaderFenced. Raises UnknownSubscription, and what finishing a
        commit does.
        """
        core = self.ledger.core
        check_name(subscription, "subscription")
        check_text(reader, "reader")
        slot = self.ledger.run(subscriptions.find(core, self.name, subscription))
        return self.ledger.run(release.give_back(core, self.name, slot, reader))

    def totals(self) -> StreamTotals:
        """What the stream holds, and how far its subscriptions are."""
        [found] = self.ledger.run(stream_totals(self.ledger.core, [self.name]))
        return found
