"""Topologies for the tests of collectors, and what their spouts are told."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from acker import Outcome, StoreUnavailable, Topology
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer

Make = Callable[..., Topology]
NewServer = Callable[..., EmbeddedServer]


@pytest.fixture
def make(url: str) -> Iterator[Make]:
    """Makes topologies that send only when told to: a long linger."""
    made: list[Topology] = []

    def new(name: str = "t", **settings: Any) -> Topology:
        made.append(Topology(url, name, **{"linger": 15.0, "message_timeout": 30.0, **settings}))
        return made[-1]

    yield new
    for topology in made:
        topology.close()


@pytest.fixture
def away(new_server: NewServer) -> EmbeddedServer:
    """A server of the test's own, to be taken away; it keeps what it has through a restart."""
    return new_server(append_only=True, options={"appendfsync": "always"})


def told(spout: Spout, count: int = 1) -> list[Outcome]:
    """The next `count` outcomes of a spout, and proof that there are no more by now."""
    spout.topology.flush()
    return told_unflushed(spout, count)


def told_unflushed(spout: Spout, count: int) -> list[Outcome]:
    """The same where nothing is sent for it, and the store may be away."""
    deadline, found = time.monotonic() + 60.0, list[Outcome]()
    while len(found) < count and time.monotonic() < deadline:
        found += spout.outcomes(timeout=0.2)
    with contextlib.suppress(StoreUnavailable):
        found += spout.outcomes()
    assert len(found) == count, found
    return found


def statuses(outcomes: Sequence[Outcome]) -> dict[bytes, str]:
    assert len({outcome.message_id for outcome in outcomes}) == len(outcomes)
    return {outcome.message_id: outcome.status for outcome in outcomes}
