"""Reports of tuples that bolts in plain Python hold, beside what the ledger knows of their trees."""

from collections.abc import Sequence

import numpy as np
import pytest

from acker import Topology, Tuple
from acker.inspect.locate import in_python
from acker.inspect.locate.expiry_reasons import explain
from acker.inspect.locate.in_python import UNPROVED
from acker.inspect.locate.stuck import stuck
from acker.inspect.trees import failures
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import held
from acker.ledger.tick import tick


def report(topology: Topology, step: str, tuples: Sequence[Tuple]) -> None:
    """Notes what a process on another host says to have."""
    process = held.Process("far", f"{step}.py", 7, (step,), 0)
    edges = [(one.anchors[0], one.edges[one.anchors[0]], 20_000, 0) for one in tuples]
    core = topology.ledger.core
    topology.ledger.run(held.note(core, step, 1, process, np.array(edges, held.Edges)))


def expired(topology: Topology, anchor: int) -> Cause:
    found = topology.ledger.run(failures.find(topology.ledger.core, anchor))
    assert found is not None
    assert found.status == "expired"
    return found.cause


def test_an_expiration_names_no_bolt_that_acked_after_its_report(url: str) -> None:
    with Topology(url, "t", ackers=1, linger=15.0, message_timeout=30.0) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("count")
        acked, lost = spout.emit("a", targets=2)
        also_acked, left = spout.emit("b", targets=2)
        topology.flush()
        report(topology, "count", (acked, also_acked))
        report(topology, "store", (left,))
        bolt.ack(acked)
        bolt.ack(also_acked)
        topology.flush()
        for _ in range(4):
            topology.ledger.run(tick.tick(topology.ledger.core, force=True, explain=explain))
        unproved, proved = (expired(topology, one.anchors[0]) for one in (lost, left))
        assert (unproved.step, proved.step) == ("", "store")
        assert unproved.reason.startswith("count had it since ")
        assert UNPROVED in unproved.reason
        assert proved.reason.startswith("store had it since ")
        assert "count had it" not in proved.reason


def test_stuck_lists_what_bolts_in_plain_python_have_of_trees_in_flight(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Topology(url, "t", ackers=2, linger=15.0) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        first, second, over = (spout.emit(name)[0] for name in "abc")
        topology.flush()
        report(topology, "count", (first, second, over))
        report(topology, "store", (first,))
        bolt.ack(over)
        topology.flush()
        held = topology.stuck().held
        assert [(one.step, one.trees, one.host, one.partly) for one in held] == [
            ("count", 2, "far", False),
            ("store", 1, "far", False),
        ]
        assert all(0 < one.reported - one.since < 21 for one in held)
        assert held[0].text() == "count on host far, process 7 (count.py)"
        monkeypatch.setattr(in_python, "MOST_SUMMED", 2)
        core = topology.ledger.core
        assert sum(one.trees for one in topology.ledger.run(stuck(core)).held) == 2
        assert any(one.partly for one in topology.ledger.run(stuck(core)).held)


def test_stuck_lists_each_process_where_others_have_said_more_since(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Topology(url, "t", ackers=2, linger=15.0) as topology:
        tuples = [topology.spout("s").emit(name)[0] for name in "abcd"]
        topology.flush()
        for step, count in (("hangs", 1), ("count", 4), ("store", 4)):
            report(topology, step, tuples[:count])
        monkeypatch.setattr(in_python, "MOST_SUMMED", 5)
        listed = {(one.step, one.trees, one.partly) for one in topology.stuck().held}
        assert listed == {("hangs", 1, False), ("count", 2, True), ("store", 2, True)}
