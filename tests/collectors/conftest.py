"""Topologies for the tests of collectors, and what their spouts learn."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acker import Topology
from acker.embedded import EmbeddedServer
from tests.helpers.builders.collectors import Make

NewServer = Callable[..., EmbeddedServer]


@pytest.fixture
def make(url: str) -> Iterator[Make]:
    """Makes topologies that send only when asked to: a long linger."""
    topologies: list[Topology] = []

    def new(name: str = "t", **settings: Any) -> Topology:
        topologies.append(Topology(url, name, **{"linger": 15.0, "message_timeout": 30.0, **settings}))
        return topologies[-1]

    yield new
    for topology in topologies:
        topology.close()


@pytest.fixture
def away(new_server: NewServer) -> EmbeddedServer:
    """A server of the test's own, to be taken away; it keeps what it has through a restart."""
    return new_server(append_only=True, options={"appendfsync": "always"})
