"""Warns if nobody acks a source's rows, or if two queries share a subscription by accident.

Spark tells a source neither its query's sink nor the queries of other applications. The store knows both. The
planning process logs the warning, so it is in the log of the driver, or of the Spark Connect server.
"""

import logging
from collections.abc import Iterable

from acker.ledger.client import Ledger
from acker.ledger.steps import step_registry
from acker.spark.options.options import Options
from acker.spark.queries import batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import fencing, subscriptions
from acker.streams.log.stream_totals import stream_totals
from acker.streams.log.subscriptions import Range

RECENT = 600.0
"""Seconds within which another reader of a subscription counts as active."""
_log = logging.getLogger(__name__)


class ConflictWarner:
    """The warnings of one source, each logged once."""

    def __init__(self, ledger: Ledger, options: Options) -> None:
        self._ledger = ledger
        self._options = options
        self._place = f"stream {options.stream!r} of topology {options.topology!r}"
        self._acked: bool | None = None
        self._logged: set[str] = set()

    def warn_if_nothing_is_acked(self, slot: int, reader: str, at: int) -> None:
        """Warns, when a second batch is planned, if the first was not acked: the sink acks nothing.

        Costs two requests until that is known.
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
        for piece in (yield from subscriptions.delivered(self._ledger.core, last, 1)):
            unacked = keys.Stream(self._options.topology, last.stream).unacked(piece.segment.id)
            [state] = yield [command("HGET", unacked, last.slot)]
            return bool(state != b"1")
        return True

    def warn_of_shared_subscription(self, slot: int, reader: str) -> None:
        """Warns of an unnamed subscription that another query reads, which may want all rows, too."""
        if self._options.subscription_named:
            return
        known = self._ledger.run(fencing.readers(self._ledger.core, self._options.stream, slot))
        for other, (_, silent) in known.items():
            if other == reader or silent > RECENT or other in self._logged:
                continue
            self._logged.add(other)
            _log.warning(
                "another query (reader %s) took from %s %.0f s ago, for the subscription %r as this one does "
                "(reader %s): each of them gets a part of the rows. If each must get all rows, name a "
                'subscription for each, .option("subscription", name); if they share, name one for both. '
                "`acker give-back` returns the rows of a reader that is gone for good",
                other, self._place, silent, self._options.subscription, reader,
            )  # fmt: skip


_REPORTED = b"reported"


def warn_of_tracking_queries(ledger: Ledger, at: MicroBatch, spouts: Iterable[str]) -> None:
    """Warns, when a batch of tracked rows is committed, if another query tracks rows of the same DataFrame.

    Each query reads all of its source, so both track each row. A restarted query counts as the same query.
    Logs it once for each DataFrame.
    """
    query_id = at.query.encode()
    for source in sorted(batch_roots.sources(ledger, at)):
        key = keys.tracking_queries(ledger.config.name, source)
        noted = [command("HSET", key, query_id, at.name), command("EXPIRE", key, RECORD_TTL)]
        *_, found = ledger.store.send([*noted, command("HGETALL", key)])
        names = pairs(found)
        others = [query for query in sorted(names) if query not in (query_id, _REPORTED)]
        if others and ledger.store.send([command("HSETNX", key, _REPORTED, 1)])[0]:
            _log.warning(
                "queries %s and %s track the rows of one DataFrame for spout %s of topology %r: each of them "
                "tracks all rows, so an outcome of a message id comes for each query, one may be acked and "
                "the other failed, and each has a part of the replays. Call track for each query, "
                "with a spout name of its own, or let one query emit rows for all",
                _named(query_id, names), " and ".join(_named(one, names) for one in others),
                ", ".join(sorted(set(spouts))), ledger.config.name,
            )  # fmt: skip


def _named(query: bytes, names: dict[bytes, bytes]) -> str:
    name = names[query].decode()
    return f"{name!r} ({query.decode()})" if name else query.decode()


def warn_of_renamed_bolt(ledger: Ledger, at: MicroBatch, name: str) -> None:
    """Logs a warning if rows are held under the earlier name of a query's bolt."""
    steps = ledger.run(step_registry.steps(ledger.core))
    mine = {step.name for step in steps if step.kind == "bolt" and step.query_id == at.query}
    others = {step.name for step in steps if step.query_id != at.query}
    earlier = mine - {name} - others  # a bolt that uses the name elsewhere takes its held rows
    if not earlier:
        return
    for stream in ledger.run(stream_totals(ledger.core)):
        bolt, _, held = stream.name.rpartition(".")
        if bolt in earlier and stream.segments:
            rows = sum(subscription.rows_behind for subscription in stream.subscriptions)
            _log.warning(
                "query %s has run bolt %r before, which holds %s rows as %r in stream %r: bolt %r does not "
                "take them, nor does it know the recorded keys of `once`. Give it the old name again, or "
                "take them in a job with collector.take(%r)",
                at.query, bolt, f"{rows:,}", held, stream.name, name, stream.name,
            )  # fmt: skip
