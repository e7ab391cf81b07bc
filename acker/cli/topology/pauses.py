"""`acker pause` and `acker resume`: a spout whose new tracks are rejected for a while."""

from typing import Annotated

import typer

from acker.cli.shared import completion
from acker.cli.shared.noting import author, noting
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import show, show_json
from acker.inspect.operate import pauses
from acker.ledger.fields import instant

SpoutName = Annotated[
    str, typer.Argument(metavar="SPOUT", show_default=False, autocompletion=completion.spouts)
]


def pause(
    ledger: OfTopology,
    spout: SpoutName,
    reason: Annotated[
        str, typer.Option("--reason", help="Why, for others to read; rejected tracks have it, too.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Pause a spout: its new tracks are rejected until it is resumed. What it has in flight goes on.

    After an error do it again: a spout that is paused in a part of the store is a trouble of its topology.
    """
    name = ledger.config.name
    with noting(ledger, "pause-spout", {"spout": spout}, reason=reason):
        paused = ledger.run(pauses.pause(ledger.core, spout, by=f"{author()} (not proved)", reason=reason))
    if as_json:
        since = instant(paused.since)
        show_json(
            {"topology": name, "spout": spout, "by": paused.by, "reason": paused.reason, "since": since}
        )
    else:
        show(f"spout {spout} of {name} is paused. It goes on with: acker resume {name} {spout}")


def resume(ledger: OfTopology, spout: SpoutName, as_json: Json = False) -> None:
    """Resume a paused spout: it tracks again. Nothing changes where it is not paused."""
    name = ledger.config.name
    with noting(ledger, "resume-spout", {"spout": spout}):
        ledger.run(pauses.resume(ledger.core, spout))
    show_json({"topology": name, "spout": spout}) if as_json else show(f"spout {spout} of {name} goes on")
