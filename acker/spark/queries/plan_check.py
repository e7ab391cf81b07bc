"""Verdicts on a query's plan: its operators with state, and the rows that they work on.

State and trees do not go together. Spark's state swallows the replay of a record that it has seen
(`dropDuplicates`, `limit`), or keeps rows that a later batch emits (aggregates, joins of streams), while the
batch that read them acks their tuples. So nothing of such a query is acked.

The committing process of a query that writes by itself does not see its plan. The driver sees it, and leaves
a record of its verdict (acker/spark/queries/query_listener.py).

Terms: a tree is all that comes of one record; roots are rows of a spout that were staged together, and get a
tree each.
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
from acker.spark.queries.microbatches import TRACKS, MicroBatch
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import Record
from acker.streams.commits import origins
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import subscriptions
from acker.streams.log.subscriptions import DEFAULT, Range
from acker.streams.sources.roots import Roots

_NOT_SAID = (
    "Spark does not tell here if the query has an operator that keeps state (dropDuplicates, limit, an "
    "aggregate, a join of streams, ...). Such an operator would silently lose rows that have trees, so "
    "nothing was acked. Write with a bolt, or, if the query has none, set the option stateless=true"
)
_UNLOGGED = (
    "the query tracks its progress asynchronously (asyncProgressTrackingEnabled): its checkpoint lacks "
    "batches that have begun, so after a crash other rows would come under the number of a batch that is "
    "committed. Nothing was acked; start the query without that option"
)
_BY_ITSELF = (
    "the query writes rows that have trees to {sink} by itself: nothing of them would be acked, and their "
    "records would be replayed for ever. Write in a bolt, by writeStream.foreachBatch(bolt), and there by "
    "collector.emit(rows, stream, to=...): acker.spark.kafka.to(servers, topic), or a function of a writer"
)
ANY = "*"
"""All streams, if the rows of an operator are unknown."""
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
"""The verdicts on plans, by the run of their query."""
_sound = set[str]()  # runs of queries whose sinks this process has looked at
_MOST_OTHERS, _LONGEST_NAME = 16, 200
_NODE = re.compile(r"^(?P<indent>[\s:|+*-]*?)(?:\*\(\d+\) |\* )?(?P<name>[A-Za-z]\w*)(?P<rest>.*)$")


@dataclass(frozen=True, slots=True)
class Verdict(Record, label="the verdict on a query"):
    """A verdict on a plan.

    Attributes:
        operators: The operator with state over each stream.
        tracked: The operator with state over rows of `acker.spark.track`.
        twice: Streams that the query reads in two places for one subscription.
        others: Its other sources, by Spark's names.
        application_id: The id of the driver's application, or "".
        application: The name of the driver's application, or "".
        logged: The last batch in the checkpoint when the run began; -1 for none.
        logged_at: The time of that batch (ms), or "".
        unlogged: True if Spark logs progress asynchronously, so it begins batches that its checkpoint lacks.
        sink: The place to which it writes rows by itself, where nothing of them is acked; else "".
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
    sink: str = ""

    def planned(self, batch: MicroBatch) -> str:
        """Returns the planning of a batch, for its origin: another batch may have its number."""
        if batch.number > self.logged:
            return origins.run_identity(batch.run)
        return origins.time_identity(self.logged_at) if self.logged_at and batch.number == self.logged else ""


def record(core: Core, query: str, run: str, verdict: Verdict) -> Operation[None]:
    """Records the verdict on a run of a query."""
    yield [command("SET", keys.verdict(core.config.name, query, run), verdict.dump(), "EX", RECORD_TTL)]


def read(core: Core, batch: MicroBatch) -> Operation[Verdict | None]:
    """Returns the verdict on a batch's run; None if there is none. Raises UnreadableRecord."""
    key = keys.verdict(core.config.name, batch.query, batch.run)
    [stored, _] = yield [command("GET", key), command("EXPIRE", key, RECORD_TTL)]
    return None if stored is None else Verdict.load(stored)


def forget(core: Core, query: str, run: str) -> Operation[None]:
    """Deletes the verdict on a run."""
    yield [command("UNLINK", keys.verdict(core.config.name, query, run))]


def check_sink(ledger: Ledger, batch: MicroBatch) -> None:
    """Raises UnsafePlan in a task of rows with trees whose query writes them to a sink of Spark's."""
    if batch.run not in _sound:
        found = ledger.run(read(ledger.core, batch))
        if found is not None and found.sink:
            raise UnsafePlan(_BY_ITSELF.format(sink=found.sink))
        _sound.add(batch.run)


def check_inputs(
    ledger: Ledger, verdict: Verdict | None, inputs: Sequence[Range | Roots], *, stateless: bool
) -> None:
    """Checks a batch with known inputs, as `check` does. Without a verdict, trees are refused.

    stateless: True if the user declares that no operator of the query keeps state.
    """
    ranges = [read for read in inputs if isinstance(read, Range)]
    readers = {(read.stream, read.slot): read.reader for read in ranges}
    twice = tuple(read.stream for read in ranges if readers[read.stream, read.slot] != read.reader)
    if verdict is not None or twice:
        known = verdict or Verdict()
        check(ledger, replace(known, twice=twice or known.twice), ranges)
    if verdict is not None or stateless or not ledger.config.ackers:
        return
    if len(ranges) < len(inputs) or any(ledger.run(has_trees(ledger.core, read)) for read in ranges):
        raise UnsafePlan(_NOT_SAID)


