"""Traces: what became of one tree in N, event by event."""

from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis

from acker import Topology
from acker.inspect.locate.why import why
from acker.inspect.operate import manual
from acker.inspect.trees import traces
from acker.ledger import ids
from acker.ledger.calls import messages
from acker.ledger.calls import traces as of_ledger
from acker.ledger.calls.messages import Messages
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_totals
from acker.store.client import Store
from acker.store.operation import Request, command
from acker.store.replies import milliseconds
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from tests.helpers.builders.streaming import commit, consume, emit, record_requests, run_cut, stage, take
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster


def traced(url: str, name: str = "t", every: int = 1) -> Ledger:
    return open_ledger(Store(url), name, ackers=2, traces=every)


def story(ledger: Ledger, anchor: int) -> list[str]:
    return [one.text() for one in ledger.run(why(ledger.core, int(anchor))).trace]


def test_a_trace_tells_what_became_of_a_tree_from_end_to_end(url: str) -> None:
    ledger = traced(url)
    [roots] = StreamSpout(ledger, SpoutOptions("s", "lines", "id")).write(pa.table({"id": range(3)}))
    good, bad = roots.anchors()[:2].tolist()
    by = ledger.run(step_totals.mark(ledger.core, "split", 7))
    staged = stage(ledger, np.array([good, good, good, bad]))
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines", "split"),), by=by))
    consume(ledger, "words")
    with Topology(url, "t") as topology:
        topology.ledger.fail([bad], "too late")
    assert story(ledger, good) == [
        "tracked for spout s",
        "emitted 1 row into stream lines",
        "emitted 3 rows into stream words by split, batch 7",
        "acked 1 row of stream lines by split, batch 7",
        "acked 3 rows of stream words",
    ]


def test_events_of_one_millisecond_stand_in_the_order_of_a_tuples_life(url: str) -> None:
    ledger = traced(url)
    anchor = int(ids.new_anchors(1)[0])
    shard = ledger.core.shards[ids.shard_of(ids.slab_of(anchor), 2)]
    for kind in ("failed", "reset", "acked", "emitted", "tracked"):
        value = b"7 " + of_ledger.STORED.dump((kind, None, "", "", 0, "")).encode()
        ledger.store.send([command("HSET", shard.trace(anchor), kind, value)])
    ledger.store.send([command("EXPIRE", shard.trace(anchor), 60)])
    found = ledger.run(traces.trace(ledger.core, anchor))
    assert [one.kind for one in found] == ["tracked", "emitted", "acked", "reset", "failed"]


def test_a_trace_tells_an_end_that_only_the_ledger_knows(url: str) -> None:
    ledger = traced(url)
    [roots] = StreamSpout(ledger, SpoutOptions("s", "lines", "id")).write(pa.table({"id": range(2)}))
    failed, expired = roots.anchors().tolist()
    ledger.fail([failed], "too late")
    for _ in range(4):
        ledger.tick(force=True)
    assert story(ledger, failed)[2:] == ["failed: too late"]
    answer = ledger.run(why(ledger.core, expired))
    assert answer.ended is not None
    assert [one.kind for one in answer.trace] == ["tracked", "emitted", "expired"]
    assert (answer.trace[-1].at, answer.trace[-1].reason) == (answer.ended.at, answer.ended.cause.reason)


@pytest.mark.parametrize("failed", [None, "why"])
def test_a_commit_cut_anywhere_has_each_event_once(url: str, failed: str | None) -> None:
    for after in count():
        ledger = traced(url, f"cut{after}")
        [anchor] = emit(ledger, 1).tolist()
        inputs = (take(ledger, "lines"),)
        by = ledger.run(step_totals.mark(ledger.core, "split", 7))
        own = Commit((stage(ledger, np.array([anchor])),), inputs, by=by)
        cut = run_cut(
            ledger,
            commits.commit(
                ledger.core, "writer", 0, own if not failed else Commit(inputs=inputs, failed=failed, by=by)
            ),
            after,
        )
        ledger.run(commits.finish(ledger.core, "writer", 0))
        events = ledger.run(traces.trace(ledger.core, anchor))
        kinds = [(one.kind, one.stream, one.step) for one in events if one.step]
        assert len(set(kinds)) == len(kinds)
        if not cut:
            expected = (
                {("failed", "", "split")}
                if failed
                else {("emitted", "words", "split"), ("acked", "lines", "split")}
            )
            assert set(kinds) == expected
            return


