"""Verdicts on a query's plan: which of its operators keep state, and over which rows.

State and trees do not go together. Spark's state swallows the replay of a record that it has seen
(`dropDuplicates`, `limit`), or keeps what is emitted with a later batch (aggregates, joins of streams); its
tuples are acked with the batch that read them all the same. So nothing of such a query is acked.

A query that writes by itself is committed by a process that does not see its plan: the driver, which does,
leaves it a record of what it has found (acker/spark/queries/query_listener.py).
"""

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from acker.errors import UnsafePlan
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.spark.queries.batch_roots import TRACKS
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import Record
from acker.streams.commits import origins
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import subscriptions
from acker.streams.log.subscriptions import DEFAULT, Range
from acker.streams.sources.roots import Roots

_NOT_SAID = (
    "Spark does not tell here whether the query has an operator that keeps state (dropDuplicates, limit, an "
    "aggregate, a join of streams, ...); over rows that have trees it would lose some without a word, so "
    "nothing was acked. Write with a bolt, or, if the query has none, say so by the option stateless=true"
)
_UNLOGGED = (
    "the query tracks its progress asynchronously (asyncProgressTrackingEnabled): its checkpoint lacks "
    "batches that have begun, so after a crash other rows would come under the number of a batch that is "
    "committed. Nothing was acked; start the query without that option"
)
ANY = "*"
"""Stands for all streams, where it is not known over which of them an operator is."""
_REPLAYED = ("dropDuplicates", "distinct", "limit", "intersect", "except")
_KEYED = (
    "its state has seen a record when the replay of it comes, which would be acked and dropped. Do that in "
    "the function of a bolt: collector.once knows the keys of earlier batches"
)
_KEPT_BACK = (
    "its state keeps rows for a later batch, and they would be acked before that has emitted anything. Keep "
    "them with collector.hold, and do that in the function of a bolt"
)
_LOGICAL = {
    "Aggregate": "an aggregate",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "Except": "except",
    "GlobalLimit": "limit",
    "Intersect": "intersect",
    "Join": "a join of streams",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
}
_PHYSICAL = {
    "StreamingDeduplicate": "dropDuplicates",
    "StreamingDeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "StreamingGlobalLimit": "limit",
    "StreamingSymmetricHashJoin": "a join of streams",
    "StateStoreSave": "an aggregate",
    "StateStoreRestore": "an aggregate",
    "SessionWindowStateStoreSave": "an aggregate",
    "SessionWindowStateStoreRestore": "an aggregate",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
}
_ASYNCHRONOUS = "AsyncProgressTrackingMicroBatchExecution"
_TOPICS = ("subscribe", "subscribePattern", "assign")
_MOST_RUNS = 1_000
_known: dict[str, "Verdict | None"] = {}
"""Run of a query -> what is known of its plan."""
_MOST_OTHERS = 16
_LONGEST_NAME = 200
_NODE = re.compile(r"^(?P<indent>[\s:|+*-]*?)(?:\*\(\d+\) |\* )?(?P<name>[A-Za-z]\w*)(?P<rest>.*)$")


@dataclass(frozen=True, slots=True)
class Verdict(Record, what="what is known of a query"):
    """operators: stream -> the operator with state over it. tracked: that over rows of `acker.spark.track`.

    twice: streams that the query reads in two places for one subscription. others: what else it reads, as
    Spark names it. application_id, application: of the driver, "" where that is not known. logged: number of
    the last batch that the checkpoint had when the run began; -1 where none. logged_at: its time (ms), ""
    where unknown. unlogged: Spark tracks the query's progress asynchronously, so it begins batches that its
    checkpoint does not have.
    """

    operators: Mapping[str, str] = field(default_factory=dict)
    tracked: str = ""
    twice: tuple[str, ...] = ()
    logged: int = -1
    logged_at: str = ""
    others: tuple[str, ...] = ()
    application_id: str = ""
    application: str = ""
    unlogged: bool = False

    def planned(self, batch: MicroBatch) -> str:
        """What tells of a batch, as an origin has it: a commit of its number may be of another one."""
        if batch.number > self.logged:
            return origins.by(batch.run)
        return origins.at(self.logged_at) if self.logged_at and batch.number == self.logged else ""


def record(core: Core, query: str, run: str, found: Verdict) -> Operation[None]:
    """Notes what is known of a run of a query."""
    yield [command("SET", keys.verdict(core.config.name, query, run), found.dump(), "EX", RECORD_TTL)]


def read(core: Core, batch: MicroBatch) -> Operation[Verdict | None]:
    """The verdict on the run that a batch is of; None where nobody could tell. Raises UnreadableRecord."""
    key = keys.verdict(core.config.name, batch.query, batch.run)
    [found, _] = yield [command("GET", key), command("EXPIRE", key, RECORD_TTL)]
    return None if found is None else Verdict.load(found)


