"""Whether a topology needs a human, by the rules of `acker.inspect.topology.health_rules`.

Every face shows what is judged here: the API, `acker health` and `stats`, the dashboard and the metrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from acker.errors import UnknownTopology, UnreadableRecord
from acker.inspect import scripts
from acker.inspect.topology import history
from acker.inspect.topology.health_rules import (
    CODES,
    MOST_LIMIT,
    RULES,
    THRESHOLDS,
    WINDOW,
    Code,
    Facts,
    Recently,
    Thresholds,
    Trouble,
    judge,
)
from acker.inspect.topology.history import Reading
from acker.inspect.topology.series import series
from acker.inspect.topology.totals import Totals, totals
from acker.inspect.topology.unreadable_topology import Damaged
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN
from acker.ledger.outcomes.outcomes import Entry, parse_all
from acker.ledger.steps.step_registry import steps
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import pairs, seconds
from acker.streams.log.stream_totals import StreamTotals, stream_totals

_SPOUT_SHARDS = 16


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a topology: the same rules in all places, with the thresholds of the topology.

    at: Unix seconds by the store's clock.
    dead_letters: how many each spout has that has any. streams: as they were read; none where one cannot be.
    """

    at: Annotated[float, HIDDEN]
    ticking: Annotated[bool, "No rotation is overdue by more than half a tick period (but 5 to 60 s)."]
    troubles: tuple[Trouble, ...]
    recently: Annotated[Recently, HIDDEN]
    thresholds: Annotated[Thresholds, HIDDEN]
    dead_letters: Annotated[Mapping[str, int], HIDDEN]
    streams: Annotated[Sequence[StreamTotals], HIDDEN]

    @property
    def rows_behind(self) -> int:
        """Rows that subscriptions have still to ack, of all streams."""
        return sum(max(0, own.rows_behind) for stream in self.streams for own in stream.subscriptions)


def health(core: Core, read: Totals | None = None, *, note: bool = False) -> Operation[Health]:
    """How a topology is now. read: its totals, where they are known.

    note: keeps in the store since when there is each trouble, for one to do who looks all the time.
    """
    facts = yield from _read(core, (yield from totals(core)) if read is None else read)
    troubles = judge(facts)
    if note:
        yield from _note(core, facts, {trouble.code for trouble in troubles})
    ticking = all(trouble.code != "no-ticks" for trouble in troubles)
    return Health(
        facts.at, ticking, troubles, facts.recently, facts.thresholds, facts.dead_letters, facts.streams
    )


def unread(damage: Damaged) -> Trouble:
    """The trouble of a topology that cannot be read at all."""
    [advice] = [rule.advice for rule in RULES if rule.code == "unreadable"]
    return Trouble("unreadable", f"the topology cannot be read: {damage.reason}", advice, None)


def set_thresholds(core: Core, changes: Mapping[str, float]) -> Operation[Thresholds]:
    """Sets some thresholds of a topology; returns all.

    Raises ValidationError before anything has changed, and UnknownTopology where it was removed meanwhile.
    """
    [stored] = yield [command("HGETALL", keys.health(core.config.name))]
    wanted = _stored(stored)[0].changed(changes)
    written = {f"threshold:{name}": repr(float(value)) for name, value in changes.items()}
    if changes and not (yield from _write(core, set_=written)):
        raise UnknownTopology.named(core.config.name, " any more")
    return wanted


def _write(
    core: Core,
    *,
    set_: Mapping[str, str] | None = None,
    noted: Mapping[str, str] | None = None,
    gone: Sequence[str] = (),
) -> Operation[bool]:
    """Sets fields, and those `noted` where they are new; drops some. False where the topology is gone."""
    [done] = yield [scripts.note_health(core.config.name, set_ or {}, noted or {}, gone)]
    return bool(done)


def _stored(reply: Reply) -> tuple[Thresholds, dict[str, float]]:
    """Thresholds, and since when there are troubles; what is neither is passed over."""
    limits: dict[str, float] = {}
    since: dict[str, float] = {}
    for key, value in pairs(reply).items():
        kind, _, name = key.decode("utf-8", "replace").partition(":")
        try:
            limit = float(value)
        except ValueError:
            continue
        if kind == "threshold" and name in THRESHOLDS and 0 <= limit <= MOST_LIMIT:
            limits[name] = limit
        elif kind == "since" and name in CODES and 0 <= limit <= MOST_LIMIT * 10:
            since[name] = limit
    return replace(Thresholds(), **limits), since


def _note(core: Core, facts: Facts, there: set[Code]) -> Operation[None]:
    new = {f"since:{code}": f"{facts.at:.3f}" for code in there if code not in facts.since}
    gone = [f"since:{code}" for code in facts.since if code not in there]
    if new or gone:
        yield from _write(core, noted=new, gone=gone)


def _read(core: Core, read: Totals) -> Operation[Facts]:
    key = keys.health(core.config.name)
    instant, stored = yield [Request(key, ["TIME"]), command("HGETALL", key)]
    at = seconds(instant)
    thresholds, since = _stored(stored)
    streams: list[StreamTotals] = []
    damage = ""
    try:
        streams = yield from stream_totals(core)
        recently = yield from _recently(core, at)
    except UnreadableRecord as error:
        damage, recently = str(error), Recently()
    letters: dict[str, int] = {}
    if names := sorted(core.spouts):
        counts = yield [command("XLEN", keys.Spout(core.config.name, name).dead) for name in names]
        letters = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
    return Facts(
        config=core.config,
        at=at,
        totals=read,
        recently=recently,
        streams=streams,
        steps=(yield from steps(core)),
        unconfirmed=(yield from _unconfirmed(core, at)) if read.held > read.pending else {},
        dead_letters=letters,
        damage=damage,
        thresholds=thresholds,
        since=since,
    )


def _recently(core: Core, at: float) -> Operation[Recently]:
    """What ended in the window: the counters as they are, less those of the reading before the window."""
    now = round(at * 1000)
    values, latencies = yield from history.read(core)
    before = yield from history.before(core, now - WINDOW * 1000, history.STEPS["3h"])
    first = Reading(0) if before is None else before
    points = series([first, Reading(now, history.pack(values, latencies))])
    counts = {name: int(points.counts[name][0]) for name in ("acked", "failed", "expired")}
    [p99] = points.total_percentiles(0.99)
    return Recently(seconds=None if before is None else (now - before.at) / 1000, p99=p99, **counts)


def _unconfirmed(core: Core, at: float) -> Operation[dict[str, float]]:
    """For each spout, how long ago its oldest outcome was due, of those in some of the shards."""
    found: dict[str, float] = {}
    oldest: dict[str, list[Entry]] = {}
    looked = [
        (spout, shard.number, shard.outcomes(spout))
        for spout in sorted(core.spouts)
        for shard in core.shards[:_SPOUT_SHARDS]
    ]
    replies = yield [command("XRANGE", stream, "-", "+", "COUNT", 1) for *_, stream in looked]
    for (spout, shard, _), entries in zip(looked, replies, strict=True):
        for entry_id, _ in entries:
            age = at - int(entry_id.partition(b"-")[0]) / 1000
            found[spout] = max(0.0, age, found.get(spout, 0.0))
        oldest.setdefault(spout, []).extend(parse_all(shard, entries)[0])
    try:
        from acker.streams.spouts.backoff import overdue
    except ImportError:  # no pyarrow: only ages are shown
        return found
    for spout, entries in oldest.items():
        if entries:  # unreadable entries wait for nothing
            found[spout] = yield from overdue(core, spout, entries, at)
    return found
