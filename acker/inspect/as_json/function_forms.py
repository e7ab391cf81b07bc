"""Functions and their calls as JSON, the same for the command line and the API."""

from dataclasses import asdict
from typing import Any

from acker.inspect.as_json.topology_forms import PERCENTILES
from acker.inspect.as_json.values import instant
from acker.inspect.functions.call_progress import CallHead, Progress, StepSeen
from acker.inspect.functions.figures import Counted, Figures


def figures(one: Figures) -> dict[str, Any]:
    """What became of the calls of a function."""
    return {
        "pending": one.pending,
        "late": one.late,
        "recent": counted(one.recent),
        "total": counted(one.total),
        "minutes": list(one.minutes),
    }


def counted(one: Counted) -> dict[str, Any]:
    """What became of the calls that were answered in a time."""
    return {
        "seconds": one.seconds,
        "answered": one.answered,
        "failed": one.failed,
        "timed_out": one.timed_out,
        "rate": one.rate,
        "latency": {f"p{round(part * 100)}": one.latency(part) for part in PERCENTILES},
        "causes": [
            {"status": str(each.status), "steps": list(each.steps), "cause": each.text, "calls": each.calls}
            for each in one.causes
        ],
    }


def head(one: CallHead) -> dict[str, Any]:
    """A call, in short."""
    return {
        "request": one.request,
        "status": str(one.status),
        "at": _instant(one.at),
        "deadline": _instant(one.deadline),
        "took": one.took,
        "reason": one.reason,
        "steps": list(one.steps),
    }


def progress(one: Progress) -> dict[str, Any]:
    """A call, and its steps."""
    return {
        "call": head(one.head),
        "anchor": None if one.seen is None else str(one.seen.id),
        "steps": [step(each) for each in one.steps],
    }


def step(one: StepSeen) -> dict[str, Any]:
    """A step of a call."""
    return {
        "name": one.name,
        "section": one.section,
        "state": str(one.state),
        "since": _instant(one.since),
        "gathered": [asdict(each) for each in one.gathered],
    }


def _instant(seconds: float | None) -> str | None:
    return None if seconds is None else instant(seconds)
