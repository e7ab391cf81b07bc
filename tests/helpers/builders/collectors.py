"""Outcomes that a spout reports, for tests of collectors."""

import contextlib
import time
from collections.abc import Callable, Sequence

from acker import Outcome, StoreUnavailable, Topology
from acker.collectors.spout import Spout

Make = Callable[..., Topology]


def reported(spout: Spout, count: int = 1) -> list[Outcome]:
    """The next `count` outcomes of a spout, and proof that there are no more by now."""
    spout.topology.flush()
    return reported_unflushed(spout, count)


def reported_unflushed(spout: Spout, count: int) -> list[Outcome]:
    """The same where nothing is sent for it, and the store may be away."""
    deadline, outcomes = time.monotonic() + 60.0, list[Outcome]()
    while len(outcomes) < count and time.monotonic() < deadline:
        outcomes += spout.outcomes(timeout=0.2)
    with contextlib.suppress(StoreUnavailable):
        outcomes += spout.outcomes()
    assert len(outcomes) == count, outcomes
    return outcomes


def counted(topology: Topology, **wanted: int) -> Callable[[], bool]:
    """A condition: the topology has such counters.

    Tests of outages give a store a third of a second, in which a busy machine does not always answer.
    """

    def are_so() -> bool:
        with contextlib.suppress(StoreUnavailable):
            counters = topology.counters()
            return all(counters[name] == count for name, count in wanted.items())
        return False

    return are_so


def statuses(outcomes: Sequence[Outcome]) -> dict[bytes, str]:
    assert len({outcome.message_id for outcome in outcomes}) == len(outcomes)
    return {outcome.message_id: outcome.status for outcome in outcomes}
