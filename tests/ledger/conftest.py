"""The ledger that most of these tests change."""

import pytest

from acker.ledger.client import Ledger
from tests.helpers.builders.ledgers import opened


@pytest.fixture
def ledger(url: str) -> Ledger:
    """An empty ledger of one shard."""
    return opened(url)
