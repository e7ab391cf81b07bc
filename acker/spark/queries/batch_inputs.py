"""Inputs of a batch: its ranges and roots, and the check that its tasks have read all of them.

Tasks record for the driver the ranges of streams that they read, and the roots that they make of other rows.
These notes belong to one run of a query: the next run may read other inputs than an interrupted one. A
function that looks at a part of its batch (`isEmpty`, `first`, `take`) starts only some tasks, so it may
leave streams of the batch unread: the plan of Spark has them.

Terms: roots are rows of a spout that were staged together, and get a tree each; staged rows are stored, but
nobody sees them before a commit.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from acker.errors import AckerError
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.spark.queries import batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import Operation, abreast, command
from acker.streams.commits import record
from acker.streams.commits.origins import Origin, range_key
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import holders
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots

_SCAN = "StreamingDataSourceV2ScanRelation"
_NOTHING = "LocalRelation"
_OFFSET = {"reader", "at", "stream", "slot"}
"""The fields of every offset of a stream."""
_PARTS = frozenset(
    {
        "Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "GlobalLimit", "Intersect", "Join",
        "Limit", "LocalLimit", "Offset", "Sample", "Tail",
    }
)  # fmt: skip
_DEEPEST = 100


# Notes


def note(ledger: Ledger, batch: MicroBatch, read: Range) -> None:
    """Records that a batch reads a range. The range is the batch's: any attempt of any task may record it."""
    notes = _key(ledger.core, batch)
    ledger.store.send(
        [
            command("SADD", notes, read.dump()),
            command("EXPIRE", notes, RECORD_TTL),
            holders.note_request(ledger.core, read, batch.query, batch.number),
        ]
    )


def ranges(core: Core, batch: MicroBatch) -> Operation[tuple[Range, ...]]:
    """Returns the recorded ranges of a batch. Raises UnreadableRecord."""
    [found] = yield [command("SMEMBERS", _key(core, batch))]
    merged: dict[Range, list[str]] = {}
    for one in map(Range.load, sorted(found)):
        merged.setdefault(replace(one, skipped=""), []).append(one.skipped)
    return tuple(replace(one, skipped=" ".join(filter(None, all_of))) for one, all_of in merged.items())


def noted(ledger: Ledger, batch: MicroBatch) -> tuple[Range | Roots, ...]:
    """Returns the ranges and roots that tasks of a batch have recorded."""
    asked: list[Operation[Any]] = [
        ranges(ledger.core, batch),
        batch_roots.read_registered(ledger.core, batch),
    ]
    read, tracked = ledger.run(abreast(asked))
    return (*read, *tracked)


def forget(ledger: Ledger, batch: MicroBatch) -> None:
    """Deletes the records of a batch."""
    ledger.run(forgetting(ledger.core, batch))


def forgetting(core: Core, batch: MicroBatch) -> Operation[None]:
    """Deletes the records of a batch."""
    yield [command("UNLINK", _key(core, batch)), batch_roots.forget_request(core, batch)]


def unread(ledger: Ledger, batch: MicroBatch) -> str:
    """Returns the error of a batch of anchored rows with no recorded input."""
    return (
        f"the inputs of batch {batch.number} are unknown, so rows cannot be anchored to it: is its "
        f"stream of another topology than {ledger.config.name!r}? Or do its rows come from Spark's own state "
        "(an aggregate, a join of streams)? The rows in that state were acked when they were read: "
        "collector.hold keeps rows for a later batch. Or are they of track(..., observe=True)? Then give the "
        "bolt observe=True, too"
    )


def _key(core: Core, batch: MicroBatch) -> bytes:
    return keys.notes(core.config.name, batch.query, batch.run, batch.number)


# Plans


@dataclass(frozen=True, slots=True)
class Plan:
    """Spark's plan of a batch.

    ranges: ranges of streams. others: True if it reads other sources, too. topologies: the topologies of its
    streams, if Spark tells. origin: all its inputs. steady: True if each evaluation gives the same rows, by
    Spark's knowledge.
    """

    ranges: tuple[Range, ...]
    others: bool
    topologies: frozenset[str]
    origin: Origin
    steady: bool

    def noted(self, noted: Sequence[Range]) -> bool:
        """Return True if all ranges of streams are recorded."""
        # Before Spark 4.2 readers have no names of their own: so ranges are counted.
        return Counter(map(range_key, self.ranges)) <= Counter(map(range_key, noted))


