"""Topologies for the tests of collectors, and what their spouts are told."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from acker import (
    Outcome,
    Topology,
)
from acker.spout import Spout

Make = Callable[..., Topology]


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


def told(spout: Spout, count: int = 1, timeout: float = 10.0) -> list[Outcome]:
    """The next `count` outcomes of a spout, and proof that there are no more by now."""
    deadline, found = time.monotonic() + timeout, list[Outcome]()
    spout.topology.flush()
    while len(found) < count and time.monotonic() < deadline:
        found += spout.outcomes(timeout=0.2)
    found += spout.outcomes()
    assert len(found) == count, found
    return found


def statuses(outcomes: Sequence[Outcome]) -> dict[bytes, str]:
    assert len({outcome.message_id for outcome in outcomes}) == len(outcomes)
    return {outcome.message_id: outcome.status for outcome in outcomes}
