"""The graph of a topology: nobody declares it, it is what steps have said and streams count."""

import socket

import numpy as np
import pytest

from acker.inspect.topology import health
from acker.inspect.topology.graph import Edge, Graph, Node, graph
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.store.operation import Operation
from acker.streams import Stream
from acker.streams.commits.contents import Commit
from acker.streams.log import holders
from acker.streams.spout import StreamSpout
from tests.helpers.builders.kept_rows import HOW, lines
from tests.helpers.builders.streaming import ack, commit, emit, stage, take, track

pytestmark = pytest.mark.cluster


def look(ledger: Ledger) -> Graph:
    found = ledger.run(graph(ledger.core))
    assert {edge.source for edge in found.edges} | {edge.target for edge in found.edges} <= {
        node.id for node in found.nodes
    }
    return found


def work(ledger: Ledger, *done: Step) -> None:
    for step in done:
        ledger.run(step_registry.register(ledger.core, step))


def node(found: Graph, name: str) -> Node:
    return next(one for one in found.nodes if one.id == name)


def edge(found: Graph, source: str, target: str) -> Edge:
    return next(one for one in found.edges if (one.source, one.target) == (source, target))


def test_a_topology_without_anything_has_an_empty_graph(ledger: Ledger) -> None:
    found = look(ledger)
    assert (found.nodes, found.edges, found.worst) == ((), (), None)


