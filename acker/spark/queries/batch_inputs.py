"""What a batch is made of, and whether its tasks have read all of that.

Tasks note for the driver which ranges of streams they read, and which roots they make of other rows. Notes
are of one run of a query: what a run that was cut short has read, the next one need not read. A function that
looks at a part of its batch (`isEmpty`, `first`, `take`) starts some of the tasks only, so it may leave
streams unread that the batch is of, too: what Spark has planned tells.
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
from acker.store.operation import Operation, command
from acker.streams.commits import record
from acker.streams.commits.origins import Origin, key
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import holders
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots

_SCAN = "StreamingDataSourceV2ScanRelation"
_NOTHING = "LocalRelation"
_OFFSET = {"reader", "at", "stream", "slot"}
"""What every offset of a stream has."""
_PARTS = frozenset(
    {
        "Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "GlobalLimit", "Intersect", "Join",
        "Limit", "LocalLimit", "Offset", "Sample", "Tail",
    }
)  # fmt: skip
_DEEPEST = 100


# Notes


def note(ledger: Ledger, batch: MicroBatch, read: Range) -> None:
    """Notes that a batch reads a range. The range is the batch's: any attempt of any task may note it."""
    notes = _key(ledger.core, batch)
    ledger.store.send(
        [
            command("SADD", notes, read.dump()),
            command("EXPIRE", notes, RECORD_TTL),
            holders.noting(ledger.core, read, batch.query, batch.number),
        ]
    )


def ranges(core: Core, batch: MicroBatch) -> Operation[tuple[Range, ...]]:
    """The ranges that a batch reads, as far as noted. Raises UnreadableRecord."""
    [found] = yield [command("SMEMBERS", _key(core, batch))]
    merged: dict[Range, list[str]] = {}
    for one in map(Range.load, sorted(found)):
        merged.setdefault(replace(one, skipped=""), []).append(one.skipped)
    return tuple(replace(one, skipped=" ".join(filter(None, all_of))) for one, all_of in merged.items())


def noted(ledger: Ledger, batch: MicroBatch) -> tuple[Range | Roots, ...]:
    """The ranges and the roots that tasks of a batch have noted."""
    return (*ledger.run(ranges(ledger.core, batch)), *batch_roots.registered(ledger, batch))


def forget(ledger: Ledger, batch: MicroBatch) -> None:
    """Drops what tasks have noted of a batch."""
    ledger.store.send([command("UNLINK", _key(ledger.core, batch))])
    batch_roots.forget(ledger, batch)


def unread(ledger: Ledger, batch: MicroBatch) -> str:
    """The error of a batch of anchored rows of which nobody knows where it was read."""
    return (
        f"nobody knows what batch {batch.number} was read from, so rows cannot be anchored to it: is its "
        f"stream of another topology than {ledger.config.name!r}? Or do its rows come from Spark's own state "
        "(an aggregate, a join of streams)? What went into that was acked when it was read: collector.hold "
        "keeps rows for a later batch"
    )


def _key(core: Core, batch: MicroBatch) -> bytes:
    return keys.notes(core.config.name, batch.query, batch.run, batch.number)


# Plans


@dataclass(frozen=True, slots=True)
class Plan:
    """What Spark has planned for a batch.

    ranges: of streams; others: whether it reads anything else, too. topologies: names of those whose streams
    it reads, as far as Spark tells. origin: all that it reads. steady: each evaluation gives the same rows,
    as far as Spark knows.
    """

    ranges: tuple[Range, ...]
    others: bool
    topologies: frozenset[str]
    origin: Origin
    steady: bool

    def noted(self, noted: Sequence[Range]) -> bool:
        """Whether all ranges of streams are noted."""
        # Before Spark 4.2 readers have no names of their own: so ranges are counted.
        return Counter(map(key, self.ranges)) <= Counter(map(key, noted))


def _planned(spark: SparkSession, query: str) -> Plan | None:
    """The plan of the batch that a query works on; None where Spark does not tell, as on Spark Connect.

    spark: the batch's session.
    """
    if not hasattr(spark, "sparkContext"):
        return None
    try:
        jvm: Any = spark.sparkContext._jvm
        active = spark._jsparkSession.sharedState().activeStreamingQueries()
        return _plan(active.get(jvm.java.util.UUID.fromString(query)))
    except (AttributeError, KeyError, Py4JError, TypeError, ValueError):  # it is built in another way
        return None


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
    origin = Origin(frozenset(map(key, ranges.values())), _others(execution) if others else "")
    names = frozenset(filter(None, topologies))
    return Plan(tuple(ranges.values()), others, names, origin, bool(plan.deterministic()))


