"""Options that say which dead letters are meant, for all commands that take them."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker.cli.shared import options
from acker.cli.shared.statuses import Status
from acker.errors import UnknownSpout, needing_pyarrow
from acker.ledger.client import Ledger

if TYPE_CHECKING:
    from acker.streams.dead_letters.dead_letters import Filter

_Spout = Annotated[str | None, typer.Option(help="Only those of this spout.", show_default=False)]
_Status = Annotated[str | None, typer.Option(help="Only failed, or expired ones.", show_default=False)]
_Step = Annotated[
    str | None, typer.Option(help="Only letters of this step; '' for no step.", show_default=False)
]
_Reason = Annotated[str, typer.Option(help="Only those with this in their reason.", show_default=False)]
_Cause = Annotated[
    str | None, typer.Option(help="Only those of this cause, as --groups shows it.", show_default=False)
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


def filtered(command: Callable[..., Status | None]) -> Callable[..., Status | None]:
    """A command that takes the options of a filter, and is given that as `asked`."""
    own, more = inspect.signature(command).parameters, inspect.signature(_filter).parameters
    places = [one for name, one in own.items() if name != "asked"]
    at = next((place for place, one in enumerate(places) if one.name == "url"), len(places))
    together = [*places[:at], *more.values(), *places[at:]]

    @functools.wraps(command)
    def run(**given: Any) -> Status | None:
        return command(asked=_filter(**{name: given.pop(name) for name in more}), **given)

    run.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in together}
    return run


def opened_for(asked: "Filter", url: str, timeout: float, topology: str) -> Ledger:
    """The ledger of a topology that has the spout of a filter, if it names one."""
    ledger = options.ledger(url, timeout, topology)
    if asked.spout is not None:
        ledger.run(ledger.core.refresh_spouts())
        if asked.spout not in ledger.core.spouts:
            raise UnknownSpout(f"topology {topology!r} has no spout {asked.spout!r}")
    return ledger


def letters_module() -> Any:
    """The module of dead letters, which needs pyarrow: NotInstalled without."""
    with needing_pyarrow("to read dead letters"):
        from acker.streams.dead_letters import dead_letters as letters
    return letters