def test_rows_are_followed_from_the_spout_to_the_last_step(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    batch = take(ledger, "lines")
    Stream(ledger, "words").subscribe("count")
    commit(ledger, 0, Commit((stage(ledger, anchors[:4]),), (batch,)))
    ack(ledger, batch)
    work(
        ledger,
        Step("s", "spout", query_id="q0", reads=("kafka[orders]",), emits=("lines",)),
        Step("split", "bolt", query_id="q1", batch=7, seconds=0.5, reads=("lines",), emits=("words",)),
        Step("split", "bolt", query_id="q2", reads=("lines",), emits=("words",)),
        Step("count", "bolt", query_id="q3", reads=("words",)),
    )
    found = look(ledger)
    assert [one.id for one in found.nodes] == [
        "spout:s", "step:count", "step:split", "stream:lines", "stream:words",
    ]  # fmt: skip
    assert [(one.kind, one.source, one.target) for one in found.edges] == [
        ("emits", "spout:s", "stream:lines"),
        ("emits", "step:split", "stream:words"),
        ("reads", "stream:lines", "step:split"),
        ("reads", "stream:words", "step:count"),
    ]
    assert [one.query_id for one in node(found, "step:split").steps] == ["q2", "q1"]
    assert node(found, "step:split").age is not None
    assert node(found, "spout:s").trees == 10
    assert edge(found, "spout:s", "stream:lines").rows == 10
    assert edge(found, "stream:lines", "step:split").rows == 10
    waits = edge(found, "stream:words", "step:count")
    assert (waits.subscription, waits.rows, waits.rows_behind) == ("count", 0, 4)
    assert waits.oldest is not None
    assert node(found, "step:count").rows_behind == node(found, "stream:words").rows_behind == 4


def test_a_subscription_is_that_of_the_step_whose_query_takes_it(ledger: Ledger) -> None:
    lines = Stream(ledger, "lines")
    for name in ("a", "b", "nobody", "count"):
        lines.subscribe(name)
    emit(ledger, 3)
    work(
        ledger, Step("count", "bolt", query_id="q3", reads=("lines",))
    )  # has taken nothing, but its name tells
    for name, query in (("a", "q1"), ("b", "q2")):
        batch = take(ledger, "lines", name, reader=f"r{name}")
        ledger.store.send([holders.note_request(ledger.core, batch, query, 0)])
        work(ledger, Step(f"step-{name}", "bolt", query_id=query, reads=("lines",)))
        if name == "a":
            ack(ledger, batch)
    found = look(ledger)
    assert [(one.target, one.subscription, one.rows, one.rows_behind) for one in found.edges] == [
        ("step:count", "count", 0, 3),
        ("step:step-a", "a", 3, 0),
        ("step:step-b", "b", 0, 3),
        ("subscription:lines/nobody", "nobody", 0, 3),
    ]


def test_a_step_that_has_taken_nothing_yet_is_drawn_where_it_says_that_it_reads(ledger: Ledger) -> None:
    for name in ("a", "b"):
        Stream(ledger, "lines").subscribe(name)
    work(ledger, Step("count", "bolt", query_id="q", reads=("lines",)))
    found = edge(look(ledger), "stream:lines", "step:count")
    assert (found.subscription, found.rows, found.rows_behind) == (None, None, 0)


def test_what_waits_for_a_first_subscription_has_a_node_without_a_name(ledger: Ledger) -> None:
    emit(ledger, 3)
    [found] = look(ledger).edges
    assert (found.target, found.subscription, found.rows_behind) == ("subscription:lines/", None, 3)


def test_a_step_that_tracks_for_a_spout_comes_after_it(ledger: Ledger) -> None:
    work(ledger, Step("lines", "spout", query_id="q"), Step("split", "bolt", query_id="q"))
    [found] = look(ledger).edges
    assert (found.kind, found.source, found.target) == ("tracks", "spout:lines", "step:split")


def test_a_plain_spout_says_where_it_emits(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    spout, noted = StreamSpout(ledger, HOW), list[Step]()
    register = step_registry.register

    def counting(core: Core, step: Step) -> Operation[None]:
        noted.append(step)
        yield from register(core, step)

    monkeypatch.setattr(step_registry, "register", counting)
    for number in range(3):
        spout.write(lines(1, number))
    assert len(noted) == 1
    found = look(ledger)
    assert edge(found, "spout:s", "stream:lines").kind == "emits"
    [who] = node(found, "spout:s").steps
    assert (who.kind, who.application_id, who.emits) == ("spout", socket.gethostname(), ("lines",))


def test_trees_are_those_of_a_spout_only_where_no_other_is_known(ledger: Ledger) -> None:
    track(ledger, np.ones(3, dtype=np.int64))
    assert [node.trees for node in look(ledger).nodes] == [3]
    work(ledger, Step("clicks", "spout", query_id="q"))
    assert [node.trees for node in look(ledger).nodes] == [None, None]


def test_failures_are_counted_where_they_happened_and_named(ledger: Ledger) -> None:
    anchors = track(ledger, np.ones(20, dtype=np.int64))
    work(ledger, Step("parse", "bolt"), Step("store", "bolt"))
    for number, step in enumerate(("parse", "parse", "store", "", "python")):
        ledger.send(ledger.core.fail(anchors[number : number + 1], Cause("no", step).encode()))
    for _ in range(3):
        ledger.tick(force=True)
    found = look(ledger)
    assert (node(found, "step:parse").failed, node(found, "step:store").failed) == (2, 1)
    spout = node(found, "spout:s")
    assert (spout.failed, spout.expired) == (5, 15)
    assert [(one.kind, one.source, one.target) for one in found.edges] == [
        ("fails", "spout:s", f"step:{name}") for name in ("parse", "python", "store")
    ]


def test_a_step_has_the_tuples_that_it_has_acked(ledger: Ledger) -> None:
    work(ledger, Step("parse", "bolt"), Step("store", "bolt"))
    anchors = track(ledger, np.ones(3, dtype=np.int64))
    by = ledger.run(step_totals.mark(ledger.core, "parse"))
    ledger.submit(ledger.core.update(anchors, np.ones(3, dtype=np.int64), 0, by, 3).calls)
    assert [node.tuples for node in look(ledger).nodes] == [None, 3, None]


def test_the_worst_is_named_with_the_edge_that_leads_there(ledger: Ledger) -> None:
    emit(ledger, 3)
    Stream(ledger, "lines").subscribe("count")
    work(ledger, Step("count", "bolt", query_id="q", reads=("lines",)))
    assert look(ledger).worst is None
    ledger.run(health.set_thresholds(ledger.core, {"silence": 1e-6, "behind": 0}))
    worst = look(ledger).worst
    assert worst is not None
    assert (worst.node, worst.edge) == ("step:count", "reads stream:lines step:count count")
    assert worst.text.endswith("and 3 rows wait")
    ledger.run(health.set_thresholds(ledger.core, {"behind": 1e-9, "silence": 0}))
    worst = look(ledger).worst
    assert worst is not None
    assert worst.text.startswith("3 rows of stream lines wait for count, the oldest for ")
    ledger.run(health.set_thresholds(ledger.core, {"behind": 0, "silence": 0}))
    assert look(ledger).worst is None
