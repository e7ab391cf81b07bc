"""The command line, run in this process on an empty store."""

import pytest

from acker import cli
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from tests.helpers.faces.cli import Acker, Run


@pytest.fixture
def acker(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Acker:
    """Runs `acker` in this process on an empty store."""
    monkeypatch.setenv("ACKER_URL", url)

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Run(end.value.code, shown.out, shown.err)

    return run


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "words", ackers=2, message_timeout=60.0)