def forget(core: Core, query: str, run: str) -> Operation[None]:
    """Drops what is known of a run."""
    yield [command("UNLINK", keys.verdict(core.config.name, query, run))]


def check_inputs(
    ledger: Ledger, found: Verdict | None, inputs: Sequence[Range | Roots], *, stateless: bool
) -> None:
    """As `check`, of a batch whose inputs are known. Where nobody could tell, trees are refused.

    stateless: the user says that no operator of the query keeps state.
    """
    ranges = [one for one in inputs if isinstance(one, Range)]
    readers = {(one.stream, one.slot): one.reader for one in ranges}
    twice = tuple(one.stream for one in ranges if readers[one.stream, one.slot] != one.reader)
    if found is not None or twice:
        known = found or Verdict()
        check(ledger, replace(known, twice=twice or known.twice), ranges)
    if found is not None or stateless or not ledger.config.ackers:
        return
    if len(ranges) < len(inputs) or any(ledger.run(has_trees(ledger.core, one)) for one in ranges):
        raise UnsafePlan(_NOT_SAID)


def check(ledger: Ledger, found: Verdict, ranges: Iterable[Range]) -> None:
    """Raises UnsafePlan where an operator with state is over rows that have trees, or a stream is read twice.

    Also where Spark may give the batch's number to another batch. ranges: what the batch reads of streams.
    """
    if found.unlogged:
        raise UnsafePlan(_UNLOGGED)
    if found.twice:
        raise UnsafePlan(
            f"the query reads stream {found.twice[0]!r} in two places for one subscription, so each of them "
            "has a part of its rows, and a self-join finds nothing: give each a subscription of its own "
            '(.option("subscription", name)), and start with a new checkpoint'
        )
    if not ledger.config.ackers:
        return
    if found.tracked:
        raise UnsafePlan(_message(found.tracked, "rows of acker.spark.track"))
    for one in ranges:
        operator = found.operators.get(one.stream) or found.operators.get(ANY)
        if operator is not None and ledger.run(has_trees(ledger.core, one)):
            raise UnsafePlan(_message(operator, f"rows of stream {one.stream!r}, which have trees"))


def has_trees(core: Core, what: Range) -> Operation[bool]:
    """Whether there are rows with trees in a range."""
    start = what.start
    while True:
        rest = Range(what.stream, what.slot, what.reader, start, what.end)
        found = yield from subscriptions.taken(core, rest)
        if not found:
            return False
        if any(piece.segment.shards for piece in found):
            return True
        start = found[-1].number


def _message(operator: str, over: str) -> str:
    why = _KEYED if operator.startswith(_REPLAYED) else _KEPT_BACK
    return f"the query has {operator} over {over}: {why}. Nothing was acked"


# Plans


@dataclass(frozen=True, slots=True)
class Source:
    """A stream that a query reads. options: of the data source. relation: Spark's, one for each source."""

    options: dict[str, str]
    relation: Any = field(compare=False)

    @property
    def place(self) -> tuple[str, str, str]:
        """Its topology, its name and its subscription."""
        return self.options.get("topology", ""), self.options["stream"], self.subscription or DEFAULT

    @property
    def subscription(self) -> str:
        """The subscription that was named, or ""."""
        return self.options.get("subscription", "")


class AnalyzedPlan:
    """What a query's plan has: the sources that are streams of ours, and operators with state over them."""

    def __init__(self, execution: Any) -> None:
        self.unlogged = str(execution.getClass().getSimpleName()) == _ASYNCHRONOUS
        self.sources: list[Source] = []
        self.operators: dict[str, str] = {}
        self.tracked = ""
        self.others: list[str] = []
        self._named = dict[int, Any]()
        self._seen = set[tuple[int, str]]()
        self._walk(execution.analyzedPlan(), "")

    def verdict(self, logged: int = -1, logged_at: str = "") -> Verdict:
        """The verdict on the query."""
        seen: dict[tuple[str, str, str], Any] = {}
        twice = {
            one.place[1]: True
            for one in self.sources
            if not seen.setdefault(one.place, one.relation).equals(one.relation)
        }
        others = tuple(dict.fromkeys(self.others[:_MOST_OTHERS]))
        found = Verdict(self.operators, self.tracked, tuple(twice), logged, logged_at, others)
        return replace(found, unlogged=self.unlogged)

    def _walk(self, node: Any, above: str) -> None:
        if not node.isStreaming():
            return
        name = node.nodeName()
        below = self._below(node, name, above)
        if name == "MapInArrow" and TRACKS in str(node.functionExpr().toString()):
            self.tracked = self.tracked or above
            above = ""  # what is below has no trees yet
        elif name != "Join" or all(child.isStreaming() for child in below):
            above = above or _named(name, _LOGICAL)
        if not below and (options := _options(node)):
            source = Source(options, node)
            self.sources.append(source)
            if above:
                self.operators.setdefault(source.place[1], above)
        elif not below and (other := _other(node)):
            self.others.append(other)
        for child in below:
            self._walk(child, above)

    def _below(self, node: Any, name: str, above: str) -> list[Any]:
        """What a node is made of. A query named by WITH is below each place that refers to it, not here."""
        children = node.children()
        found = [children.apply(place) for place in range(children.size())]
        if name == "WithCTE":
            self._named |= {int(one.id()): one for one in found if one.nodeName() == "CTERelationDef"}
            return [one for one in found if one.nodeName() != "CTERelationDef"]
        if name == "CTERelationRef":
            # Once for what is above: references to references would be too many.
            place = int(node.cteId()), above
            known = self._named.get(place[0])
            if known is not None and place not in self._seen:
                self._seen.add(place)
                return [known]
        return found


