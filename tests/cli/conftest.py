"""The command line, run in this process on an empty store."""

import json
import re
from collections.abc import Callable

import pytest

from acker import cli
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.store.client import Store

HOSTILE = "\x1b[31mred[/]\x07\x7f\u202e[bold]"


class Run:
    """What a command did."""

    def __init__(self, status: int, out: str, error: str) -> None:
        self.status, self.out, self.error = status, out, error


Acker = Callable[..., Run]


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


def track(ledger: Ledger, *message_ids: bytes | str) -> Ids:
    anchors = ids.new_anchors(len(message_ids))
    ledger.track(anchors, ids.new_ids(len(message_ids)), message_ids, spout="lines")
    return anchors


def positive_and_negative(ledger: Ledger) -> list[int]:
    return [int(track(ledger, "m", "other")[0]), int(track(ledger, "m")[0])]


def good(run: Run) -> object:
    assert run.status == 0, run.error
    return json.loads(run.out)


def one_error(run: Run, status: int) -> str:
    assert (run.status, run.out) == (status, "")
    assert re.fullmatch(r"acker: [^\n]+\n", run.error)
    return run.error
