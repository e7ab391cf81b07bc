"""`acker activity`: the latest writes to a topology, with author and result."""

import sys
from typing import Annotated, Any

import typer

from acker.cli.shared.files import opened
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import printable, row, show, show_json, table
from acker.errors import ValidationError
from acker.inspect.operate import activity as activities
from acker.inspect.operate.activity import ACTIONS, Activity, ActivityPage
from acker.ledger.client import Ledger
from acker.ledger.fields import instant, json_line


def activity(
    ledger: OfTopology,
    action: Annotated[
        str | None, typer.Option(help=f"Only one kind: {', '.join(ACTIONS)}.", show_default=False)
    ] = None,
    who: Annotated[str, typer.Option(help="Only authors with this in their name.", show_default=False)] = "",
    output: Annotated[
        str,
        typer.Option(help="Write all of them to this file as JSON lines; - for stdout.", show_default=False),
    ] = "",
    limit: Annotated[int, typer.Option(help="How many to show at most: 1 to 200.")] = 50,
    cursor: Annotated[
        str | None, typer.Option(help="Where the page before ended.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Writes by people and programs, the latest first: who, what, how many, why, and the result.

    The latest 1,000 are kept, and up to 200 marks that are earlier. They came over REST, the dashboard and
    the command line. A user of the command line is marked by `?`, because nobody has proved it.
    """
    if output and cursor:
        raise ValidationError("--output takes all that is kept: no --cursor")
    if output:
        _export(ledger, action, who, output)
        return
    page = ledger.run(activities.page(ledger.core, action=action, who=who, limit=limit, cursor=cursor))
    if as_json:
        show_json(page)
        return
    show(_table(page) if page.activity else "no activity")
    if page.cursor is not None:
        sys.stderr.write(f"more: --cursor {page.cursor}\n")


def _export(ledger: Ledger, action: str | None, who: str, output: str) -> None:
    count, cursor = 0, None
    with opened(output) as file:
        while True:
            reading = activities.page(
                ledger.core, action=action, who=who, limit=activities.PAGE, cursor=cursor
            )
            page = ledger.run(reading)
            file.writelines(json_line(one) for one in page.activity)
            count += len(page.activity)
            if (cursor := page.cursor) is None:
                break
    sys.stderr.write(f"{count:,} entries written\n")


def _table(page: ActivityPage) -> Any:
    grid = table("at", "who", "action", ">count", "of", "reason", "result")
    for entry in page.activity:
        who = f"{entry.who}{'' if entry.proved else ' ?'}"
        target = ", ".join(f"{name} {value}" for name, value in entry.target.items())
        row(
            grid,
            instant(entry.at),
            printable(who),
            entry.action,
            "-" if entry.count is None else f"{entry.count:,}",
            printable(target) or "-",
            printable(entry.reason) or "-",
            _result(entry),
        )
    return grid


def _result(entry: Activity) -> str:
    words = printable(entry.result)
    if entry.done:
        return words or "done"
    return f"not done: {words}" if words else "not done"