def _named(node: str, known: dict[str, str]) -> str:
    """How users call an operator, where it keeps state; otherwise ""."""
    if node in known:
        return known[node]
    for name, called in known.items():
        if "WithState" in name and node.startswith(name):
            return called
    return node if "WithState" in node or "StateStore" in node else ""


def _options(leaf: Any) -> dict[str, str]:
    """The options of a source of ours that reads a stream; none of any other."""
    if leaf.nodeName() != "StreamingRelationV2" or leaf.sourceName() != "acker":
        return {}
    entries = leaf.extraOptions().asCaseSensitiveMap().entrySet().toArray()
    options = {str(one.getKey()).lower(): str(one.getValue()) for one in entries}
    return {} if options.get("dead_letters", "false").lower() == "true" else options


def _other(leaf: Any) -> str:
    """How Spark names a source that is not ours, with the topics of one of Kafka's; "" for ours."""
    if not leaf.nodeName().startswith("StreamingRelation") or _options(leaf):
        return ""
    try:
        name = str(leaf.sourceName())
        if leaf.nodeName() == "StreamingRelationV2":
            known = (leaf.extraOptions().get(option) for option in _TOPICS)
            name += next((f"[{topics}]" for topics in known if topics), "")
    except Py4JError:  # only people read it
        name = str(leaf.nodeName())
    return name[:_LONGEST_NAME]


def of_batch(spark: SparkSession, at: MicroBatch, root: SparkSession | None) -> Verdict | None:
    """The verdict on the plan of a batch's query; None where Spark does not tell.

    root: on Spark Connect, the session that has started the query.
    """
    if at.run not in _known:
        classic = hasattr(spark, "sparkContext")
        _known[at.run] = _analyzed(spark, at.query) if classic else _explained(root, at.query)
        if len(_known) > _MOST_RUNS:
            del _known[next(iter(_known))]
    return _known[at.run]


def _analyzed(spark: SparkSession, query: str) -> Verdict | None:
    try:
        jvm: Any = spark.sparkContext._jvm
        active = spark._jsparkSession.sharedState().activeStreamingQueries()
        return AnalyzedPlan(active.get(jvm.java.util.UUID.fromString(query))).verdict()
    except (AttributeError, KeyError, Py4JError, TypeError, ValueError):  # it is built in another way
        return None


def _explained(root: SparkSession | None, query: str) -> Verdict | None:
    """What the physical plan of a query's batch tells, as text."""
    found = root.streams.get(query) if root is not None else None
    if found is None:
        return None
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        found.explain()
    return of_text(text.getvalue())


def of_text(plan: str) -> Verdict | None:
    """What a physical plan tells that is printed as a tree; None where it is none.

    Which streams it reads is not in it.
    """
    operators: dict[str, str] = {}
    tracked, leaves = "", 0
    for operator, name, rest in _lines(plan):
        if name == "MapInArrow" and TRACKS in rest:
            tracked = tracked or operator
            leaves += 1
        elif name == "MicroBatchScan":
            leaves += 1
            if operator:
                operators.setdefault(ANY, operator)
    return Verdict(operators, tracked) if leaves else None


def _lines(plan: str) -> Iterator[tuple[str, str, str]]:
    """Each node of a plan: the operator with state that it is under, its name, and what follows that."""
    over: list[tuple[int, str]] = []
    for line in plan.splitlines():
        found = _NODE.match(line)
        if found is None or line.startswith("=="):
            continue
        depth, name = len(found["indent"]), found["name"]
        while over and over[-1][0] >= depth:
            over.pop()
        tracks = name == "MapInArrow" and TRACKS in found["rest"]
        yield over[-1][1] if over else "", name, found["rest"]
        above = "" if tracks or not over else over[-1][1]
        over.append((depth, "" if tracks else above or _named(name, _PHYSICAL)))
