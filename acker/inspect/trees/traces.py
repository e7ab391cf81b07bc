"""Reading of traces: the events of a tree (`acker.ledger.calls.traces`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from acker.inspect.trees.failure import Failure
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.calls.traces import EXPORTED, MOST_TRACES, STORED
from acker.ledger.fields import Batch, Count, Examples, Instant
from acker.ledger.ids import check_id
from acker.ledger.steps import step_totals
from acker.store.operation import Operation, Reply, command
from acker.store.records import passing_over
from acker.store.replies import pairs, whole

_SHARDS = 64
_KINDS = "tracked", "emitted", "acked", "reset"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event of a traced tree.

    kind: tracked, emitted (rows of it into a stream), reset (its timeout, for the first time by a step and
    batch), acked, failed or expired.
    """

    at: Instant
    kind: Annotated[str, Examples("tracked", "emitted", "reset", "acked", "failed", "expired")]
    step: Annotated[str, "Whose; empty where that is not known."] = ""
    batch: Annotated[Batch, "Of its query; null where there is none."] = -1
    spout: Annotated[str, "Of a track."] = ""
    stream: Annotated[str, "Where its rows went, or of which they were."] = ""
    rows: Annotated[Count, "How many of its rows."] = 0
    reason: Annotated[str, "Of a fail or an expiration; anybody's text."] = ""

    def text(self) -> Annotated[str, "The event, for people."]:
        """The event, for people."""
        by = f" by {self.step}" if self.step else ""
        by += f", batch {self.batch}" if self.batch >= 0 else ""
        if self.kind == "tracked":
            return f"tracked for spout {self.spout}"
        where = f" {'into' if self.kind == 'emitted' else 'of'} stream {self.stream}" if self.stream else ""
        what = f" {self.rows:,} row{'s' * (self.rows != 1)}{where}" if self.stream else ""
        kind = "timeout reset" if self.kind == "reset" else self.kind
        return f"{kind}{what}{by}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Traced:
    """A tree that is traced. began: when its first event was noted (Unix seconds)."""

    anchor: int
    began: float


def trace(core: Core, anchor: int) -> Operation[list[TraceEvent]]:
    """The events of a tree, the first one first; none where it is not traced. Raises ValidationError."""
    check_id(anchor, "anchor")
    if not core.config.ackers:
        return []
    shard = core.shards[ids.shard_of(ids.slab_of(anchor), core.config.ackers)]
    [stored] = yield [command("HGETALL", shard.trace(anchor))]
    named = {0: step_totals.OTHERS, **(yield from step_totals.numbers(core))} if stored else {}
    found = [_parse(value, named) for key, value in pairs(stored).items() if key != EXPORTED.encode()]
    return sorted((one for one in found if one is not None), key=_order)


def _order(event: TraceEvent) -> tuple[float, int]:
    """The order of events: by time; in one millisecond, by their order in the life of a tuple."""
    return event.at, _KINDS.index(event.kind) if event.kind in _KINDS else len(_KINDS)


def with_end(events: list[TraceEvent], ended: Failure | None) -> list[TraceEvent]:
    """Returns the events of a trace, with the failure or expiry of its tree, if they lack it.

    Only the ledger knows of each end, so no one writes it into traces: an expiration costs them nothing.
    """
    if not events or ended is None or any(event.kind == ended.status for event in events):
        return events
    cause = ended.cause
    end = TraceEvent(ended.at, ended.status, cause.step, cause.batch, reason=cause.reason)
    return sorted([*events, end], key=lambda event: event.at)


def traced(core: Core, most: int = 100) -> Operation[list[Traced]]:
    """The trees that are traced, the one that began last first; up to `most` (1 to 10,000) of each shard."""
    most = max(1, min(most, MOST_TRACES))
    traces: list[Traced] = []
    for first in range(0, len(core.shards), _SHARDS):
        shards = core.shards[first : first + _SHARDS]
        replies = yield [command("XREVRANGE", shard.traces, "+", "-", "COUNT", most) for shard in shards]
        traces += [tree for reply in replies for tree in _traced(reply)]
    return sorted(traces, key=lambda one: -one.began)


def walk(core: Core, places: dict[int, bytes], most: int) -> Operation[list[Traced]]:
    """The next `most` (1 to 10,000) traced trees of each shard, in the order in which they began.

    places: by shard, where an earlier call has ended, and then where this one has; it begins anew at the end.
    """
    traces: list[Traced] = []
    for first in range(0, len(core.shards), _SHARDS):
        shards = core.shards[first : first + _SHARDS]
        replies = yield [
            command("XRANGE", one.traces, b"(" + places.get(one.number, b"0-0"), "+", "COUNT", most)
            for one in shards
        ]
        for shard, reply in zip(shards, replies, strict=True):
            places[shard.number] = reply[-1][0] if len(reply) == most else b"0-0"
            traces += _traced(reply)
    return traces


def _traced(entries: Reply) -> Iterator[Traced]:
    for entry, fields in entries:
        anchor = pairs(fields).get(b"anchor", b"")
        if anchor.removeprefix(b"-").isdigit() and len(anchor) < 21:
            yield Traced(int(anchor), int(entry.partition(b"-")[0]) / 1000)


def _parse(value: bytes, named: Mapping[int, str]) -> TraceEvent | None:
    """An event; None where it cannot be read."""
    ms, _, text = value.partition(b" ")
    with passing_over("traces"):
        kind, by, spout, stream, rows, reason = STORED.load(text)
        step, batch = ("", -1) if by is None else (named.get(by.step, ""), by.batch)
        at = whole(ms, "when an event was") / 1000
        return TraceEvent(at, kind, step, batch, spout, stream, rows, reason)
    return None
