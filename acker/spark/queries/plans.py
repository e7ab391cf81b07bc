"""What Spark has planned for the batch at work, to compare with what tasks have noted that they read.

A function that looks at a part of its batch (`isEmpty`, `first`, `take`) starts some of the tasks only. So it
may leave streams unread that the batch is of, too.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from acker.streams.commits.origins import Key, Origin, key
from acker.streams.log.subscriptions import Range

_SCAN = "StreamingDataSourceV2ScanRelation"
_NOTHING = "LocalRelation"
_OFFSET = {"reader", "at", "stream", "slot"}
"""What every offset of a stream has."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch reads. ranges: of streams, readers with start and end; others: whether anything else, too.

    topologies: names of those whose streams it reads, as far as Spark tells. origin: all that it reads.
    named: the ranges with their streams. steady: each evaluation gives the same rows, as far as Spark knows.
    """

    ranges: "Counter[Key]"
    others: bool
    topologies: frozenset[str] = frozenset()
    origin: Origin | None = None
    named: tuple[Range, ...] = ()
    steady: bool = True

    def noted(self, noted: Sequence[Range]) -> bool:
        """Whether all ranges of streams are noted."""
        # Before Spark 4.2 readers have no names of their own: so ranges are counted.
        return self.ranges <= Counter(map(key, noted))

    def reads(self, one: Range) -> bool:
        """Whether a range is one of the batch's: nothing else is acked with it."""
        return key(one) in self.ranges


def planned(spark: SparkSession, query: str) -> Plan | None:
    """The plan of the batch that a query works on; None where Spark does not tell, as on Spark Connect.

    spark: the batch's session.
    """
    if not hasattr(spark, "sparkContext"):
        return None
    try:
        return _planned(spark, query)
    except (
        AttributeError,
        KeyError,
        Py4JError,
        TypeError,
        ValueError,
    ):  # a Spark that is built in another way
        return None


def _planned(spark: SparkSession, query: str) -> Plan:
    jvm: Any = spark.sparkContext._jvm
    active = spark._jsparkSession.sharedState().activeStreamingQueries()
    execution = active.get(jvm.java.util.UUID.fromString(query))
    plan = execution.lastExecution().optimizedPlan()
    leaves, others, topologies = plan.collectLeaves(), False, set()
    named: dict[int, Range] = {}
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
                named[leaf.stream().hashCode()] = read
        else:
            others = others or kind != _NOTHING
    ranges = Counter(map(key, named.values()))
    origin = Origin(frozenset(ranges), _others(execution) if others else "")
    names = frozenset(filter(None, topologies))
    steady = bool(plan.deterministic())
    return Plan(ranges, others, names, origin, tuple(named.values()), steady)


@contextmanager
def same_rows(batch: DataFrame, plan: Plan | None) -> Iterator[None]:
    """While the block lasts, all that evaluates a batch gets the same rows, whatever its query calls.

    A row that is filtered out in each of two evaluations is in the result of neither, and would be acked.
    Evaluations of what a query tracks by itself compare their rows (acker/spark/queries/batch_roots.py).
    """
    if plan is None or plan.steady or plan.others:
        yield
        return
    batch.persist()
    try:
        yield
    finally:
        batch.unpersist()


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


def sources(root: SparkSession | None, query: str) -> int | None:
    """How many sources a query has, as its last progress tells: from its second batch on, otherwise None.

    root: the session that has started the query, on Spark Connect.
    """
    found = root.streams.get(query) if root is not None else None
    progress = found.lastProgress if found is not None else None
    return len(progress["sources"]) if progress else None


_PARTS = frozenset(
    {
        "Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "GlobalLimit", "Intersect", "Join",
        "Limit", "LocalLimit", "Offset", "Sample", "Tail",
    }
)  # fmt: skip
_DEEPEST = 100


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
