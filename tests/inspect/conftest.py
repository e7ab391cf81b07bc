"""Topologies of these tests, and a line with its workers."""

import pytest

from acker.collectors.topology import Topology
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from tests.helpers.builders.line_job import Job


@pytest.fixture
def ledger(url: str) -> Ledger:
    """An empty topology of three shards."""
    return open_ledger(Store(url), "t", ackers=3)


@pytest.fixture
def job(valkey_url: str) -> Job:
    """A line with its workers."""
    return Job(open_ledger(Store(valkey_url), "t", ackers=2))


@pytest.fixture
def topology(valkey_url: str) -> Topology:
    """A topology for functions."""
    return Topology(valkey_url, "t", ackers=2)
