"""Health of a topology: True if it needs no human, by `acker.inspect.topology.health_rules`.

Every face shows this judgement: the API, `acker health` and `stats`, the dashboard and the metrics.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from acker.errors import UnknownTopology, UnreadableRecord, ValidationError, shown
from acker.inspect import scripts
from acker.inspect.topology import history
from acker.inspect.topology.facts import Facts, Recently
from acker.inspect.topology.health_rules import RULES, WINDOW, judge
from acker.inspect.topology.history import Reading
from acker.inspect.topology.pace import Pace
from acker.inspect.topology.series import series
from acker.inspect.topology.thresholds import MOST_LIMIT, THRESHOLDS, Thresholds
from acker.inspect.topology.totals import Totals, totals
from acker.inspect.topology.troubles import CODES, Code, Level, Mute, Muted, PausedSpout, Trouble
from acker.inspect.topology.unreadable_topology import Damaged
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Instant
from acker.ledger.outcomes.outcomes import Entry, parse_all
from acker.ledger.settings.config import bounded_reason
from acker.ledger.settings.pauses import RESUMED, Pause, parse
from acker.ledger.steps.step_registry import steps
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, abreast, command
from acker.store.replies import pairs
from acker.store.replies import seconds as _seconds
from acker.streams.log.stream_totals import StreamTotals, stream_totals

MOST_MUTED = 30 * 86_400.0
"""Seconds: the longest that a trouble may be muted."""
PACES = 17
"""Most sources whose pace is kept: all spouts together, and the first that have registered."""
_SPOUT_SHARDS = 16
_MOST_BY = 200
_LATELY = 600.0
"""Seconds: a process that cannot read a source again says so more often."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a topology: the same rules in all places, with the thresholds of the topology.

    at: Unix seconds by the store's clock.
    dead_letters: how many each spout has that has any. streams: as they were read; none where one cannot be.
    """

    at: Annotated[float, HIDDEN]
    ticking: Annotated[bool, "No rotation is overdue by more than half a tick period (but 5 to 60 s)."]
    troubles: Annotated[tuple[Trouble, ...], "The worst first."]
    recently: Annotated[Recently, HIDDEN]
    thresholds: Annotated[Thresholds, HIDDEN]
    dead_letters: Annotated[Mapping[str, int], HIDDEN]
    streams: Annotated[Sequence[StreamTotals], HIDDEN]
    muted: Annotated[tuple[Muted, ...], "Troubles that are there, and somebody has muted."] = ()
    paused: Annotated[tuple[PausedSpout, ...], "Spouts whose new tracks are rejected, by name."] = ()

    @property
    def severity(
        self,
    ) -> Annotated[Level, "Of its worst trouble; muted: all that it has is; well: it has none."]:
        """The severity of the worst trouble."""
        if self.troubles:
            return self.troubles[0].severity
        return "muted" if self.muted else "well"

    @property
    def since(
        self,
    ) -> Annotated[Instant | None, "Since when it has a trouble of that severity; null: not known, or none."]:
        """The earliest begin of a trouble of the topology's severity, in Unix seconds."""
        begun = (one.since for one in self.troubles if one.severity == self.severity)
        return min((since for since in begun if since is not None), default=None)

    @property
    def rows_behind(self) -> int:
        """Rows that subscriptions have still to ack, of all streams."""
        return sum(max(0, own.rows_behind) for stream in self.streams for own in stream.subscriptions)


def health(core: Core, read: Totals | None = None, *, note: bool = False) -> Operation[Health]:
    """Returns the present health of a topology. read: its totals, if known.

    note: True stores the time at which each trouble began, for a single permanent observer.
    """
    facts = yield from _read(core, (yield from totals(core)) if read is None else read)
    troubles, muted = judge(facts)
    if note:
        there = {one.code for one in troubles} | {one.trouble.code for one in muted}
        yield from _note(core, facts, there)
    every = (*troubles, *(one.trouble for one in muted))
    ticking = all(trouble.code != "no-ticks" for trouble in every)
    return Health(
        facts.at,
        ticking,
        troubles,
        facts.recently,
        facts.thresholds,
        facts.dead_letters,
        facts.streams,
        muted,
        facts.paused,
    )


def unread(damage: Damaged) -> Trouble:
    """The trouble of a topology that cannot be read at all."""
    [advice] = [rule.advice for rule in RULES if rule.code == "unreadable"]
    text = f"the topology cannot be read: {damage.reason}"
    return Trouble("unreadable", "critical", text, advice, None, None, None, None)


