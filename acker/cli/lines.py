"""`acker lines`: what gathers in a topology, and how far a request has come."""

from typing import TYPE_CHECKING, Annotated

import typer

from acker.cli.shared import options
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import duration, facts, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.errors import needing_pyarrow

if TYPE_CHECKING:
    from acker.inspect.lines.overview import LineSeen, RequestSeen


def lines(
    ledger: OfTopology,
    anchor: Annotated[
        str, typer.Argument(metavar="ANCHOR", help="Of a request, in any section.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> Status:
    """The lines of a topology, and what waits in their gathers; or each section of one request.

    Exit status 4 where the store knows no such request.
    """
    with needing_pyarrow("to look into lines"):
        from acker.inspect.lines import overview

    if anchor:
        request = ledger.run(overview.request(ledger.core, options.anchor(anchor)))
        if as_json:
            show_json(request)
        else:
            _show_request(request)
        known = any(one.tree is not None or one.gathered or one.released for one in request.sections)
        return Status.DONE if known else Status.MISSING
    found = ledger.run(overview.overview(ledger.core))
    if as_json:
        show_json(found)
    else:
        _show_lines(found)
    return Status.DONE


def _show_lines(found: "list[LineSeen]") -> None:
    made = table("line", "gathers", "read", ">tasks", ">groups", ">rows", ">oldest")
    for line in found:
        for one in line.gathers:
            groups = f"{one.groups:,}{' or more' if one.more else ''}"
            oldest = "-" if one.oldest is None else duration(one.oldest)
            read, tasks = "yes" if one.read else "by nobody", str(one.gather.tasks)
            row(made, line.name, one.gather.stream, read, tasks, groups, f"{one.rows:,}", oldest)
    show(made if found else "no lines")
    if any(line.unread for line in found):
        made = table("line", "streams that nobody reads", ">rows", ">oldest")
        for line in found:
            for other in line.unread:
                oldest = "-" if other.oldest is None else duration(other.oldest)
                row(made, line.name, other.stream, f"{other.rows:,}", oldest)
        show("", made)


def _show_request(request: "RequestSeen") -> None:
    show(facts([("line", request.line), ("request", request.id), ("group", request.group)]))
    made = table(">section", "ends at", "tree", ">age", "waits there")
    for one in request.sections:
        state, age = ("not known", "-") if one.tree is None else (one.tree.state, duration(one.tree.age))
        rows = sum(each.rows for each in one.gathered)
        tasks = ", ".join(str(each.task) for each in one.gathered)
        waits = f"{rows:,} rows of its group, for tasks {tasks}" if one.gathered else ""
        if one.released:
            waits = "gone on" if one.read else "gone on; no step reads it"
        row(made, str(one.number), one.stream or "its outcome", state, age, waits)
    show("", made)
