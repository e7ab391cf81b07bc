"""The command line, run in this process on an empty store."""

import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from tests.helpers.faces.cli import Acker, in_process


@pytest.fixture
def acker(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Acker:
    """Runs `acker` in this process on an empty store."""
    monkeypatch.setenv("ACKER_URL", url)
    return in_process(capsys)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "words", ackers=2, message_timeout=60.0)