def test_collectors_note_what_becomes_of_their_trees(url: str) -> None:
    with Topology(url, "t", ackers=2, linger=15.0, traces=1) as topology:
        spout, split, store = topology.spout("s"), topology.bolt("split"), topology.bolt("store")
        good, bad = spout.emit("good") + spout.emit("bad")
        topology.flush()
        [word] = split.emit(good)
        split.ack(good)
        topology.flush()
        before = now(topology.ledger)
        wait_until(lambda: now(topology.ledger) > before)  # of one millisecond, no ack is the first one
        store.ack(word)
        store.fail(bad, "no such price")
        topology.flush()
        ledger = topology.ledger
        assert story(ledger, good.anchors[0]) == ["tracked for spout s", "acked by split", "acked by store"]
        assert story(ledger, bad.anchors[0]) == ["tracked for spout s", "failed by store: no such price"]
        listed = {one.anchor for one in ledger.run(traces.traced(ledger.core))}
        assert listed == {good.anchors[0], bad.anchors[0]}


def test_trees_that_are_emitted_together_are_traced_as_others_are(url: str) -> None:
    with Topology(url, "t", ackers=2, traces=1) as topology:
        anchors, _ = topology.spout("s").emit_many(["a", "b"])
        for anchor in anchors.tolist():
            assert story(topology.ledger, anchor) == ["tracked for spout s"]


def test_a_tree_that_is_rejected_leaves_no_trace(url: str) -> None:
    with Topology(url, "t", ackers=1, linger=15.0, traces=1, high_water_mark=1) as topology:
        spout = topology.spout("s")
        [first] = spout.emit("first")
        topology.flush()
        [second] = spout.emit("second")
        topology.flush()
        assert [outcome.status for outcome in spout.outcomes(timeout=5.0)] == ["rejected"]
        assert story(topology.ledger, first.anchors[0]) == ["tracked for spout s"]
        assert story(topology.ledger, second.anchors[0]) == []


def now(ledger: Ledger) -> int:
    """The server's clock, in milliseconds."""
    [instant] = ledger.store.send([Request(ledger.core.shards[0].slabs, ["TIME"])])
    return milliseconds(instant)


def test_the_first_reset_by_a_step_stands_in_the_trace(url: str) -> None:
    with Topology(url, "t", ackers=2, linger=15.0, traces=1) as topology:
        spout, split, store = topology.spout("s"), topology.bolt("split"), topology.bolt("store")
        [tuple_] = spout.emit("slow")
        topology.flush()
        for bolt in (split, store, split):
            bolt.reset_timeout(tuple_)
            topology.flush()
            begun = now(topology.ledger)
            while now(topology.ledger) == begun:  # events of one millisecond have no order
                pass
        [anchor] = tuple_.anchors
        ledger = topology.ledger
        assert ledger.run(manual.reset_timeout(ledger.core, [anchor])) == 1
        assert story(ledger, anchor) == [
            "tracked for spout s",
            "timeout reset by split",
            "timeout reset by store",
            "timeout reset",
        ]
        assert [one.kind for one in ledger.run(traces.trace(ledger.core, anchor))][1:] == ["reset"] * 3


def test_a_reset_of_no_tree_leaves_no_trace(url: str) -> None:
    with Topology(url, "t", ackers=2, linger=15.0, traces=1) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        [tuple_] = spout.emit("gone")
        topology.flush()
        ledger = topology.ledger
        ledger.fail(tuple_.anchors)
        before = ledger.run(traces.trace(ledger.core, tuple_.anchors[0]))
        bolt.reset_timeout(tuple_)
        topology.flush()
        assert ledger.run(manual.reset_timeout(ledger.core, tuple_.anchors)) == 0
        assert ledger.run(traces.trace(ledger.core, tuple_.anchors[0])) == before


