"""When a topology needs a human: rules in a table, with thresholds that can be set or switched off.

`judge` is a pure function of `Facts`; `acker.inspect.topology.health` reads these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

from acker.errors import ValidationError, shown
from acker.inspect.topology.totals import Totals
from acker.ledger.fields import Instant
from acker.ledger.settings.config import DEAD_LETTERS, TopologyConfig
from acker.ledger.settings.settings import number, of
from acker.ledger.steps.step_registry import Step
from acker.streams.log.stream_totals import StreamTotals

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

MOST_LIMIT = 1e9


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something is a trouble; 0 switches its rule off."""

    full: float = number(0.8, 0.0, MOST_LIMIT, "The fullest shard's share of what it may hold.")
    failed: float = number(0.1, 0.0, MOST_LIMIT, "Share of the trees that ended in the last ten minutes.")
    expired: float = number(0.05, 0.0, MOST_LIMIT, "Share of the trees that ended in the last ten minutes.")
    latency: float = number(0.8, 0.0, MOST_LIMIT, "p99 in the last ten minutes, in message timeouts.")
    behind: float = number(
        1.0, 0.0, MOST_LIMIT, "How long rows wait for a subscription, in message timeouts."
    )
    silence: float = number(
        120.0,
        0.0,
        MOST_LIMIT,
        "Seconds without a sign of the bolts of a stream with rows, or a spout with outcomes.",
    )
    dead_letters: float = number(1.0, 0.0, MOST_LIMIT, "How many dead letters.")
    unreadable: float = number(1.0, 0.0, MOST_LIMIT, "How many records that could not be read.")

    def changed(self, changes: Mapping[str, float]) -> "Thresholds":
        """With other values for some; ValidationError that names what is no threshold, or out of range."""
        for name, value in changes.items():
            if name not in THRESHOLDS:
                known = ", ".join(THRESHOLDS)
                raise ValidationError(f"threshold: expected one of {known}, got {shown(name)}")
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
    """The figures that are judged. at: Unix seconds by the store's clock.

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
    """A thing that needs a human."""

    code: Code
    text: Annotated[str, "In words."]
    advice: Annotated[str, "What to do."]
    since: Annotated[Instant | None, "By the store's clock; null where that is not known."]


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
