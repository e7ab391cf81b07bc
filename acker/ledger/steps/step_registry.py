"""Steps: who works on a topology. Each says so with every batch; the last 256 that did are known.

Steps tell about themselves only. The parts of a topology are not declared anywhere else.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.ledger.steps import scripts
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import seconds

MOST_STEPS = 256
_MOST_STREAMS = 32
_TEXT = 200
_LATEST = 253_402_300_799_000_000  # the end of the year 9999, in microseconds: what a date can be
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """A step and who runs it. One step that two queries run is listed twice.

    name: as given to the bolt or job. kind: "bolt", "job", or a query that writes by itself, which
        is named by its stream ("writer") or its spout ("spout").
    application_id, application: of the Spark application, and its name, where known.
    query_id, query: of the streaming query, and its name; the id outlives restarts from the checkpoint.
    batch: its last one, -1 for none.
    reads, emits: streams that its last batch did so with. What a spout reads are the sources of its query, as
        Spark names them (`FileSource[/data/in]`, `kafka[orders]`), as far as the driver has said.
    seconds: how long its last batch took, 0 where that is not known. late: acks of that batch that came when
        their trees were over, mostly because they had expired.
    last_seen: Unix seconds by the server's clock, None before it was registered; age: seconds since then, by
        that clock, where it was read.
    """

    name: str
    kind: str
    application_id: str = ""
    application: str = ""
    query_id: str = ""
    query: str = ""
    batch: int = -1
    reads: tuple[str, ...] = ()
    emits: tuple[str, ...] = ()
    last_seen: float | None = None
    seconds: float = 0.0
    late: int = 0
    age: float | None = None


_ADDED = {"seconds", "late"}
"""What a step may lack that an earlier version has registered."""
_OF_STORE = {"last_seen", "age"}
_FIELDS = {one.name for one in fields(Step)} - _OF_STORE


def register(core: Core, step: Step) -> Operation[None]:
    """Notes that a step is at work now. Raises ValidationError for its name."""
    check_name(step.name, "step")
    what = {name: _bounded(value) for name, value in asdict(step).items() if name not in _OF_STORE}
    # A spout may have the name of a bolt of its query.
    field = f"{step.kind} {step.name} {what['query_id'] or what['application_id']}".encode("utf-8", "replace")
    yield [scripts.register_step(core.config.name, field, json.dumps(what), MOST_STEPS)]


def steps(core: Core) -> Operation[list[Step]]:
    """The steps that were seen, the last one first; unreadable ones are left out."""
    key = keys.steps(core.config.name)
    instant, stored = yield [Request(key, ["TIME"]), command("HGETALL", key)]
    now = seconds(instant)
    found = [step for value in stored[1::2] if (step := _parse(value, now)) is not None]
    return sorted(found, key=lambda step: -(step.last_seen or 0))


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return value[:_TEXT]
    if isinstance(value, Sequence):
        return sorted(set(value))[:_MOST_STREAMS]
    return value


def _parse(value: bytes, now: float) -> Step | None:
    try:
        micros, what = value.split(b" ", 1)
        stored = json.loads(what)
        if not _FIELDS - _ADDED <= set(stored) <= _FIELDS:
            raise ValueError(f"fields: {', '.join(stored)}")
        for name in stored.keys() - {"batch", "reads", "emits", *_ADDED}:
            _check(stored[name], str)
        _check(stored["batch"], int)
        _check(stored.get("late", 0), int)
        stored["seconds"] = float(_check(stored.get("seconds", 0.0), (int, float)))
        for name in ("reads", "emits"):
            for one in _check(stored[name], list):
                _check(one, str)
            stored[name] = tuple(stored[name])
        seen = min(_LATEST, int(micros)) / 1e6
        return Step(**stored, last_seen=seen, age=max(0.0, now - seen))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _log.error("not a step: %.200r: %r", value, error)
        return None


def _check(value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind}, got {value!r:.100}")
    return value