def _planned(spark: SparkSession, query: str) -> Plan | None:
    """Returns the plan of the batch that a query works on; None if Spark does not tell, as on Connect.

    spark: the session of the batch.
    """
    if not hasattr(spark, "sparkContext"):
        return None
    try:
        jvm: Any = spark.sparkContext._jvm
        active = spark._jsparkSession.sharedState().activeStreamingQueries()
        return _plan(active.get(jvm.java.util.UUID.fromString(query)))
    except (AttributeError, KeyError, Py4JError, TypeError, ValueError):  # it is built in another way
        return None


def origin_of(spark: SparkSession, batch: MicroBatch) -> Origin | None:
    """The inputs of a batch that a query works on; None if Spark does not tell."""
    plan = _planned(spark, batch.query)
    return None if plan is None else plan.origin


def _plan(execution: Any) -> Plan:
    plan = execution.lastExecution().optimizedPlan()
    leaves, others, topologies = plan.collectLeaves(), False, set()
    ranges: dict[int, Range] = {}
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        kind = leaf.getClass().getSimpleName()
        end = json.loads(leaf.endOffset().get().json()) if kind == _SCAN else None
        if isinstance(end, dict) and end.keys() >= _OFFSET:
            start = json.loads(leaf.startOffset().get().json())
            topologies.add(_topology(leaf))
            if end["at"] > start["at"]:  # no task reads an empty range, so none notes it
                # A source that is in several places of the plan is read in each of them.
                read = Range(end["stream"], end["slot"], end["reader"], start["at"], end["at"])
                ranges[leaf.stream().hashCode()] = read
        else:
            others = others or kind != _NOTHING
    origin = Origin(frozenset(map(range_key, ranges.values())), _others(execution) if others else "")
    names = frozenset(filter(None, topologies))
    return Plan(tuple(ranges.values()), others, names, origin, bool(plan.deterministic()))


def _others(execution: Any) -> str:
    """Returns a digest of the batch, for the data of sources that are not acker's streams.

    Offsets alone are not enough: for files they are numbers of batches. The time of a batch is in its plan,
    and in its checkpoint: a batch that runs again has the same time.
    """
    ends: list[object] = [execution.lastExecution().offsetSeqMetadata().batchTimestampMs()]
    for progress in (execution.committedOffsets(), execution.availableOffsets()):
        offsets, each = [], progress.valuesIterator()
        while each.hasNext():
            offset = each.next().json()
            parsed = json.loads(offset)
            if not (isinstance(parsed, dict) and parsed.keys() >= _OFFSET):
                offsets.append(offset)
        ends.append(sorted(offsets))
    return hashlib.sha256(json.dumps(ends).encode()).hexdigest()


def _topology(leaf: Any) -> str:
    """Returns the name of a source; "" if Spark does not tell."""
    try:
        return str(leaf.relation().options().get("topology") or "")
    except (AttributeError, Py4JError, TypeError):
        return ""


# The batch of a bolt


def part_by(batch: DataFrame) -> str:
    """Returns the operator that makes a DataFrame a part of its source; "" if there is none.

    Returns "" also if Spark does not tell, and above a union, whose sides it does not examine.
    """
    classic = hasattr(batch.sparkSession, "sparkContext")
    try:
        node: Any = batch._jdf.queryExecution().analyzed() if classic else batch._plan
        for _ in range(_DEEPEST):
            kind = node.getClass().getSimpleName() if classic else type(node).__name__
            if kind in _PARTS:
                return str(kind)
            if classic and node.children().size() != 1:
                return ""
            node = node.children().apply(0) if classic else node._child
    except (AttributeError, Py4JError, TypeError):
        pass
    return ""


