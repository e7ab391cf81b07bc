"""`acker mark`: a mark on the charts of a topology."""

from typing import Annotated

import typer

from acker.cli.shared.noting import author
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import show, show_json
from acker.inspect.operate import chart_marks
from acker.ledger.fields import instant


def mark(
    ledger: OfTopology,
    text: Annotated[str, typer.Argument(metavar="TEXT", show_default=False)],
    as_json: Json = False,
) -> None:
    """Mark a deploy, or what else explains a bend, on the charts of a topology, at the present time.

    TEXT has 1 to 200 characters. It stands in `acker activity`, too.
    """
    marking = chart_marks.mark(ledger.core, text, who=author(), proved=False, via="cli")
    entry = ledger.run(marking)
    if as_json:
        show_json(entry)
    else:
        show(f"marked at {instant(entry.at)}")
