"""Places as JSON, the same for the command line and the API.

acker/inspect/as_json/topology_forms.py has the other forms.
"""

from dataclasses import asdict
from typing import Any

from acker.inspect.as_json import topology_forms, tree_forms
from acker.inspect.as_json.values import instant
from acker.inspect.locate.drops import Drop
from acker.inspect.locate.place import Place
from acker.inspect.locate.stuck import Share, Stuck
from acker.inspect.locate.why import Why
from acker.inspect.topology.graph import Graph
from acker.streams.log.holders import Holder


def why(one: Why) -> dict[str, Any]:
    """Where a tree is."""
    ended = one.ended
    return {
        "anchor": str(one.anchor),
        "tree": None if one.tree is None else tree_forms.tree(one.tree),
        "outcome": None
        if ended is None
        else {
            "status": ended.status,
            "reason": ended.cause.reason,
            "step": ended.cause.step,
            "batch": ended.cause.batch,
            "at": instant(ended.at),
            "age": ended.age,
        },
        "places": [place(each) for each in one.places],
        "complete": one.complete,
        "seen": [topology_forms.seen(each) for each in one.seen],
        "trace": [tree_forms.trace_event(each) for each in one.trace],
        "rest": one.rest,
        "looked_at": one.looked_at,
        "segments": one.segments,
        "cursor": one.cursor,
    }


def place(one: Place) -> dict[str, Any]:
    """Where some tuples of a tree are."""
    made = {**asdict(one), "taken_by": holder(one.taken_by), "text": one.text()}
    made["row_numbers"] = list(one.row_numbers)
    return made


def holder(one: Holder | None) -> dict[str, Any] | None:
    """Who has taken a segment."""
    return None if one is None else {**asdict(one), "text": one.text()}


def stuck(one: Stuck) -> dict[str, Any]:
    """What a subscription has not acked."""
    return {
        "stream": one.stream,
        "subscription": one.subscription,
        "segments": one.segments,
        "rows": one.rows,
        "oldest": one.oldest,
        "partly": one.partly,
        "shares": [share(each) for each in one.shares],
    }


def drop(one: Drop) -> dict[str, Any]:
    """What a stream has dropped at once."""
    return {**asdict(one), "at": instant(one.at), "text": one.text()}


def share(one: Share) -> dict[str, Any]:
    """What one reader has, or nobody."""
    return {
        "taken_by": holder(one.holder),
        "segments": one.segments,
        "rows": one.rows,
        "oldest": one.oldest,
    }


def graph(one: Graph) -> dict[str, Any]:
    """The graph of a topology."""
    return {
        "at": instant(one.at),
        "failures_since": instant(one.failures_since),
        "worst": None if one.worst is None else asdict(one.worst),
        "nodes": [
            {**asdict(node), "age": node.age, "steps": [topology_forms.step(step) for step in node.steps]}
            for node in one.nodes
        ],
        "edges": [asdict(edge) for edge in one.edges],
    }
