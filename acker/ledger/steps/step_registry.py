"""Steps: who works on a topology. Each says so with every batch; the last 256 that did are known.

Steps tell about themselves only. The parts of a topology are not declared anywhere else.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Examples, Instant, Seconds
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
    """A spout or bolt, as it has said of itself. One step that two queries run is listed twice.

    name: as given to the bolt or job; a query that writes by itself is named by its stream (kind "writer") or
        its spout (kind "spout").
    reads: of a spout as far as the driver has said (`FileSource[/data/in]`, `kafka[orders]`).
    """

    name: str
    kind: Annotated[str, Examples("bolt"), "What it is: bolt, spout and so on."]
    application_id: str = ""
    application: str = ""
    query_id: Annotated[str, "Outlives restarts from the checkpoint."] = ""
    query: Annotated[str, "The name of its streaming query."] = ""
    batch: Annotated[int, "Its last micro-batch; -1 where there is none."] = -1
    reads: Annotated[tuple[str, ...], "Streams; of a spout its sources, as Spark names them."] = ()
    emits: Annotated[tuple[str, ...], "Streams."] = ()
    last_seen: Annotated[Instant | None, "null before it was registered."] = None
    seconds: Annotated[Seconds, "How long its last batch took; 0 where that is not known."] = 0.0
    late: Annotated[Count, "Acks of that batch that came when their trees were over."] = 0
    age: Annotated[Seconds | None, "Seconds since then, by the store's clock."] = None


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