def check(ledger: Ledger, verdict: Verdict, ranges: Iterable[Range]) -> None:
    """Raises UnsafePlan if an operator with state is over rows with trees, or a stream is read twice.

    Also if Spark may give the batch's number to another batch. ranges: the ranges that the batch reads.
    """
    if verdict.unlogged:
        raise UnsafePlan(_UNLOGGED)
    if verdict.twice:
        raise UnsafePlan(
            f"the query reads stream {verdict.twice[0]!r} in two places for one subscription, so each of "
            "them has a part of its rows, and a self-join finds nothing: give each a subscription of its own "
            '(.option("subscription", name)), and start with a new checkpoint'
        )
    if not ledger.config.ackers:
        return
    if verdict.tracked:
        raise UnsafePlan(_message(verdict.tracked, "rows of acker.spark.track"))
    for taken in ranges:
        operator = verdict.operators.get(taken.stream) or verdict.operators.get(ANY)
        if operator is not None and ledger.run(has_trees(ledger.core, taken)):
            raise UnsafePlan(_message(operator, f"rows of stream {taken.stream!r}, which have trees"))


def has_trees(core: Core, read: Range) -> Operation[bool]:
    """Return True if a range has rows with trees."""
    start = read.start
    while True:
        rest = Range(read.stream, read.slot, read.reader, start, read.end)
        deliveries = yield from subscriptions.delivered(core, rest)
        if not deliveries:
            return False
        if any(piece.segment.shards for piece in deliveries):
            return True
        start = deliveries[-1].number


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
        """The topology, the name and the subscription of the stream."""
        return self.options.get("topology", ""), self.options["stream"], self.subscription or DEFAULT

    @property
    def subscription(self) -> str:
        """The named subscription, or ""."""
        return self.options.get("subscription", "")


class AnalyzedPlan:
    """The sources in a query's plan that are acker's streams, and the operators with state over them."""

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
        """Returns the verdict on the query."""
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
            above = ""  # the rows below have no trees yet
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
        """Returns the children of a node. A query named by WITH is below each reference to it, not here."""
        children = node.children()
        nodes = [children.apply(place) for place in range(children.size())]
        if name == "WithCTE":
            self._named |= {int(one.id()): one for one in nodes if one.nodeName() == "CTERelationDef"}
            return [one for one in nodes if one.nodeName() != "CTERelationDef"]
        if name == "CTERelationRef":
            # Once for the operator above: references to references would be too many.
            place = int(node.cteId()), above
            definition = self._named.get(place[0])
            if definition is not None and place not in self._seen:
                self._seen.add(place)
                return [definition]
        return nodes


def _named(node: str, names: dict[str, str]) -> str:
    """Returns the users' name of an operator, if it keeps state; otherwise ""."""
    if node in names:
        return names[node]
    for name, called in names.items():
        if "WithState" in name and node.startswith(name):
            return called
    return node if "WithState" in node or "StateStore" in node else ""


def _options(leaf: Any) -> dict[str, str]:
    """Returns the options of an acker source that reads a stream; none for any other source."""
    if leaf.nodeName() != "StreamingRelationV2" or leaf.sourceName() != "acker":
        return {}
    entries = leaf.extraOptions().asCaseSensitiveMap().entrySet().toArray()
    options = {str(one.getKey()).lower(): str(one.getValue()) for one in entries}
    return {} if options.get("dead_letters", "false").lower() == "true" else options


def _other(leaf: Any) -> str:
    """Returns Spark's name of another source, with the topics of Kafka's; "" for acker's."""
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
    """Returns the verdict on the plan of a batch's query; None if Spark does not tell.

    root: on Spark Connect, the session that started the query.
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
    """Returns the verdict by the physical plan of a query's batch, printed as text."""
    running = root.streams.get(query) if root is not None else None
    if running is None:
        return None
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        running.explain()
    return of_text(text.getvalue())


def of_text(plan: str) -> Verdict | None:
    """Returns the verdict by a physical plan that is printed as a tree; None for other text.

    The plan does not name the streams.
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
    """Yields for each node of a plan the operator with state above it, its name, and its line's rest."""
    over: list[tuple[int, str]] = []
    for line in plan.splitlines():
        match = _NODE.match(line)
        if match is None or line.startswith("=="):
            continue
        depth, name = len(match["indent"]), match["name"]
        while over and over[-1][0] >= depth:
            over.pop()
        tracks = name == "MapInArrow" and TRACKS in match["rest"]
        yield over[-1][1] if over else "", name, match["rest"]
        above = "" if tracks or not over else over[-1][1]
        over.append((depth, "" if tracks else above or _named(name, _PHYSICAL)))