class BatchInputs:
    """The inputs of a bolt's batch.

    root: on Spark Connect, the session that started the query. origin: all inputs of the batch; None if they
    are unknown before its function has read them. ranges: the planned ranges of streams.
    """

    def __init__(self, ledger: Ledger, batch: DataFrame, at: MicroBatch, root: SparkSession | None) -> None:
        self.ledger = ledger
        self.batch = batch
        self.at = at
        self._root = root
        self._plan = plan = _planned(batch.sparkSession, at.query)
        self.ranges: tuple[Range, ...] = plan.ranges if plan is not None else ()
        self.origin = plan.origin if plan is not None else self._stored_origin()
        self.anchored = any(name.lower() == ANCHORS for name in batch.columns)

    def check_topology(self, bolt: str) -> None:
        """Raises AckerError if a batch reads streams that the bolt's commit cannot ack."""
        topology = self.ledger.config.name
        others = ", ".join(sorted(self._plan.topologies - {topology})) if self._plan is not None else ""
        if others:
            raise AckerError(
                f"bolt {bolt!r} is of topology {topology!r}, so it cannot ack rows of {others}: a "
                "query reads the streams of one topology"
            )

    @contextmanager
    def same_rows(self) -> Iterator[None]:
        """Makes all evaluations of the batch give the same rows while the block lasts, for any query.

        A row that each of two evaluations filters out would be acked without a result. Queries that track
        rows compare the rows of their evaluations themselves (acker/spark/queries/batch_roots.py).
        """
        if self._plan is None or self._plan.steady or self._plan.others:
            yield
            return
        self.batch.persist()
        try:
            yield
        finally:
            self.batch.unpersist()

    def read(self, *, failed: bool, staged: bool, looked: bool = False) -> tuple[Range | Roots, ...]:
        """Returns all inputs of the batch after the end of the bolt's function, and evaluates unread ones.

        failed: the function has failed its batch. staged: it has emitted or failed rows. looked: all rows
        of the batch were evaluated for their stamps. Raises AckerError if the inputs are unknown.
        """
        inputs = self._noted()
        looked = looked and self._plan is not None and not self.ranges and not self.anchored
        if not looked and not self._in_whole(inputs, failed, staged):
            # A return acks, and a failure fails, also rows that the function has not read.
            self._evaluate()
            inputs = self._noted()
        if not inputs and self.anchored and not self.batch.isEmpty():
            raise AckerError(unread(self.ledger, self.at))
        if self.origin is None:
            read = [one for one in inputs if isinstance(one, Range)]
            self.origin = Origin.from_ranges(read, batch_roots.time_of(self.ledger, self.at), whole=False)
        return inputs

    def _noted(self) -> tuple[Range | Roots, ...]:
        """Returns the recorded inputs that the plan has: no others are acked with the batch."""
        found, planned = noted(self.ledger, self.at), set(map(range_key, self.ranges))
        return tuple(
            one for one in found if self._plan is None or isinstance(one, Roots) or range_key(one) in planned
        )

    def _in_whole(self, inputs: Sequence[Range | Roots], failed: bool, staged: bool) -> bool:
        """Return True if the function has read all of its batch, so that all inputs are known.

        If that is unknown, a function that has emitted or failed rows counts as having read all.
        """
        if not inputs:
            return False
        read = [one for one in inputs if isinstance(one, Range)]
        if self._plan is not None:
            # The number of tasks that make roots is unknown; the roots of a failed batch must be known.
            return self._plan.noted(read) and not (failed and self._plan.others)
        if staged and not failed:
            return True
        sources = self._sources()
        return sources is not None and sources <= len(read)

    def _sources(self) -> int | None:
        """Returns the number of the query's sources by its last progress; None in its first batch."""
        query = self._root.streams.get(self.at.query) if self._root is not None else None
        progress = query.lastProgress if query is not None else None
        return len(progress["sources"]) if progress else None

    def _stored_origin(self) -> Origin | None:
        """Returns the origin of a batch without a known plan; None if no earlier run has stored a commit.

        Otherwise the notes of its tasks are the origin; it is evaluated for them alone, without the function.
        """
        core, at = self.ledger.core, self.at
        if not self.ledger.run(record.is_stored(core, at.query, at.number)):
            return None
        self._evaluate()
        return Origin.from_ranges(self.ledger.run(ranges(core, at)), batch_roots.time_of(self.ledger, at))

    def _evaluate(self) -> None:
        self.batch.write.format("noop").mode("overwrite").save()