@pytest.mark.parametrize("every", [0, 10**9])
def test_a_reset_costs_no_further_request_where_its_tree_is_not_traced(url: str, every: int) -> None:
    with Topology(url, "t", ackers=1, linger=15.0, traces=every) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        [tuple_] = spout.emit("slow")
        topology.flush()
        bolt.reset_timeout(tuple_)
        sent: list[Any] = []
        record_requests(topology.ledger, topology.flush, sent)
        assert len(sent) == 1


def test_messages_note_what_becomes_of_trees_once_under_their_key(url: str) -> None:
    ledger = traced(url)
    good, bad, slow = (int(ids.new_anchors(1)[0]) for _ in range(3))
    [own] = ids.new_ids(1).tolist()
    step = ledger.run(step_totals.mark(ledger.core, "split"))
    assert step is not None
    wanted = Messages(
        [messages.Track(anchor, own, b"m", "s") for anchor in (good, bad, slow)],
        acks=[(good, own, step.step)],
        fails=[(bad, Cause("too late", "split").text())],
        resets=[slow],
    )
    for _ in range(2):
        ledger.run(messages.send(ledger.core, wanted, "key"))
    assert story(ledger, good) == ["tracked for spout s", "acked by split"]
    assert story(ledger, bad) == ["tracked for spout s", "failed: too late"]
    assert story(ledger, slow) == ["tracked for spout s", "timeout reset"]


def test_one_tree_in_so_many_is_traced_the_same_ones_everywhere(url: str) -> None:
    ledger = traced(url, every=16)
    anchors = np.concatenate(
        [ids.new_anchors(1024) for _ in range(64)] + [ids.new_anchors(1) for _ in range(4096)]
    )
    picked = of_ledger.select(ledger.core, anchors)
    assert 0.9 * len(anchors) / 16 < len(picked) < 1.1 * len(anchors) / 16
    assert of_ledger.select(ledger.core, anchors[::-1]).tolist() == picked.tolist()
    untraced = traced(url, "off", 0)
    assert len(of_ledger.select(untraced.core, anchors)) == 0


def test_traces_are_bounded_and_one_that_cannot_be_written_hurts_nobody(
    url: str, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_ledger, "MOST_TRACES", 3)
    monkeypatch.setattr(of_ledger, "MOST_EVENTS", 4)
    ledger = open_ledger(Store(url), "t", ackers=1, traces=1)
    anchors = emit(ledger, 10)
    ledger.run(of_ledger.note(ledger.core, of_ledger.make_events(ledger.core, "tracked", "tracked", anchors)))
    begun = ledger.run(traces.traced(ledger.core))
    assert len(begun) == len(list(raw.scan_iter("*trace:*"))) == 3
    later = of_ledger.make_events(ledger.core, "tracked", "tracked", emit(ledger, 1))
    ledger.run(of_ledger.note(ledger.core, later))
    assert ledger.run(traces.traced(ledger.core)) == begun  # the first ones are told to their end
    first = begun[0]
    for number in range(9):
        events = of_ledger.make_events(ledger.core, "acked", f"acked {number}", np.array([first.anchor]))
        ledger.run(of_ledger.note(ledger.core, events))
    assert len(ledger.run(traces.trace(ledger.core, first.anchor))) == 4
    key = ledger.core.shards[0].trace(first.anchor)
    assert 0 < raw.ttl(key) <= of_ledger.SECONDS
    raw.hset(key, "odd", "x")
    assert len(ledger.run(traces.trace(ledger.core, first.anchor))) == 4
    raw.delete(ledger.core.shards[0].traces)
    raw.set(ledger.core.shards[0].traces, "broken")
    more = emit(ledger, 2)
    ledger.run(of_ledger.note(ledger.core, of_ledger.make_events(ledger.core, "tracked", "tracked", more)))
    raw.delete(ledger.core.shards[0].traces)
