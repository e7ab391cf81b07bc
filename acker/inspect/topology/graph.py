"""The graph of a topology: its spouts, streams and steps, their traffic, and its worst place.

No one declares it. It is made of the registrations of steps, and the counts of streams and outcomes.

Terms: a tree is all that comes of one record; a slot is the random number of a subscription.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeAlias

from acker.inspect.topology.health import Health, health
from acker.inspect.topology.health_rules import WINDOW
from acker.inspect.topology.troubles import Code, PausedSpout, Severity, Trouble
from acker.inspect.trees import failures
from acker.inspect.trees.failures import Counted
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Examples, Instant, Seconds
from acker.ledger.outcomes import counts
from acker.ledger.steps import step_totals
from acker.ledger.steps.step_registry import Step, steps
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs
from acker.streams.log import holders
from acker.streams.log.stream_totals import StreamTotals, SubscriptionTotals

NodeKind: TypeAlias = Literal["spout", "step", "stream", "subscription"]
EdgeKind: TypeAlias = Literal["emits", "reads", "tracks", "fails"]

OLDEST = "Seconds since the oldest segment that nobody has taken."
_MOST_READERS = 100

Readers: TypeAlias = Mapping[tuple[str, int], frozenset[str]]
"""For a stream and a slot, the ids of the queries that have taken something last."""


@dataclass(frozen=True, slots=True)
class Node:
    """A spout, a step, a stream, or a subscription of which no step is known to read it."""

    id: Annotated[str, Examples("step:split"), "Names it in the graph."]
    kind: NodeKind
    name: Annotated[str, "Of a subscription: its stream, a slash, and its own name."]
    steps: Annotated[tuple[Step, ...], "The running steps; none for streams, and for plain Python."] = ()
    rows: Annotated[Count | None, "Of a stream: published for one subscription so far, at most."] = None
    trees: Annotated[Count | None, "Of a topology's only spout: tracked so far. null for others."] = None
    rows_behind: Annotated[Count, "Rows still to be acked."] = 0
    oldest: Annotated[Seconds | None, OLDEST] = None
    failed: Annotated[
        Count, "Trees since `failures_since`: of a step what it has failed, of a spout all of its own."
    ] = 0
    expired: Annotated[Count, "Trees of a spout since `failures_since`."] = 0
    dead_letters: Annotated[Count, "Rows that a spout has given up."] = 0
    dropped: Annotated[Count, "Segments dropped by a stream's limits."] = 0
    tuples: Annotated[Count | None, "Acked so far by a step. null where none are counted."] = None
    paused: Annotated[PausedSpout | None, "The pause of a spout; null where it is not paused."] = None

    @property
    def age(self) -> Annotated[Seconds | None, "Seconds since one who runs it was seen last."]:
        """Seconds since a process that runs it was seen last; None where none has said so."""
        return min((step.age for step in self.steps if step.age is not None), default=None)


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow from one node to another."""

    id: str
    kind: Annotated[
        EdgeKind, "Into a stream, out of it, or from a spout to a step that tracks or fails its trees."
    ]
    source: Annotated[str, "The id of a node."]
    target: Annotated[str, "The id of a node."]
    subscription: Annotated[
        str | None, "Of what is read, where it is known. Steps that share it share its figures."
    ] = None
    rows: Annotated[
        Count | None, "Read: acked so far. Emitted: all of the stream's, if no other step emits into it."
    ] = None
    rows_behind: Count = 0
    oldest: Annotated[Seconds | None, OLDEST] = None
    rows_dropped: Count = 0


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst trouble of the topology's health, and its place."""

    code: Code
    severity: Severity
    node: Annotated[str | None, "The id of a node; null for a trouble of the whole topology."]
    edge: Annotated[str | None, "The edge that leads there, if it is one."]
    text: Annotated[str, "Why, for people."]


@dataclass(frozen=True, slots=True)
class Graph:
    """The parts of a topology, as far as they are known, what passes, and where it is worst."""

    at: Annotated[Instant, "By the store's clock. Two answers give rates."]
    nodes: Annotated[tuple[Node, ...], "By kind and name."]
    edges: tuple[Edge, ...]
    failures_since: Annotated[
        Instant, "Since when failed and expired trees are counted: ten minutes, or less for very many."
    ]
    worst: Annotated[Worst | None, "null where nothing needs a look."]


def graph(core: Core, judged: Health | None = None) -> Operation[Graph]:
    """Returns the present graph of a topology. judged: its health, if known. Changes nothing."""
    judged = judged or (yield from health(core))
    at_work = yield from steps(core)
    readers = yield from _readers(core, judged.streams)
    ended = yield from failures.counted(core, judged.at - WINDOW)
    counted = yield from counts.counters(core)
    acked = {one.step: one.tuples for one in (yield from step_totals.totals(core))}
    made = _Drawing(judged, at_work, readers, ended, sorted(core.spouts), counted["tracked"], acked)
    return made.graph()


