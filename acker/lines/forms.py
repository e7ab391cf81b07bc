"""Lines as JSON, the same for the command line and the API (acker/inspect/forms.py has the other forms)."""

from typing import Any

from acker.inspect import forms
from acker.lines.overview import GatherSeen, LineSeen, RequestSeen, Section


def line(one: LineSeen) -> dict[str, Any]:
    """A line."""
    return {"line": one.name, "gathers": [_gather(each) for each in one.gathers]}


def _gather(one: GatherSeen) -> dict[str, Any]:
    return {
        "stream": one.gather.stream,
        "tasks": one.gather.tasks,
        "by": list(one.gather.by),
        "rows": one.rows,
        "groups": one.groups,
        "more": one.more,
        "oldest": one.oldest,
    }


def request(one: RequestSeen) -> dict[str, Any]:
    """A request of a line."""
    return {
        "line": one.line,
        "request": str(one.id),
        "group": one.group,
        "sections": [_section(each) for each in one.sections],
    }


def _section(one: Section) -> dict[str, Any]:
    return {
        "section": one.number,
        "stream": one.stream,
        "tree": None if one.tree is None else forms.tree(one.tree),
        "released": one.released,
        "gathered": [
            {"task": each.task, "segments": each.segments, "rows": each.rows} for each in one.gathered
        ],
    }
