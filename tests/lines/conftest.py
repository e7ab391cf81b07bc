"""A line with its workers, for tests that need no other one."""

import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.builders.line_job import Job


@pytest.fixture
def job(valkey_url: str) -> Job:
    return Job(open_ledger(Store(valkey_url), "t", ackers=2))