def _readers(core: Core, streams: Iterable[StreamTotals]) -> Operation[Readers]:
    """Returns the readers of streams with several subscriptions; for others there is no doubt."""
    slots = [
        (stream.name, subscription.slot)
        for stream in streams
        if len(stream.subscriptions) > 1
        for subscription in stream.subscriptions
    ]
    subscription = [(keys.Stream(core.config.name, stream), slot) for stream, slot in slots]
    members = yield [command("HGETALL", stream.readers(slot)) for stream, slot in subscription]
    asked = [
        (stream, slot, reader.decode("utf-8", "replace"))
        for (stream, slot), found in zip(slots, members, strict=True)
        for reader in list(pairs(found))[:_MOST_READERS]
    ]
    noted = yield [
        command("GET", keys.Stream(core.config.name, stream).holder(slot, reader))
        for stream, slot, reader in asked
    ]
    queries: dict[tuple[str, int], set[str]] = {}
    for (stream, slot, reader), one in zip(asked, noted, strict=True):
        query = holders.describe(stream, reader, 0, one, ()).query
        queries.setdefault((stream, slot), set()).add(query)
    return {place: frozenset(names - {""}) for place, names in queries.items()}


@dataclass(slots=True)
class _Drawing:
    """A graph that is being put together."""

    health: Health
    at_work: Sequence[Step]
    readers: Readers
    ended: Counted
    spouts: Sequence[str]
    tracked: int
    acked: Mapping[str, int]
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[str, Edge] = field(default_factory=dict)

    def graph(self) -> Graph:
        for name in self.spouts:
            self._spout(name)
        for step in self.at_work:
            self._step(step)
        for stream in self.health.streams:
            self._stream(stream)
        for step in self.at_work:
            self._passes(step)
        for stream in self.health.streams:
            for own in stream.subscriptions:
                self._read(stream, own)
            self._asked(stream)
            self._emitted(stream)
        self._failed()
        if sum(node.kind == "spout" for node in self.nodes.values()) > 1:
            self.nodes = {name: replace(node, trees=None) for name, node in self.nodes.items()}
        order = {"spout": 0, "step": 1, "stream": 2, "subscription": 3}
        nodes = sorted(self.nodes.values(), key=lambda node: (order[node.kind], node.name))
        edges = sorted(self.edges.values(), key=lambda edge: edge.id)
        worst = _worst(nodes, edges, self.health.troubles)
        return Graph(self.health.at, tuple(nodes), tuple(edges), self.ended.since, worst)

    def _spout(self, name: str) -> None:
        ended = self.ended
        self._node(
            "spout",
            name,
            trees=self.tracked,
            failed=sum(count for (spout, _), count in ended.failed.items() if spout == name),
            expired=ended.expired.get(name, 0),
            dead_letters=self.health.dead_letters.get(name, 0),
            paused=next((pause for pause in self.health.paused if pause.spout == name), None),
        )

    def _step(self, step: Step) -> None:
        """Several runs of one step are one node."""
        if step.kind == "spout":
            if step.name not in self.spouts:
                self._spout(step.name)
            node = self.nodes[f"spout:{step.name}"]
        else:
            node = self._failing(step.name)
        self.nodes[node.id] = replace(node, steps=(*node.steps, step))

    def _failing(self, name: str) -> Node:
        failed = sum(count for (_, by), count in self.ended.failed.items() if by == name)
        return self._node("step", name, failed=failed, tuples=self.acked.get(name))

    def _stream(self, stream: StreamTotals) -> None:
        subscriptions = stream.subscriptions
        ages = [
            subscription.unread_age for subscription in subscriptions if subscription.unread_age is not None
        ]
        self._node(
            "stream",
            stream.name,
            rows=max((subscription.rows_published for subscription in subscriptions), default=0),
            rows_behind=sum(max(0, subscription.rows_behind) for subscription in subscriptions),
            oldest=max(ages, default=None),
            dropped=stream.dropped,
        )

    def _passes(self, step: Step) -> None:
        """Adds edges to the streams that a step emits to, and from the spouts whose trees it tracks."""
        node_id = _id_of(step)
        for stream in step.emits:
            self._edge("emits", node_id, self._node("stream", stream).id)
        if step.kind != "spout" and step.query_id:
            for spout in self.at_work:
                if spout.kind == "spout" and spout.query_id == step.query_id and not spout.emits:
                    self._edge("tracks", _id_of(spout), node_id)

    def _read(self, stream: StreamTotals, subscription: SubscriptionTotals) -> None:
        """Adds edges of a subscription: its figures count for each step that reads it."""
        readers = [step for step in self.at_work if stream.name in step.reads]
        if len(stream.subscriptions) > 1:
            queries = self.readers.get((stream.name, subscription.slot), frozenset())
            named = [step for step in readers if step.name == subscription.name]
            readers = [step for step in readers if step.query_id in queries] or named
        behind = max(0, subscription.rows_behind)
        targets = {_id_of(step) for step in readers} if subscription.name is not None else set[str]()
        if not targets:
            targets = {self._node("subscription", f"{stream.name}/{subscription.name or ''}").id}
        for target in targets:
            edge = self._edge("reads", f"stream:{stream.name}", target, subscription.name)
            self.edges[edge.id] = replace(
                edge,
                rows=subscription.rows_acked,
                rows_behind=behind,
                oldest=subscription.unread_age,
                rows_dropped=subscription.rows_dropped,
            )
            node = self.nodes[target]
            ages = [age for age in (node.oldest, subscription.unread_age) if age is not None]
            self.nodes[target] = replace(
                node, rows_behind=node.rows_behind + behind, oldest=max(ages, default=None)
            )

    def _asked(self, stream: StreamTotals) -> None:
        """Adds edges of registered readers that took nothing yet: their subscription is not known."""
        for reader in {_id_of(step) for step in self.at_work if stream.name in step.reads}:
            if not any(
                edge.kind == "reads" and (edge.source, edge.target) == (f"stream:{stream.name}", reader)
                for edge in self.edges.values()
            ):
                self._edge("reads", f"stream:{stream.name}", reader)

    def _emitted(self, stream: StreamTotals) -> None:
        """Counts the rows of a stream as emitted by its only emitter."""
        made = [edge for edge in self.edges.values() if edge.kind == "emits"]
        found = [edge for edge in made if edge.target == f"stream:{stream.name}"]
        if len(found) == 1:
            self.edges[found[0].id] = replace(found[0], rows=self.nodes[found[0].target].rows)

    def _failed(self) -> None:
        """Adds edges of steps that have failed trees, if no other edge shows how these trees reach them."""
        reached = {edge.target for edge in self.edges.values()}
        for spout, by in sorted(self.ended.failed):
            if by and f"spout:{spout}" in self.nodes and f"step:{by}" not in reached:
                self._edge("fails", f"spout:{spout}", self._failing(by).id)

    def _node(
        self,
        kind: NodeKind,
        name: str,
        *,
        rows: int | None = None,
        trees: int | None = None,
        rows_behind: int = 0,
        oldest: float | None = None,
        failed: int = 0,
        expired: int = 0,
        dead_letters: int = 0,
        dropped: int = 0,
        tuples: int | None = None,
        paused: PausedSpout | None = None,
    ) -> Node:
        node = Node(
            f"{kind}:{name}", kind, name, (), rows, trees, rows_behind, oldest, failed, expired, dead_letters,
            dropped, tuples, paused,
        )  # fmt: skip
        return self.nodes.setdefault(node.id, node)

    def _edge(self, kind: EdgeKind, source: str, target: str, subscription: str | None = None) -> Edge:
        parts = (kind, source, target, *([subscription] if subscription else []))
        made = Edge(" ".join(parts), kind, source, target, subscription)
        return self.edges.setdefault(made.id, made)


