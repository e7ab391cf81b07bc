"""Registry of a topology's steps: each registers with every batch; the last 256 are remembered.

A step registers only itself. The parts of a topology are not declared anywhere else.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any

from acker.ledger.calls.core import Core
from acker.ledger.fields import Batch, Count, Examples, Instant, Seconds
from acker.ledger.settings.config import check_name
from acker.ledger.steps import scripts
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import Record, passing_over
from acker.store.replies import seconds, whole

MOST_STEPS = 256
_MOST_STREAMS = 32
_TEXT = 200
_LATEST = 253_402_300_799_000_000  # the end of the year 9999, in microseconds: the last date
_OF_STORE: dict[str, Any] = {"last_seen": None, "age": None}


@dataclass(frozen=True, slots=True)
class Step(Record, label="a step"):
    """A spout or bolt, as it registered itself. A step of two queries is listed twice.

    name: the name given to the bolt or job; a query that writes by itself is named by its stream (kind
        "writer") or its spout (kind "spout").
    reads: the sources of a spout as the driver names them (`FileSource[/data/in]`, `kafka[orders]`).
    """

    name: str
    kind: Annotated[str, Examples("bolt"), "bolt, spout and so on."]
    application_id: str = ""
    application: str = ""
    query_id: Annotated[str, "Outlives restarts from the checkpoint."] = ""
    query: Annotated[str, "The name of its streaming query."] = ""
    batch: Annotated[Batch, "Its last micro-batch; null if there is none."] = -1
    reads: Annotated[tuple[str, ...], "Streams; of a spout its sources, as Spark names them."] = ()
    emits: Annotated[tuple[str, ...], "Streams."] = ()
    last_seen: Annotated[Instant | None, "null before it was registered."] = None
    seconds: Annotated[Seconds, "Duration of its last batch; 0 if that is unknown."] = 0.0
    late: Annotated[Count, "Acks of that batch that came after the end of their trees."] = 0
    age: Annotated[Seconds | None, "Seconds since then, by the store's clock."] = None


def register(core: Core, step: Step, stream: str = "") -> Operation[None]:
    """Registers a step. Raises ValidationError for its name.

    stream: Tells processes of a host apart whose steps have one name: the first stream that they read.
    """
    check_name(step.name, "step")
    bounded = {name: _bounded(value) for name, value in asdict(step).items()} | _OF_STORE
    bounded_step = Step(**bounded)
    # A spout may have the name of a bolt of its query.
    field = (
        f"{step.kind} {step.name} {bounded_step.query_id or bounded_step.application_id} {stream}".rstrip()
    )
    named = field.encode("utf-8", "replace")
    record = bounded_step.dump()
    yield from core.make(partial(scripts.register_step, core.config.name, named, record, MOST_STEPS))


def steps(core: Core) -> Operation[list[Step]]:
    """The registered steps, the latest first, without unreadable ones."""
    key = keys.steps(core.config.name)
    instant, stored = yield [Request(key, ["TIME"]), command("HGETALL", key)]
    now = seconds(instant)
    found = [step for value in stored[1::2] if (step := _parse(value, now)) is not None]
    return sorted(found, key=lambda step: -(step.last_seen or 0))


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()[:_TEXT]
    if isinstance(value, Sequence):
        return tuple(map(_bounded, sorted(set(value))[:_MOST_STREAMS]))
    return value


def _parse(value: bytes, now: float) -> Step | None:
    micros, _, record = value.partition(b" ")
    with passing_over("steps"):
        seen = min(_LATEST, whole(micros, "the time of a step")) / 1e6
        return replace(Step.load(record), last_seen=seen, age=max(0.0, now - seen))
    return None
