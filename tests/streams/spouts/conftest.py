"""A spout that keeps ids, with its source."""

import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams.spouts.rereading import Rereader
from tests.helpers.builders.kept_rows import lines
from tests.helpers.builders.rereading import Source


@pytest.fixture
def ledger(url: str) -> Ledger:
    """An empty topology with small slabs."""
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


@pytest.fixture
def source() -> Source:
    """A source of 1,250 rows."""
    return Source(lines(1250))


@pytest.fixture
def reader(ledger: Ledger, source: Source) -> Rereader:
    """Reads failed rows of the spout "s" again."""
    return Rereader(ledger, "s", source)