def _id_of(step: Step) -> str:
    return f"{'spout' if step.kind == 'spout' else 'step'}:{step.name}"


# Where it is worst


def _worst(nodes: Sequence[Node], edges: Sequence[Edge], troubles: Sequence[Trouble]) -> Worst | None:
    """Returns the first trouble of health with its place: what the page says and the graph marks is one."""
    if not troubles:
        return None
    worst = troubles[0]
    node, edge = _located(worst, nodes, edges)
    return Worst(worst.code, worst.severity, node, edge, worst.text)


def _located(trouble: Trouble, nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[str | None, str | None]:
    """The node and the edge of a trouble, where they are known."""
    place = trouble.place
    if place is None:
        return None, None
    if place.kind in ("spout", "stream"):
        wanted = f"{place.kind}:{place.name}"
        return (wanted if any(node.id == wanted for node in nodes) else None), None
    if place.kind == "reads":
        reads = [
            edge
            for edge in edges
            if edge.kind == "reads" and edge.source == f"stream:{place.name}"
            if place.subscription in (None, edge.subscription)
        ]
        worst = max(reads, key=lambda edge: (edge.rows_behind, edge.oldest or 0.0, edge.id), default=None)
        return (worst.target, worst.id) if worst else (None, None)
    # Of a spout all of its own are counted, so a step that has failed most of them is the better place.
    counted = max(
        nodes,
        key=lambda node: (getattr(node, place.kind), node.kind == "step"),
        default=None,
    )
    return (counted.id, None) if counted and getattr(counted, place.kind) else (None, None)
