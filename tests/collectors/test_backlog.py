"""A spout that gets more outcomes at once than it takes at a time."""

import numpy as np
import pytest

from acker import SpoutPendingFull, Topology
from acker.collectors.pending import MOST_READY
from acker.collectors.spout import Spout


def backlog(topology: Topology) -> Spout:
    """A spout whose trees are all acked, more than it gets by two calls."""
    spout = topology.spout("s")
    anchors, own = spout.emit_many([b"%d" % number for number in range(2 * MOST_READY + 1)])
    topology.ledger.update(anchors, own)
    return spout


def test_a_thread_that_emits_and_takes_outcomes_by_turns_is_never_in_its_own_way(url: str) -> None:
    with Topology(url, "t", ackers=1, message_timeout=600.0, slab_limit=4096) as topology:
        spout = backlog(topology)
        assert [outcome.status for outcome in spout.outcomes(timeout=60.0)].count("acked") > MOST_READY
        spout.emit("one more", timeout=0.0)
        rest = list(spout.outcomes())
        assert len(rest) < MOST_READY


def test_emit_waits_while_outcomes_are_not_taken(valkey_url: str) -> None:
    with Topology(valkey_url, "t", ackers=1, message_timeout=600.0, slab_limit=4096) as topology:
        spout = backlog(topology)
        reported = spout.outcomes(timeout=60.0)
        assert next(reported).status == "acked"
        while spout._inbox.pending.ready < MOST_READY:
            next(reported)
        with pytest.raises(SpoutPendingFull, match=f"{spout._inbox.pending.ready:,} outcomes are not taken"):
            spout.emit("one more", timeout=0.0)
        del reported
        assert len(np.unique([outcome.anchor for outcome in spout.outcomes()])) >= MOST_READY
        assert spout.emit("one more", timeout=0.0)