def _others(execution: Any) -> str:
    """A digest of the batch at hand, for what its sources read that are no streams of ours.

    Offsets alone would not do: those of files are numbers of batches. The time of a batch is of its plan, and
    in its checkpoint with it: a batch that runs again has it again.
    """
    ends: list[object] = [execution.lastExecution().offsetSeqMetadata().batchTimestampMs()]
    for progress in (execution.committedOffsets(), execution.availableOffsets()):
        found, each = [], progress.valuesIterator()
        while each.hasNext():
            offset = each.next().json()
            parsed = json.loads(offset)
            if not (isinstance(parsed, dict) and parsed.keys() >= _OFFSET):
                found.append(offset)
        ends.append(sorted(found))
    return hashlib.sha256(json.dumps(ends).encode()).hexdigest()


def _topology(leaf: Any) -> str:
    """The name that a source was given; "" where Spark does not tell."""
    try:
        return str(leaf.relation().options().get("topology") or "")
    except (AttributeError, Py4JError, TypeError):
        return ""


# The batch of a bolt


def part_by(batch: DataFrame) -> str:
    """The operator that makes a DataFrame a part of what it comes from; "" where there is none.

    "" also where Spark does not tell, and above a union, whose sides it does not look at.
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
    """What the batch of a bolt is made of.

    root: on Spark Connect, the session that has started the query. origin: all that the batch reads; None
    where that is not known before its function has read it. ranges: of streams, as far as planned.
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
        """Raises AckerError where a batch reads streams that the bolt's commit cannot ack."""
        own = self.ledger.config.name
        others = ", ".join(sorted(self._plan.topologies - {own})) if self._plan is not None else ""
        if others:
            raise AckerError(
                f"bolt {bolt!r} is of topology {own!r}, so it cannot ack what its batch reads of {others}: a "
                "query reads the streams of one topology"
            )

    @contextmanager
    def same_rows(self) -> Iterator[None]:
        """While the block lasts, all that evaluates the batch gets the same rows, whatever its query calls.

        A row that is filtered out in each of two evaluations is in the result of neither, and would be acked.
        Evaluations of what a query tracks by itself compare their rows (acker/spark/queries/batch_roots.py).
        """
        if self._plan is None or self._plan.steady or self._plan.others:
            yield
            return
        self.batch.persist()
        try:
            yield
        finally:
            self.batch.unpersist()

    def read(self, *, failed: bool, staged: bool) -> tuple[Range | Roots, ...]:
        """All that the batch is made of, when the bolt's function has ended. Evaluates what that left unread.

        failed: the function has failed its batch; staged: it has emitted or failed rows.
        Raises AckerError where nobody knows what the batch's rows were read from.
        """
        inputs = self._noted()
        if not self._in_whole(inputs, failed, staged):
            # Returning acks, and failing fails, also what the function has not read.
            self._evaluate()
            inputs = self._noted()
        if not inputs and self.anchored and not self.batch.isEmpty():
            raise AckerError(unread(self.ledger, self.at))
        if self.origin is None:
            read = [one for one in inputs if isinstance(one, Range)]
            self.origin = Origin.of(read, batch_roots.time_of(self.ledger, self.at), whole=False)
        return inputs

    def _noted(self) -> tuple[Range | Roots, ...]:
        """What tasks have noted, as far as the plan has it: nothing else is acked with the batch."""
        found, planned = noted(self.ledger, self.at), set(map(key, self.ranges))
        return tuple(
            one for one in found if self._plan is None or isinstance(one, Roots) or key(one) in planned
        )

    def _in_whole(self, inputs: Sequence[Range | Roots], failed: bool, staged: bool) -> bool:
        """Whether the function has read all of its batch, so that all inputs are known.

        Where that cannot be known, one that has emitted or failed rows is taken to have.
        """
        if not inputs:
            return False
        read = [one for one in inputs if isinstance(one, Range)]
        if self._plan is not None:
            # How many tasks make roots, nobody tells: those of a failed batch have to be known.
            return self._plan.noted(read) and not (failed and self._plan.others)
        if staged and not failed:
            return True
        sources = self._sources()
        return sources is not None and sources <= len(read)

    def _sources(self) -> int | None:
        """How many sources the query has, as its last progress tells: from its second batch on, or None."""
        query = self._root.streams.get(self.at.query) if self._root is not None else None
        progress = query.lastProgress if query is not None else None
        return len(progress["sources"]) if progress else None

    def _stored_origin(self) -> Origin | None:
        """What a batch of no known plan reads; None where no earlier run of it has stored a commit.

        Otherwise its tasks tell, who read it for that alone: the function is not called again.
        """
        core, at = self.ledger.core, self.at
        if not self.ledger.run(record.known(core, at.query, at.number)):
            return None
        self._evaluate()
        return Origin.of(self.ledger.run(ranges(core, at)), batch_roots.time_of(self.ledger, at))

    def _evaluate(self) -> None:
        self.batch.write.format("noop").mode("overwrite").save()