def set_thresholds(core: Core, changes: Mapping[str, float]) -> Operation[Thresholds]:
    """Sets some thresholds of a topology; returns all.

    Raises ValidationError before anything has changed, and UnknownTopology where it was removed meanwhile.
    """
    [stored] = yield [command("HGETALL", keys.health(core.config.name))]
    wanted = _stored(stored, 0.0).thresholds.changed(changes)
    written = {f"threshold:{name}": repr(float(value)) for name, value in changes.items()}
    if changes and not (yield from _write(core, set_=written)):
        raise UnknownTopology.for_name(core.config.name, " any more")
    return wanted


def mute(core: Core, code: str, *, by: str, reason: str, seconds: float) -> Operation[Mute]:
    """Mutes a trouble of a topology, whether it is there now or comes.

    Args:
        core: The topology.
        code: The code of the trouble.
        by: The name of the muter: at most 200 characters are kept.
        reason: The reason, for people: at most 1 KiB.
        seconds: How long, from 1 to 2,592,000 (30 days).

    Raises:
        ValidationError: For a wrong code, reason or time; nothing has changed.
        UnknownTopology: The topology is gone.
    """
    _check_code(code)
    if isinstance(seconds, bool) or not 1 <= seconds <= MOST_MUTED:
        raise ValidationError(f"mute: expected 1 to {MOST_MUTED:,.0f} seconds, got {shown(seconds)}")
    if not reason.strip():
        raise ValidationError("mute: expected a reason, got none")
    key = keys.health(core.config.name)
    [instant] = yield [Request(key, ["TIME"])]
    muted = Mute(by[:_MOST_BY], bounded_reason(reason), _seconds(instant) + seconds)
    if not (yield from _write(core, set_={f"mute:{code}": json.dumps(asdict(muted))})):
        raise UnknownTopology.for_name(core.config.name, " any more")
    return muted


def unmute(core: Core, code: str) -> Operation[None]:
    """Ends the mute of a trouble. Raises ValidationError for a wrong code."""
    _check_code(code)
    yield from _write(core, gone=[f"mute:{code}"])


def _check_code(code: str) -> None:
    if code not in CODES:
        raise ValidationError(f"mute: expected one of {', '.join(CODES)}, got {shown(code)}")


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


