"""Lines as JSON, the same for the command line and the API.

acker/inspect/as_json/topology_forms.py has the other forms.
"""

from dataclasses import asdict
from typing import Any

from acker.inspect.as_json import tree_forms
from acker.inspect.as_json.values import instant
from acker.inspect.lines.overview import GatherSeen, LineSeen, RequestSeen, Section


def line(one: LineSeen) -> dict[str, Any]:
    """A line."""
    return {
        "line": one.name,
        "gathers": [_gather(each) for each in one.gathers],
        "unread": [asdict(each) for each in one.unread],
    }


def _gather(one: GatherSeen) -> dict[str, Any]:
    return {
        "stream": one.gather.stream,
        "tasks": one.gather.tasks,
        "by": list(one.gather.by),
        "read": one.read,
        "rows": one.rows,
        "groups": one.groups,
        "more": one.more,
        "oldest": one.oldest,
        "oldest_request": None if one.oldest_request is None else str(one.oldest_request),
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
        "read": one.read,
        "anchor": str(one.anchor),
        "tree": None if one.tree is None else tree_forms.tree(one.tree),
        "over": one.over,
        "passed": one.passed,
        "released": one.released,
        "released_at": None if one.released_at is None else instant(one.released_at),
        "gathered": [asdict(each) for each in one.gathered],
    }
