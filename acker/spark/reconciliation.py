"""Proof by query: the stamps in a table say which rows of an external stream have reached it.

The steps between the stream and the table may be SQL, dbt or Scala: they only carry a column of texts.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import TurnedOff, ValidationError
from acker.inspect.locate.stuck import unacked
from acker.ledger.fields import Count, Name, Seconds
from acker.ledger.settings.config import check_name
from acker.spark.bolts.job import job
from acker.spark.options import options
from acker.store import keys
from acker.store.operation import command
from acker.streams.log import subscriptions
from acker.streams.staging.external.rows.carriers import COLUMN


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The rows of a stream that a table has, and the rows that it lacks.

    Attributes:
        stream: The name of the stream.
        subscription: The name of the subscription that the table serves.
        rows: Rows of the table.
        stamps: Stamps of the stream in them: a row has several where the column is an array.
        unstamped: Rows without a stamp.
        damaged: Stamps that were cut or edited.
        foreign: Stamps of another stream or topology.
        newer: Stamps of a later version of acker.
        missing: Rows that were sent for the subscription, are waited for, and have not been seen in the
            table, at least.
        segments: Segments with such rows.
        oldest: Seconds since the oldest of these segments was sent; 0.0 where there is none.
        partly: True if more segments wait than were looked at (10,000): `missing` counts these alone.
        dropped: Rows of all segments so far of which a row did not come in time. Their records are over: they
            expired, and are replayed as other rows, or are dead letters.
    """

    stream: Name
    subscription: Name
    rows: Count
    stamps: Count
    unstamped: Count
    damaged: Count
    foreign: Count
    newer: Count
    missing: Count
    segments: Count
    oldest: Seconds
    partly: bool
    dropped: Count

    @property
    def complete(self) -> bool:
        """True if no row that was sent for the subscription is waited for."""
        return not self.segments

    @property
    def text(self) -> str:
        """The result in words."""
        facts = [f"{_many(self.stamps, 'stamp')} of {self.stream} in {_many(self.rows, 'row')}"]
        kinds = ("unstamped", "damaged", "foreign", "newer")
        facts += [f"{count:,} {kind}" for kind in kinds if (count := getattr(self, kind))]
        if self.dropped:
            facts.append(f"{_many(self.dropped, 'row')} dropped so far, whose records expired")
        details = ", ".join(facts)
        if self.complete:
            return f"complete: no row that was sent for {self.subscription} is waited for ({details})"
        least = "at least " if self.partly else ""
        return (
            f"missing: {least}{_many(self.missing, 'row')} of {_many(self.segments, 'segment')}, sent for "
            f"{self.subscription}, the oldest {self.oldest:,.0f} s ago ({details})"
        )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def reconcile(
    rows: DataFrame,
    stream: str,
    subscription: str,
    *,
    url: str,
    topology: str,
    column: str = COLUMN,
    **settings: Any,
) -> Reconciliation:
    """Receives the stamps in a table for a subscription: the records of rows that are there go on.

    It is a job without a function, which may run any number of times, on a schedule and over the same rows:
    a row counts once. The rows are evaluated twice, and a row counts that both have.

        gold = spark.read.table("gold")
        assert reconcile(gold, "items", "gold", url=URL, topology="shop").complete

    Args:
        rows: The table, which is not streaming, with a column of stamps: a text, or an array of texts where a
            row of the table stands for several rows of the stream.
        stream: The name of the external stream.
        subscription: The subscription that the table serves. It must have been declared before the rows were
            sent (`acker subscribe`): only rows that were sent since then are owed to it.
        url: The store.
        topology: The name of the topology.
        column: The name of the column.
        **settings: Options of a job, as in `job`.

    Returns:
        The rows that the table has, and the rows that it lacks.

    Raises:
        ValidationError: The rows are streaming, or have no such column.
        UnknownSubscription: The stream has no such subscription.
        StreamKindError: The stream is managed.
        SubscriptionInUse: A step of another name serves the subscription.
        TurnedOff: acker is turned off.
    """
    check_name(stream, "stream")
    check_name(subscription, "subscription")
    if rows.isStreaming:
        raise ValidationError("rows: expected a table that is read at once, got a streaming DataFrame")
    if column not in rows.columns:
        raise ValidationError(
            f"column: expected one of the columns {', '.join(rows.columns)}, got {column!r}"
        )
    parsed = options.of_step(subscription, {"url": url, "topology": topology, **settings}, options.STEP)
    if parsed.off or parsed.observe:
        raise TurnedOff(
            "acker is turned off or only observes here: expected enabled=True and observe=False to reconcile"
        )
    ledger = parsed.ledger()
    slot = ledger.run(subscriptions.find(ledger.core, stream, subscription))
    with job(rows.sparkSession, url=url, topology=topology, name=subscription, **settings) as collector:
        collector.receive(rows.select(F.col(column).alias(COLUMN)), stream)
        counted = collector.received[-1].look.counted
    waiting = ledger.run(unacked(ledger.core, stream, subscription))
    name = keys.Stream(topology, stream).subscriptions
    [gone] = ledger.store.send([command("HGET", name, f"dropped:{slot}")])
    kinds = ("rows", "stamps", "unstamped", "damaged", "foreign", "newer")
    seen = {kind: counted[kind] for kind in kinds} | {"dropped": int(gone or 0)}
    if waiting is None:
        return Reconciliation(stream, subscription, **seen, missing=0, segments=0, oldest=0.0, partly=False)
    return Reconciliation(
        stream, subscription, **seen, missing=waiting.rows, segments=waiting.segments,
        oldest=waiting.oldest, partly=waiting.partly,
    )  # fmt: skip
