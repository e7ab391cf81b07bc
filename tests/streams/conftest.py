"""The topology of most of these tests, and a stream that several read."""

import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams import Stream
from tests.helpers.builders.kept_rows import Keeping


@pytest.fixture
def ledger(url: str) -> Ledger:
    """An empty topology of three shards."""
    return open_ledger(Store(url), "t", ackers=3)


@pytest.fixture
def lines(ledger: Ledger) -> Stream:
    """A stream with two subscriptions."""
    stream = Stream(ledger, "lines")
    stream.subscribe("a")
    stream.subscribe("b")
    return stream


@pytest.fixture(params=["rows", "ids"])
def keeping(request: pytest.FixtureRequest) -> Keeping:
    """Spouts that keep their rows, and then such that keep ids."""
    return Keeping(request.param)
