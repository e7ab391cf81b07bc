"""Whether a topology needs a human: rules in a table, with thresholds that can be set or switched off.

Every face shows what is judged here: the API, `acker health` and `stats`, the dashboard and the metrics.
`judge` is a pure function of `Facts`; `health` reads these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

from acker.errors import UnknownTopology, UnreadableRecord, ValidationError
from acker.inspect import history, lua
from acker.inspect.damaged import Damaged
from acker.inspect.history import Reading
from acker.inspect.series import series
from acker.inspect.steps import Step, steps
from acker.inspect.stream_totals import StreamTotals, stream_totals
from acker.inspect.totals import Totals, totals
from acker.ledger.config import DEAD_LETTERS, TopologyConfig
from acker.ledger.core import Core
from acker.ledger.outcomes import Entry, parse_all
from acker.ledger.settings import number, of
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import pairs, seconds

WINDOW = 600
"""Seconds over which outcomes are counted: somewhat more where no service ran, and less since it was made."""
FEW = 10
"""Of fewer failed or expired trees than these nothing is said, unless there are no others."""

Code: TypeAlias = Literal[
    "no-ticks",
    "full",
    "nearly-full",
    "drain-behind",
    "failing",
    "expiring",
    "slow",
    "behind",
    "no-bolt",
    "no-spout",
    "dead-letters-full",
    "dead-letters",
    "unreadable",
]
CODES: tuple[Code, ...] = get_args(Code)

_SPOUT_SHARDS = 16
_MOST = 1e9


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something is a trouble; 0 switches its rule off."""

    full: float = number(0.8, 0.0, _MOST, "The fullest shard's share of what it may hold.")
    failed: float = number(0.1, 0.0, _MOST, "Share of the trees that ended in the last ten minutes.")
    expired: float = number(0.05, 0.0, _MOST, "Share of the trees that ended in the last ten minutes.")
    latency: float = number(0.8, 0.0, _MOST, "p99 in the last ten minutes, in message timeouts.")
    behind: float = number(1.0, 0.0, _MOST, "How long rows wait for a subscription, in message timeouts.")
    silence: float = number(
        120.0,
        0.0,
        _MOST,
        "Seconds without a sign of the bolts of a stream with rows, or a spout with outcomes.",
    )
    dead_letters: float = number(1.0, 0.0, _MOST, "How many dead letters.")
    unreadable: float = number(1.0, 0.0, _MOST, "How many records that could not be read.")

    def changed(self, changes: Mapping[str, float]) -> "Thresholds":
        """With other values for some; ValidationError that names what is no threshold, or out of range."""
        for name, value in changes.items():
            if name not in THRESHOLDS:
                known = ", ".join(THRESHOLDS)
                raise ValidationError(f"threshold: expected one of {known}, got {name!r:.100}")
            THRESHOLDS[name].check(value, name)
        return replace(self, **changes)


THRESHOLDS = of(Thresholds)


@dataclass(frozen=True, slots=True)
class Recently:
    """What ended in the window. seconds: how long it is, None for all since the topology was made."""

    seconds: float | None = None
    acked: int = 0
    failed: int = 0
    expired: int = 0
    p99: float | None = None

    @property
    def ended(self) -> int:
        """Trees that had an outcome."""
        return self.acked + self.failed + self.expired

    @property
    def span(self) -> str:
        """The window in words."""
        return "so far" if self.seconds is None else f"in the last {words(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is judged. at: Unix seconds by the store's clock.

    unconfirmed: for spouts with outcomes that are not confirmed, how many seconds ago the oldest of them
    came (where its rows wait for their next attempt: was due), as far as that was looked for.
    dead_letters: of spouts that have any. damage: what could not be read just now. since: when each trouble
    was first noted, in Unix seconds.
    """

    config: TopologyConfig
    at: float
    totals: Totals
    recently: Recently = Recently()
    streams: Sequence[StreamTotals] = ()
    steps: Sequence[Step] = ()
    unconfirmed: Mapping[str, float] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    damage: str = ""
    thresholds: Thresholds = Thresholds()
    since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that needs a human: in words, and what to do. since: Unix seconds, if known."""

    code: Code
    text: str
    advice: str
    since: float | None


