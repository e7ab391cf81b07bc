"""Which operators of a query's plan keep state, and over which of its sources."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from acker.spark.queries.batch_roots import TRACKS
from acker.spark.queries.plan_check import ANY, Verdict
from acker.streams.log.subscriptions import DEFAULT

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
_MOST_OTHERS = 16
_LONGEST_NAME = 200
_NODE = re.compile(r"^(?P<indent>[\s:|+*-]*?)(?:\*\(\d+\) |\* )?(?P<name>[A-Za-z]\w*)(?P<rest>.*)$")


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


def of_query(spark: SparkSession, query: str) -> AnalyzedPlan | None:
    """What the plan of an active query has, where there is a JVM; None for a Spark that does not tell."""
    try:
        jvm: Any = spark.sparkContext._jvm
        active = spark._jsparkSession.sharedState().activeStreamingQueries()
        return AnalyzedPlan(active.get(jvm.java.util.UUID.fromString(query)))
    except (AttributeError, KeyError, Py4JError, TypeError, ValueError):  # it is built in another way
        return None


def explained(root: SparkSession, query: str) -> Verdict | None:
    """What the physical plan of a query's batch tells, as text: on Spark Connect. None where there is none.

    root: the session that has started the query.
    """
    found = root.streams.get(query)
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
