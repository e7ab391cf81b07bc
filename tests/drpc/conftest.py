"""A topology for functions."""

import pytest

from acker.collectors.topology import Topology


@pytest.fixture
def topology(valkey_url: str) -> Topology:
    return Topology(valkey_url, "t", ackers=2)