@dataclass(frozen=True, slots=True)
class Health:
    """How a topology is, at `at` (Unix seconds by the store's clock). ticking: no rotation is overdue.

    dead_letters: how many each spout has that has any. streams: as they were read; none where one cannot be.
    """

    at: float
    ticking: bool
    troubles: tuple[Trouble, ...]
    recently: Recently
    thresholds: Thresholds
    dead_letters: Mapping[str, int]
    streams: Sequence[StreamTotals]

    @property
    def rows_behind(self) -> int:
        """Rows that subscriptions have still to ack, of all streams."""
        return sum(max(0, own.rows_behind) for stream in self.streams for own in stream.subscriptions)


class Finding(NamedTuple):
    """What a rule found: in words, and for how many seconds so, where that is known."""

    text: str
    lasts: float | None = None


class Rule(NamedTuple):
    """A rule: `look` gets the facts and the threshold, and is not asked where that is switched off."""

    code: Code
    threshold: str | None
    look: Callable[[Facts, float], Finding | None]
    advice: str


def judge(facts: Facts) -> tuple[Trouble, ...]:
    """The troubles of a topology, in the order of `RULES`."""
    found = []
    for rule in RULES:
        limit = getattr(facts.thresholds, rule.threshold) if rule.threshold else 1.0
        if limit and (seen := rule.look(facts, limit)):
            since = facts.since.get(rule.code) if seen.lasts is None else facts.at - seen.lasts
            found.append(Trouble(rule.code, seen.text, rule.advice, since))
    return tuple(found)


# The rules


def _no_ticks(facts: Facts, _: float) -> Finding | None:
    age, tick = facts.totals.rotation_age, facts.config.tick_ms / 1000
    if age is None or age <= tick + facts.config.tick_limit:
        return None
    text = f"no tick for {words(age)}, and one is due each {words(tick)}: nothing expires"
    return Finding(text, age - tick)


def _full(facts: Facts, _: float) -> Finding | None:
    use = facts.totals.high_water_use
    return Finding(f"a shard holds {use:.0%} of what it may: tracks are rejected") if use >= 1 else None


def _nearly_full(facts: Facts, limit: float) -> Finding | None:
    use = facts.totals.high_water_use
    return Finding(f"a shard holds {use:.0%} of what it may") if limit <= use < 1 else None


def _drain_behind(facts: Facts, _: float) -> Finding | None:
    backlog = facts.totals.backlog
    if backlog <= 1:
        return None
    return Finding(f"{backlog} rotations are not drained: trees expire faster than outcomes are written")


def _share(facts: Facts, count: int, limit: float, what: str) -> Finding | None:
    ended = facts.recently.ended
    if not count or (count < FEW and count < ended) or count / ended < limit:
        return None
    return Finding(f"{count:,} of {ended:,} trees {what} {facts.recently.span}, {100 * count // ended}%")


def _failing(facts: Facts, limit: float) -> Finding | None:
    return _share(facts, facts.recently.failed, limit, "failed")


def _expiring(facts: Facts, limit: float) -> Finding | None:
    return _share(facts, facts.recently.expired, limit, "expired")


def _slow(facts: Facts, limit: float) -> Finding | None:
    p99, timeout = facts.recently.p99, facts.config.message_timeout
    if p99 is None or facts.recently.acked < FEW or p99 < limit * timeout:
        return None
    return Finding(
        f"one tree in a hundred took {words(p99)} or more {facts.recently.span}, "
        f"and the message timeout is {words(timeout)}"
    )


def _behind(facts: Facts, limit: float) -> Finding | None:
    late = [
        (own.unread_age, own.rows_behind, own.name, stream.name)
        for stream in facts.streams
        for own in stream.subscriptions
        if own.name is not None and own.rows_behind > 0 and own.unread_age is not None
    ]
    age, rows, name, stream = max(late, default=(0.0, 0, "", ""))
    longest = limit * facts.config.message_timeout
    if age < longest:
        return None
    text = f"{rows:,} rows of stream {stream} wait for subscription {name}, the oldest for {words(age)}"
    return Finding(text, age - longest)


