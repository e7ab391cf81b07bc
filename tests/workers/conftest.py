"""Topologies of these tests, and a line with its workers."""

import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.builders.line_job import Job


@pytest.fixture
def job(valkey_url: str) -> Job:
    """A line with its workers."""
    return Job(open_ledger(Store(valkey_url), "t", ackers=2))
