"""Options that say which dead letters are meant, for all commands that take them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker.cli.shared.given import Given
from acker.errors import UnknownSpout, needing_pyarrow
from acker.ledger.client import Ledger

if TYPE_CHECKING:
    from acker.streams.dead_letters.dead_letters import Filter

_Spout = Annotated[str | None, typer.Option(help="Only letters of this spout.", show_default=False)]
_Status = Annotated[str | None, typer.Option(help="Only failed, or expired ones.", show_default=False)]
_Step = Annotated[
    str | None, typer.Option(help="Only letters of this step; '' for no step.", show_default=False)
]
_Reason = Annotated[str, typer.Option(help="Only those with this in their reason.", show_default=False)]
_Cause = Annotated[
    str | None, typer.Option(help="Only letters of this cause, as --groups shows it.", show_default=False)
]
_Stream = Annotated[
    str | None, typer.Option(help="Only letters replayed to this stream.", show_default=False)
]
_Older = Annotated[
    float | None, typer.Option(help="Only those given up so many seconds ago or more.", show_default=False)
]
_Newer = Annotated[
    float | None, typer.Option(help="Only those given up so many seconds ago or less.", show_default=False)
]


def _filter(
    spout: _Spout = None,
    status: _Status = None,
    step: _Step = None,
    reason: _Reason = "",
    cause: _Cause = None,
    stream: _Stream = None,
    older_than: _Older = None,
    newer_than: _Newer = None,
) -> Any:
    return letters_module().Filter(spout, status, step, reason, cause, stream, older_than, newer_than)


OfFilter = Annotated[Any, Given(_filter)]


def check_spout(ledger: Ledger, asked: "Filter") -> None:
    """Raises UnknownSpout where a topology does not have the spout that a filter names."""
    if asked.spout is not None:
        ledger.run(ledger.core.refresh_spouts())
        if asked.spout not in ledger.core.spouts:
            raise UnknownSpout(f"topology {ledger.config.name!r} has no spout {asked.spout!r}")


def letters_module() -> Any:
    """The module of dead letters, which needs pyarrow: NotInstalled without."""
    with needing_pyarrow("to read dead letters"):
        from acker.streams.dead_letters import dead_letters as letters
    return letters