def _no_bolt(facts: Facts, limit: float) -> Finding | None:
    worst: tuple[float, str, str, int] | None = None
    for stream in facts.streams:
        rows = sum(max(0, own.rows_behind) for own in stream.subscriptions if own.name is not None)
        readers = [step for step in facts.steps if stream.name in step.reads and step.age is not None]
        if not rows or not readers:
            continue
        step = min(readers, key=lambda step: step.age or 0.0)
        age = step.age or 0.0
        # Who works on a large batch gives no sign meanwhile.
        if age >= max(limit, 2 * step.seconds) and (worst is None or age > worst[0]):
            worst = age, step.name, stream.name, rows
    if worst is None:
        return None
    age, name, read, rows = worst
    text = f"nobody works on stream {read}: {name} was last seen {words(age)} ago, and {rows:,} rows wait"
    return Finding(text, age)


def _no_spout(facts: Facts, limit: float) -> Finding | None:
    age, name = max(((age, name) for name, age in facts.unconfirmed.items()), default=(0.0, ""))
    if age < limit:
        return None
    return Finding(f"spout {name} has not confirmed an outcome that came {words(age)} ago", age)


def _dead_letters(facts: Facts, limit: float) -> Finding | None:
    count = sum(facts.dead_letters.values())
    return Finding(f"{count:,} dead letters: rows that were given up") if count >= limit else None


def _dead_letters_full(facts: Facts, _: float) -> Finding | None:
    count, name = max(((count, name) for name, count in facts.dead_letters.items()), default=(0, ""))
    if count < DEAD_LETTERS:
        return None
    return Finding(
        f"spout {name} has {count:,} dead letters, its most: outcomes wait until some are replayed or "
        "discarded"
    )


def _unreadable(facts: Facts, limit: float) -> Finding | None:
    if facts.damage:
        return Finding(f"a record cannot be read: {facts.damage}")
    count = facts.totals.unreadable
    return Finding(f"{count:,} records could not be read, and were passed over") if count >= limit else None


RULES: tuple[Rule, ...] = (
    Rule("no-ticks", None, _no_ticks, "Run acker serve or acker tick, or look for an overloaded store."),
    Rule("full", "full", _full, "Look for a spout that does not confirm its outcomes, or for slow bolts."),
    Rule("nearly-full", "full", _nearly_full, "Look for a spout that does not confirm, or for slow bolts."),
    Rule("drain-behind", None, _drain_behind, "It passes by itself; if it stays, look at the store's load."),
    Rule(
        "failing", "failed", _failing, "Read the reasons of the latest outcomes, and look at the bolts' logs."
    ),
    Rule(
        "expiring",
        "expired",
        _expiring,
        "See that all bolts run, and ack all they take; compare the latency.",
    ),
    Rule("slow", "latency", _slow, "Give bolts more room, send less, or make the message timeout longer."),
    Rule("behind", "behind", _behind, "See that its bolt runs and keeps up, or drop the subscription."),
    Rule("no-bolt", "silence", _no_bolt, "Start its job again; its log says why it ended."),
    Rule("no-spout", "silence", _no_spout, "Start the spout again: it gets what is not confirmed."),
    Rule(
        "dead-letters-full",
        None,
        _dead_letters_full,
        "See them by cause (acker dead-letters --groups), and replay or discard those of one.",
    ),
    Rule(
        "dead-letters", "dead_letters", _dead_letters, "Read their reasons; replay them when they are mended."
    ),
    Rule(
        "unreadable", "unreadable", _unreadable, "Look for damage in the store, or for two versions of acker."
    ),
)


# Reading


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
        raise UnknownTopology(f"the store holds no topology {core.config.name!r} any more")
    return wanted


def _write(
    core: Core,
    *,
    set_: Mapping[str, str] | None = None,
    noted: Mapping[str, str] | None = None,
    gone: Sequence[str] = (),
) -> Operation[bool]:
    """Sets fields, and those `noted` where they are new; drops some. False where the topology is gone."""
    [done] = yield [lua.note_health(core.config.name, set_ or {}, noted or {}, gone)]
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
        if kind == "threshold" and name in THRESHOLDS and 0 <= limit <= _MOST:
            limits[name] = limit
        elif kind == "since" and name in CODES and 0 <= limit <= _MOST * 10:
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


def words(seconds: float) -> str:
    """A time in words, for people."""
    if seconds < 10:
        return f"{seconds:.3g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"
