"""A topology for functions."""

from collections.abc import Iterator

import pytest

from acker.collectors.topology import Topology
from tests.helpers.owners import assert_owned
from tests.helpers.servers.servers import raw_client


@pytest.fixture
def topology(valkey_url: str) -> Topology:
    return Topology(valkey_url, "t", ackers=2)


@pytest.fixture(autouse=True)
def owners(request: pytest.FixtureRequest) -> Iterator[None]:
    """Looks after each test for what lives for ever in its store and has no owner."""
    url = request.getfixturevalue("valkey_url") if "valkey_url" in request.fixturenames else ""
    yield
    if url and request.node.get_closest_marker("damage") is None:
        with raw_client(url) as client:
            assert_owned([client])
