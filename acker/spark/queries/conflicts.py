"""What acker notices of others: nobody acks what a source takes, or another query takes the same.

Spark tells a source nothing of its query's sink, nor of the queries of other applications. The store knows
both. A find is logged by the process that plans, so it is in the driver's log, or in that of the Spark
Connect server.
"""

import logging
from collections.abc import Iterable

from acker.ledger.client import Ledger
from acker.spark.options.options import Options
from acker.spark.queries import batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import fencing, subscriptions
from acker.streams.log.subscriptions import Range

RECENT = 600.0
"""Seconds within which another reader has asked for segments that is taken for one at work."""
_log = logging.getLogger(__name__)


class Company:
    """Of one source: tells each thing once."""

    def __init__(self, ledger: Ledger, options: Options) -> None:
        self._ledger = ledger
        self._options = options
        self._place = f"stream {options.stream!r} of topology {options.topology!r}"
        self._acked: bool | None = None
        self._logged: set[str] = set()

    def look_for_acks(self, slot: int, reader: str, at: int) -> None:
        """When a batch is planned that follows one: that was acked, or its sink acks nothing.

        Costs two requests, until it is known.
        """
        if self._acked is not None or not at:
            return
        last = Range(self._options.stream, slot, reader, at - 1, at)
        self._acked = self._ledger.run(self._is_acked(last))
        if not self._acked:
            _log.warning(
                "a query reads %s and has acked nothing of its last batch: is its sink no bolt, and not "
                "format('acker')? Then it never acks, and the trees of what it takes expire. To look at "
                "rows, use spark.read, or a subscription of its own that is dropped afterwards",
                self._place,
            )

    def _is_acked(self, last: Range) -> Operation[bool]:
        for piece in (yield from subscriptions.taken(self._ledger.core, last, 1)):
            owed = keys.Stream(self._options.topology, last.stream).owed(piece.segment.token)
            [state] = yield [command("HGET", owed, last.slot)]
            return bool(state != b"1")
        return True

    def look_for_others(self, slot: int, reader: str) -> None:
        """Where nobody has named the subscription: another query may read it that wants all rows as well."""
        if self._options.subscription_named:
            return
        known = self._ledger.run(fencing.readers(self._ledger.core, self._options.stream, slot))
        for other, (_, silent) in known.items():
            if other == reader or silent > RECENT or other in self._logged:
                continue
            self._logged.add(other)
            _log.warning(
                "another query (reader %s) took from %s %.0f s ago, for the subscription %r as this one does "
                "(reader %s): each of them has a part of the rows. Name a subscription for each, "
                '.option("subscription", name), where each is to have all, or one for both where they share. '
                "What a reader had that is gone for good, `acker give-back` returns",
                other, self._place, silent, self._options.subscription, reader,
            )  # fmt: skip


_REPORTED = b"told"


def look_for_trackers(ledger: Ledger, at: MicroBatch, spouts: Iterable[str]) -> None:
    """When a batch of tracked rows is committed: another query may have tracked rows of the same DataFrame.

    Each query reads all of its source, so each row is tracked by both. A query that starts again is the same
    one. Tells it once for each DataFrame.
    """
    own = at.query.encode()
    for source in sorted(batch_roots.sources(ledger, at)):
        key = keys.trackers(ledger.config.name, source)
        noted = [command("HSET", key, own, at.name), command("EXPIRE", key, RECORD_TTL)]
        *_, found = ledger.store.send([*noted, command("HGETALL", key)])
        names = pairs(found)
        others = [query for query in sorted(names) if query not in (own, _REPORTED)]
        if others and ledger.store.send([command("HSETNX", key, _REPORTED, 1)])[0]:
            _log.warning(
                "queries %s and %s track the rows of one DataFrame for spout %s of topology %r: each of them "
                "tracks all rows, so an outcome of a message id comes for each query, one may be acked and "
                "the other failed, and each has a part of the replays. Call track for each query, "
                "with a spout name of its own, or let one query emit what all need",
                _named(own, names), " and ".join(_named(one, names) for one in others),
                ", ".join(sorted(set(spouts))), ledger.config.name,
            )  # fmt: skip


def _named(query: bytes, names: dict[bytes, bytes]) -> str:
    name = names[query].decode()
    return f"{name!r} ({query.decode()})" if name else query.decode()
