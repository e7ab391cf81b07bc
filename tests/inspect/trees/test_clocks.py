"""Trees whose clock stands still say so, and what they wait for; the ticks keep these, and no others."""

import pytest

from acker.inspect.trees import clocks
from acker.inspect.trees.tree_state import tree_state
from acker.ledger.client import Ledger
from acker.ledger.trees.trees import Tree
from acker.ledger.trees.wait import Wait
from acker.store import keys
from acker.streams import Stream, downtime
from acker.streams.commits import under_way
from acker.streams.commits.contents import Commit
from tests.helpers.builders.streaming import ack, emit, stage, take
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster

DAY = 86_400


def tree(ledger: Ledger, anchor: int) -> Tree:
    state = ledger.run(tree_state(ledger.core, int(anchor)))
    assert state is not None
    assert state.tree is not None
    return state.tree


def beat(ledger: Ledger, stream: str, slot: int, reader: str, ago: float) -> None:
    """Makes the last heartbeat of a reader's query so many seconds old."""
    ledger.run(downtime.beat(ledger.core, stream, slot, reader))
    key = keys.Stream(ledger.config.name, stream).heartbeats(slot)
    with raw_client(ledger.store.url) as client:
        client.hincrby(key.decode(), reader, -round(ago * 1000))


def test_a_tree_that_waits_says_for_whom_since_when_and_until_when(ledger: Ledger) -> None:
    Stream(ledger, "lines").subscribe("split")
    [anchor] = emit(ledger, 1)
    for _ in range(2):
        ledger.tick(force=True)
    found = tree(ledger, anchor)
    assert found.bucket == "waiting"
    assert found.wait is not None
    assert found.time_left_earliest == pytest.approx(DAY, abs=60)
    assert found.time_left_latest is None
    assert (found.wait.stream, found.wait.subscription) == ("lines", "split")
    assert found.wait.since == pytest.approx(found.tracked_at, abs=5)
    assert found.wait.until == pytest.approx((found.wait.since or 0) + DAY)
    assert found.wait.text().startswith("clock stands still: waits for split of stream lines since 20")
    assert found.wait.text().endswith("Z at the earliest")
    of_bucket = {
        bucket: [one.anchor for one in ledger.run(clocks.page(ledger.core, bucket=bucket)).trees]
        for bucket in ("waiting", "oldest", None)
    }
    assert of_bucket == {"waiting": [anchor], "oldest": [], None: [anchor]}
    take(ledger, "lines", "split")  # a batch job's: it has no heartbeat
    found = tree(ledger, anchor)
    assert (found.bucket, found.wait) == ("oldest", None)
    assert found.time_left_earliest is not None
    assert found.time_left_earliest < found.time_left_latest < DAY  # type: ignore[operator]


def test_many_waiting_segments_are_read_once_for_many_questions(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downtime, "MANY", 2)
    monkeypatch.setattr(downtime, "KNOWN_FOR", 600.0)
    Stream(ledger, "lines").subscribe("split")
    anchors = [anchor for _ in range(3) for anchor in emit(ledger, 1)]
    found = [tree(ledger, anchor).bucket for anchor in anchors[:2]]
    take(ledger, "lines", "split")
    assert [*found, tree(ledger, anchors[2]).bucket] == ["waiting"] * 3, "it was waiting seconds ago"
    monkeypatch.setattr(downtime, "MANY", 3)
    ledger.core.waits = None
    assert [tree(ledger, anchor).bucket for anchor in anchors] == ["nursery"] * 3


def test_the_ticks_keep_the_trees_that_wait_and_no_others(ledger: Ledger) -> None:
    named = {"untaken": int(emit(ledger, 1, "untaken")[0]), "in_work": int(emit(ledger, 1, "in_work")[0])}
    for name in ("default", "other"):
        Stream(ledger, "acked").subscribe(name)
    named |= {"gone": int(emit(ledger, 1, "gone")[0]), "acked": int(emit(ledger, 1, "acked")[0])}
    named["commit"] = int(emit(ledger, 1, "taken")[0])
    ack(ledger, take(ledger, "acked"))
    take(ledger, "in_work")
    batch = take(ledger, "gone")
    beat(ledger, "gone", batch.slot, batch.reader, 1000.0)
    taken = take(ledger, "taken")
    text = Commit((stage(ledger, [named["commit"]]),), (taken,)).dump()
    [begun, heartbeat] = under_way.begun(ledger.core, "writer", 0, text)
    ledger.store.send([begun, heartbeat])
    found = {name: tree(ledger, named[name]).wait for name in reversed(named)}
    assert {name: None if wait is None else wait.waits_for for name, wait in found.items()} == {
        "untaken": "the first subscription of stream untaken",
        "in_work": None,
        "gone": "default of stream gone",
        "acked": "other of stream acked",
        "commit": "a commit that is under way",
    }
    assert found["commit"] == Wait("a commit that is under way")
    for _ in range(3):
        ledger.store.send([heartbeat])
        ledger.run(downtime.keep(ledger.core))
        ledger.tick(force=True)
    left = {one.anchor for one in ledger.run(clocks.page(ledger.core)).trees}
    assert left == {named[name] for name, wait in found.items() if wait is not None}
