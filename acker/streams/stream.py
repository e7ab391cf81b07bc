"""A stream, for its owner: its readers, their progress, and its limits.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece.
"""

from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name, check_text
from acker.streams.commits import release
from acker.streams.log import fencing, subscriptions
from acker.streams.log.stream_totals import StreamTotals, stream_totals
from acker.streams.staging.external import serving
from acker.streams.upkeep import retention


class Stream:
    """A stream of a topology. It need not have been written yet.

    Args:
        ledger: The ledger of the topology.
        name: The name of the stream.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = check_name(name, "stream")

    def subscribe(self, name: str) -> None:
        """Makes a subscription if there is none of that name. It gets all rows that are staged from now on.

        The first subscription of a stream, and the first after all were dropped, also gets the rows that
        waited for one. A query makes its own subscription when it starts.

        Args:
            name: The name of the subscription.

        Raises:
            AckerError: The stream has 64 subscriptions, the most.
            ValidationError: The name is malformed.
        """
        self.ledger.run(subscriptions.subscribe(self.ledger.core, self.name, name, ""))

    def unsubscribe(self, name: str, *, ack: bool = False) -> int:
        """Drops a subscription with all its unacked segments; returns their number.

        Its queries end with UnknownSubscription.

        Args:
            name: The name of the subscription.
            ack: False fails the trees of these segments, so that they are replayed for the other
                subscriptions; True acks the tuples, so that the trees go on without it.

        Returns:
            The number of dropped segments.

        Raises:
            UnknownSubscription: There is no subscription of that name.
        """
        check_name(name, "subscription")
        return self.ledger.run(retention.unsubscribe(self.ledger.core, self.name, name, ack=ack))

    def rename_subscription(self, name: str, new: str) -> None:
        """Gives a subscription of an external stream another name, with all that it owes and has received.

        A step that goes on under the earlier name ends with UnknownSubscription.

        Args:
            name: The name of the subscription.
            new: Its new name.

        Raises:
            StreamKindError: The stream is managed: a query's checkpoint names its subscription.
            UnknownSubscription: There is no subscription of that name.
            SubscriptionInUse: A live step serves it, or the stream has one of the new name.
            ValidationError: A name is malformed.
        """
        self.ledger.run(serving.rename(self.ledger.core, self.name, name, new))

    def limit(self, *, max_age: float | None = None, max_bytes: int | None = None) -> None:
        """Sets the limits for unacked segments.

        Above a limit the oldest segments are dropped and counted whenever the stream is written or read.
        Their trees expire.

        Args:
            max_age: Seconds, 1 to 28 days; by default 7 days. None leaves the limit as it is.
            max_bytes: Bytes from 1; by default 16 GiB. None leaves the limit as it is.

        Raises:
            ValidationError: A limit is out of range.
        """
        self.ledger.run(retention.limit(self.ledger.core, self.name, max_age=max_age, max_bytes=max_bytes))

    def readers(self, subscription: str = subscriptions.DEFAULT) -> dict[str, float]:
        """Returns the readers of a subscription, with the seconds since each last asked for segments.

        Args:
            subscription: The name of the subscription.

        Raises:
            UnknownSubscription: There is no subscription of that name.
        """
        core = self.ledger.core
        check_name(subscription, "subscription")
        slot = self.ledger.run(subscriptions.find(core, self.name, subscription))
        found = self.ledger.run(fencing.readers(core, self.name, slot))
        return {reader: silent for reader, (_, silent) in found.items()}

    def give_back(self, reader: str, subscription: str = subscriptions.DEFAULT) -> int:
        """Takes a reader's unacked segments back, for the others of its subscription; returns their number.

        Use it for a query that was given up together with its checkpoint. A running commit of the query is
        finished first. Later ones end with ReaderFenced.

        Args:
            reader: The reader, as `readers` names it.
            subscription: The name of the subscription.

        Raises:
            UnknownSubscription: There is no subscription of that name.
            AckerError: The reader goes on to commit. Also raises the errors of its running commit.
        """
        core = self.ledger.core
        check_name(subscription, "subscription")
        check_text(reader, "reader")
        slot = self.ledger.run(subscriptions.find(core, self.name, subscription))
        return self.ledger.run(release.give_back(core, self.name, slot, reader))

    def totals(self) -> StreamTotals:
        """Returns the size of the stream, and the progress of its subscriptions."""
        [found] = self.ledger.run(stream_totals(self.ledger.core, [self.name]))
        return found
