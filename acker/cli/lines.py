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
    overview_lines = ledger.run(overview.overview(ledger.core))
    if as_json:
        show_json(overview_lines)
    else:
        _show_lines(overview_lines)
    return Status.DONE


def _show_lines(lines_seen: "list[LineSeen]") -> None:
    lines_table = table("line", "gathers", "read", ">tasks", ">groups", ">rows", ">oldest")
    for line in lines_seen:
        for gather in line.gathers:
            groups = f"{gather.groups:,}{' or more' if gather.more else ''}"
            oldest = "-" if gather.oldest is None else duration(gather.oldest)
            read, tasks = "yes" if gather.read else "by nobody", str(gather.gather.tasks)
            row(lines_table, line.name, gather.gather.stream, read, tasks, groups, f"{gather.rows:,}", oldest)
    show(lines_table if lines_seen else "no lines")
    if any(line.unread for line in lines_seen):
        lines_table = table("line", "streams that nobody reads", ">rows", ">oldest")
        for line in lines_seen:
            for other in line.unread:
                oldest = "-" if other.oldest is None else duration(other.oldest)
                row(lines_table, line.name, other.stream, f"{other.rows:,}", oldest)
        show("", lines_table)


def _show_request(request: "RequestSeen") -> None:
    show(facts([("line", request.line), ("request", request.id), ("group", request.group)]))
    sections_table = table(">section", "ends at", "=tree", ">age", "waits there")
    for section in request.sections:
        state, age = (
            ("not known", "-") if section.tree is None else (section.tree.state, duration(section.tree.age))
        )
        rows = sum(each.rows for each in section.gathered)
        tasks = ", ".join(str(each.task) for each in section.gathered)
        waits = f"{rows:,} rows of its group, for tasks {tasks}" if section.gathered else ""
        if section.released:
            waits = "gone on" if section.read else "gone on; no step reads it"
        row(sections_table, str(section.number), section.stream or "its outcome", state, age, waits)
    show("", sections_table)
