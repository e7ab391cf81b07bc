"""A line with its workers, for tests that need no other one."""

from collections.abc import Iterator

import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.builders.line_job import Job
from tests.helpers.owners import assert_owned
from tests.helpers.servers.servers import raw_client


@pytest.fixture
def job(valkey_url: str) -> Job:
    return Job(open_ledger(Store(valkey_url), "t", ackers=2))


@pytest.fixture(autouse=True)
def owners(request: pytest.FixtureRequest) -> Iterator[None]:
    """Looks after each test for what lives for ever in its store and has no owner."""
    url = request.getfixturevalue("valkey_url") if "valkey_url" in request.fixturenames else ""
    yield
    if url and request.node.get_closest_marker("damage") is None:
        with raw_client(url) as client:
            assert_owned([client])