@dataclass(slots=True)
class _Stored:
    """The hash of a topology's health, without what cannot be read."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    since: dict[str, float] = field(default_factory=dict)
    mutes: dict[str, Mute] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    waits: dict[str, dict[str, str]] = field(default_factory=lambda: {"unread": {}, "unsent": {}})


def _stored(reply: Reply, now: float) -> _Stored:
    """Thresholds, begins of troubles, mutes, paces, and late reasons; other values are passed over."""
    stored = _Stored()
    limits: dict[str, float] = {}
    for key, value in pairs(reply).items():
        kind, _, name = key.decode("utf-8", "replace").partition(":")
        if kind == "mute" and name in CODES and (mute := _mute(value)) is not None:
            stored.mutes[name] = mute
        elif kind == "pace" and (pace := Pace.load(value)) is not None:
            stored.paces[name] = pace
        elif kind in stored.waits:
            at, _, reason = value.decode("utf-8", "replace").partition(" ")
            if at.isdecimal() and now - int(at) / 1000 < _LATELY:
                stored.waits[kind][name] = reason
        try:
            limit = float(value)
        except ValueError:
            continue
        if kind == "threshold" and name in THRESHOLDS and 0 <= limit <= MOST_LIMIT:
            limits[name] = limit
        elif kind == "since" and name in CODES and 0 <= limit <= MOST_LIMIT * 10:
            stored.since[name] = limit
    stored.thresholds = replace(stored.thresholds, **limits)
    return stored


def _mute(text: bytes) -> Mute | None:
    try:
        stored = json.loads(text)
        muted = Mute(str(stored["by"]), str(stored["reason"]), float(stored["until"]))
    except (ValueError, TypeError, KeyError):
        return None
    return muted if 0 <= (muted.until or 0) <= MOST_LIMIT * 10 else None


def _note(core: Core, facts: Facts, there: set[Code]) -> Operation[None]:
    new = {f"since:{code}": f"{facts.at:.3f}" for code in there if code not in facts.since}
    gone = [f"since:{code}" for code in facts.since if code not in there]
    gone += [f"mute:{code}" for code, one in facts.mutes.items() if (one.until or 0) <= facts.at]
    resting = {pause.spout for pause in facts.paused} | ({""} if facts.paused else set())
    counts = {name: count for name, count in _work(core, facts).items() if name not in resting}
    paces = {
        f"pace:{name}": facts.paces.get(name, Pace(count, 0.0, facts.at)).after(count, facts.at).dump()
        for name, count in counts.items()
    }
    gone += [f"pace:{name}" for name in facts.paces if name not in counts]
    yield from _write(core, set_=paces, noted=new, gone=gone)


def _work(core: Core, facts: Facts) -> dict[str, float]:
    """For each source a number that grows with its work; none where tracking is off."""
    if not core.config.ackers:
        return {}
    spouts = sorted(core.spouts)
    if len(spouts) <= 1:
        return {(spouts or [""])[0]: float(facts.totals.counters["tracked"])}
    seen = Counter[str]()
    for step in facts.steps:
        if step.kind == "spout":
            seen[step.name] = max(seen[step.name], int((step.last_seen or 0) * 1000))
    named = {name: float(seen[name]) for name in spouts if seen[name]}
    return {"": float(facts.totals.counters["tracked"]), **dict(list(named.items())[: PACES - 1])}


def _read(core: Core, read: Totals) -> Operation[Facts]:
    key = keys.health(core.config.name)
    instant, reply = yield [Request(key, ["TIME"]), command("HGETALL", key)]
    at = _seconds(instant)
    stored = _stored(reply, at)
    # Side by side: a service reads this of hundreds of topologies, and exchanges are most of the work.
    reading: list[Operation[Any]] = [_counted(core, at), _spouts(core), steps(core)]
    (streams, recently, damage), (letters, kept), registered = yield from abreast(reading)
    return Facts(
        config=core.config,
        at=at,
        totals=read,
        recently=recently,
        streams=streams,
        steps=registered,
        unconfirmed=(yield from _unconfirmed(core, at)) if read.outstanding > read.pending else {},
        dead_letters=letters,
        damage=damage,
        thresholds=stored.thresholds,
        since=stored.since,
        mutes=stored.mutes,
        paces=stored.paces,
        **stored.waits,
        paused=_paused(read, kept),
    )


def _counted(core: Core, at: float) -> Operation[tuple[list[StreamTotals], Recently, str]]:
    """The totals of streams, the ends in the window, and the reason where one of these cannot be read."""
    streams: list[StreamTotals] = []
    try:
        streams = yield from stream_totals(core)
        return streams, (yield from _recently(core, at)), ""
    except UnreadableRecord as error:
        return streams, Recently(), str(error)


def _spouts(core: Core) -> Operation[tuple[dict[str, int], dict[str, bytes]]]:
    """The number of dead letters of each spout that has some, and the records of pauses."""
    names = sorted(core.spouts)
    if not names:
        return {}, {}
    spouts = [keys.Spout(core.config.name, name) for name in names]
    replies = yield [
        *(command("XLEN", spout.dead) for spout in spouts),
        *(command("GET", spout.paused) for spout in spouts),
    ]
    letters = {name: int(count) for name, count in zip(names, replies, strict=False) if count}
    records = zip(names, replies[len(names) :], strict=True)
    return letters, {name: record for name, record in records if record and not record.startswith(RESUMED)}


def _paused(read: Totals, kept: Mapping[str, bytes]) -> tuple[PausedSpout, ...]:
    """The paused spouts. kept: the records beside their kept rows."""
    names = sorted({*kept, *(name for shard in read.shards for name in shard.paused)})
    paused = []
    for name in names:
        records = [shard.paused.get(name) for shard in read.shards] + [kept.get(name)]
        pauses = [pause for record in records if record and (pause := parse(record)) is not None]
        latest = max(pauses, key=lambda pause: pause.since, default=Pause("", "", 0.0))
        since = latest.since or None
        paused.append(PausedSpout(name, latest.by, latest.reason, since, all(records)))
    return tuple(paused)


def _recently(core: Core, at: float) -> Operation[Recently]:
    """Returns the ends in the window: the present counters minus the counters before the window."""
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
    ages: dict[str, float] = {}
    oldest: dict[str, list[Entry]] = {}
    reads = [
        (spout, shard.number, shard.outcomes(spout))
        for spout in sorted(core.spouts)
        for shard in core.shards[:_SPOUT_SHARDS]
    ]
    replies = yield [command("XRANGE", stream, "-", "+", "COUNT", 1) for *_, stream in reads]
    for (spout, shard, _), entries in zip(reads, replies, strict=True):
        for entry_id, _ in entries:
            age = at - int(entry_id.partition(b"-")[0]) / 1000
            ages[spout] = max(0.0, age, ages.get(spout, 0.0))
        oldest.setdefault(spout, []).extend(parse_all(shard, entries)[0])
    try:
        from acker.streams.spouts.backoff import overdue
    except ImportError:  # no pyarrow: only ages are shown
        return ages
    for spout, entries in oldest.items():
        if entries:  # unreadable entries wait for nothing
            ages[spout] = yield from overdue(core, spout, entries, at)
    return ages
