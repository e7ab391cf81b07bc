"""Results of commands, and a ledger to show, for tests of the CLI."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import typer

from acker import cli
from acker.cli.app import app
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids

HOSTILE = "\x1b[31mred[/]\x07\x7f\u202e[bold]"


class Run:
    """The result of a command."""

    def __init__(self, status: int, out: str, error: str) -> None:
        self.status, self.out, self.error = status, out, error


Acker = Callable[..., Run]


def in_process(capsys: pytest.CaptureFixture[str]) -> Acker:
    """Runs `acker` in this process, on the store that ACKER_URL names."""

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Run(end.value.code, shown.out, shown.err)

    return run


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


def commands(group: Any = None, before: str = "") -> dict[str, Any]:
    """All commands by their names, also within groups."""
    tree: dict[str, Any] = {}
    of: Any = group or typer.main.get_command(app)
    for name, one in of.commands.items():
        tree |= commands(one, f"{before}{name} ") if hasattr(one, "commands") else {before + name: one}
    return tree
