"""Rules of health: a topology needs a human if one applies. Their thresholds can be set or switched off.

`judge` is a pure function of `Facts`; `acker.inspect.topology.health` reads these.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

from acker.inspect.topology import culprits
from acker.inspect.topology.facts import Facts
from acker.inspect.topology.thresholds import THRESHOLDS
from acker.inspect.topology.troubles import (
    LEVELS,
    Code,
    Finding,
    Mute,
    Muted,
    Place,
    Severity,
    Trouble,
    words,
)
from acker.ledger.settings.config import DEAD_LETTERS, OBSERVED

WINDOW = 600
"""Seconds over which outcomes are counted: somewhat more where no service ran, and less since it was made."""
FEW = 10
"""With fewer failed or expired trees than these there is no report, unless there are no others."""
SILENT = 60.0
"""Seconds; a shorter silence of a source is no trouble, however quick it is."""


class Rule(NamedTuple):
    """A rule: `look` gets the facts and the threshold; the default one where that is switched off."""

    code: Code
    severity: Severity
    threshold: str | None
    look: Callable[[Facts, float], Finding | None]
    advice: str


class Judged(NamedTuple):
    """The troubles of a topology, the worst first, and the muted ones."""

    troubles: tuple[Trouble, ...]
    muted: tuple[Muted, ...]


def judge(facts: Facts) -> Judged:
    """Judges a topology: the worst first, and of one severity in the order of `RULES`."""
    troubles: list[Trouble] = []
    muted: list[Muted] = []
    for rule in RULES:
        limit = getattr(facts.thresholds, rule.threshold) if rule.threshold else None
        off = limit == 0
        judged_by = THRESHOLDS[rule.threshold].default if off and rule.threshold else limit
        seen = rule.look(facts, 1.0 if judged_by is None else float(str(judged_by)))
        if seen is None:
            continue
        since = facts.since.get(rule.code) if seen.lasts is None else facts.at - seen.lasts
        trouble = Trouble(
            rule.code, rule.severity, seen.text, rule.advice, since, rule.threshold, limit, seen.value,
            seen.place,
        )  # fmt: skip
        mute = seen.mute or facts.mutes.get(rule.code)
        if mute is not None and mute.until is not None and mute.until <= facts.at:
            mute = None
        if off:
            switched = f"its threshold {rule.threshold} is switched off"
            reason = switched if mute is None else f"{mute.reason}; {switched}, too"
            muted.append(Muted(trouble, Mute("" if mute is None else mute.by, reason, None)))
        elif mute is not None:
            muted.append(Muted(trouble, mute))
        else:
            troubles.append(trouble)
    return Judged(tuple(sorted(troubles, key=lambda one: LEVELS.index(one.severity))), tuple(muted))


# The rules


def _no_ticks(facts: Facts, _: float) -> Finding | None:
    age, tick = facts.totals.rotation_age, facts.config.tick_ms / 1000
    if age is None or age <= tick + facts.config.tick_limit:
        return None
    text = f"no tick for {words(age)}, and one is due each {words(tick)}: nothing expires"
    return Finding(text, age - tick, age)


def _full(facts: Facts, _: float) -> Finding | None:
    use = facts.totals.high_water_use
    if use < 1:
        return None
    where, place = culprits.most_open(facts)
    return Finding(f"a shard holds {use:.0%} of what it may: tracks are rejected{where}", None, use, place)


def _nearly_full(facts: Facts, limit: float) -> Finding | None:
    use = facts.totals.high_water_use
    if not limit <= use < 1:
        return None
    where, place = culprits.most_open(facts)
    return Finding(f"a shard holds {use:.0%} of what it may{where}", None, use, place)


def _drain_behind(facts: Facts, _: float) -> Finding | None:
    backlog = facts.totals.backlog
    if backlog <= 1:
        return None
    return Finding(f"{backlog} rotations are not drained: trees expire faster than outcomes are written")


def _share(facts: Facts, count: int, limit: float, kind: Literal["failed", "expired"]) -> Finding | None:
    ended = facts.recently.ended
    if not count or (count < FEW and count < ended) or count / ended < limit:
        return None
    text = f"{count:,} of {ended:,} trees {kind} {facts.recently.span}, {100 * count // ended}%"
    return Finding(text, value=count / ended, place=Place(kind))


def _failing(facts: Facts, limit: float) -> Finding | None:
    return _share(facts, facts.recently.failed, limit, "failed")


def _expiring(facts: Facts, limit: float) -> Finding | None:
    return _share(facts, facts.recently.expired, limit, "expired")


def _slow(facts: Facts, limit: float) -> Finding | None:
    p99, timeout = facts.recently.p99, facts.config.message_timeout
    if p99 is None or facts.recently.acked < FEW or p99 < limit * timeout:
        return None
    where, place = culprits.most_waiting(facts)
    text = f"one tree in a hundred took {words(p99)} or more {facts.recently.span}, "
    return Finding(f"{text}and the message timeout is {words(timeout)}{where}", None, p99 / timeout, place)


def _behind(facts: Facts, limit: float) -> Finding | None:
    late = [
        (totals.unread_age, totals.rows_behind, totals.name, stream.name)
        for stream in facts.streams
        for totals in stream.subscriptions
        if totals.name is not None and totals.rows_behind > 0 and totals.unread_age is not None
    ]
    age, rows, name, stream = max(late, default=(0.0, 0, "", ""))
    longest = limit * facts.config.message_timeout
    if age < longest:
        return None
    who = culprits.reader(facts, stream, name)
    text = f"{rows:,} rows of stream {stream} wait for {who}, the oldest for {words(age)}"
    value = age / facts.config.message_timeout
    return Finding(text, age - longest, value, Place("reads", stream, name))


def _no_bolt(facts: Facts, limit: float) -> Finding | None:
    worst: tuple[float, str, str, int] | None = None
    for stream in facts.streams:
        rows = sum(max(0, own.rows_behind) for own in stream.subscriptions if own.name is not None)
        readers = [step for step in facts.steps if stream.name in step.reads and step.age is not None]
        if not rows or not readers:
            continue
        step = min(readers, key=lambda step: step.age or 0.0)
        age = step.age or 0.0
        # A step that works on a large batch gives no sign meanwhile.
        if age >= max(limit, 2 * step.seconds) and (worst is None or age > worst[0]):
            worst = age, step.name, stream.name, rows
    if worst is None:
        return None
    age, name, read, rows = worst
    text = f"nobody works on stream {read}: {name} was last seen {words(age)} ago, and {rows:,} rows wait"
    return Finding(text, age, age, Place("reads", read))


def _unstamped(facts: Facts, _: float) -> Finding | None:
    worst: tuple[int, int, str, str] = (0, 0, "", "")
    for stream in facts.streams:
        for totals in stream.subscriptions:
            strange = totals.rows_unstamped + totals.rows_damaged + totals.rows_foreign + totals.rows_newer
            if strange >= FEW and 2 * strange >= totals.rows_received:
                worst = max(worst, (strange, totals.rows_received, totals.name or "", stream.name))
    strange, received, name, read = worst
    if not strange:
        return None
    return Finding(
        f"{name} reads rows without a good stamp from {read}: {strange:,} of {received:,} so far",
        place=Place("reads", read, name),
    )


def _unheard(facts: Facts, _: float) -> Finding | None:
    unheard = [(one.rows_unheard, one.name) for one in facts.streams if not one.subscriptions]
    rows, name = max(unheard, default=(0, ""))
    if not rows:
        return None
    text = f"stream {name} has no subscription: nobody has to ack its {rows:,} rows so far"
    return Finding(text, place=Place("stream", name))


def _no_spout(facts: Facts, limit: float) -> Finding | None:
    # Ticks confirm the outcomes of observing spouts; rows that wait for their source have another rule.
    taken = [name for name in facts.unconfirmed if not name.endswith(OBSERVED) and name not in facts.unread]
    age, name = max(((facts.unconfirmed[name], name) for name in taken), default=(0.0, ""))
    if age < limit:
        return None
    text = f"spout {name} has not confirmed an outcome that came {words(age)} ago"
    return Finding(text, age, age, Place("spout", name))


def _unread(facts: Facts, _: float) -> Finding | None:
    for name, reason in sorted(facts.unread.items()):
        text = f"rows of spout {name} wait, because their source cannot be read again: {reason}"
        return Finding(text, place=Place("spout", name))
    return None


def _unsent(facts: Facts, _: float) -> Finding | None:
    for name, reason in sorted(facts.unsent.items()):
        text = f"dead letters of spout {name} wait for their sink: {reason}"
        return Finding(text, place=Place("spout", name))
    return None


def _silent(facts: Facts, limit: float) -> Finding | None:
    # The pace of all spouts together tells nothing while one of them is paused.
    resting = {pause.spout for pause in facts.paused} | ({""} if facts.paused else set())
    quiet = [
        (silence, pace.gap, name)
        for name, pace in facts.paces.items()
        if name not in resting
        and (silence := pace.silence(facts.at)) is not None
        and silence >= max(SILENT, limit * pace.gap)
    ]
    silence, gap, name = max(quiet, default=(0.0, 0.0, ""))
    if not quiet:
        return None
    who = f"spout {name}" if name else "the topology's spouts"
    text = f"{who} tracked nothing for {words(silence)}, and paused at most {words(gap)} before"
    return Finding(text, silence, silence / gap, Place("spout", name) if name else None)


def _paused(facts: Facts, _: float) -> Finding | None:
    paused = facts.paused
    if not paused:
        return None
    lasts = max((facts.at - pause.since for pause in paused if pause.since is not None), default=None)
    place = Place("spout", paused[0].spout)
    if halves := [pause for pause in paused if not pause.whole]:
        return Finding(f"{halves[0].text}: other parts take its tracks", lasts, place=place)
    text = f"spouts {', '.join(pause.spout for pause in paused)} are paused"
    if len(paused) == 1:
        text = replace(paused[0], by="", reason="", since=None).text
    authors = ", ".join(dict.fromkeys(pause.by for pause in paused))
    reasons = "; ".join(dict.fromkeys(pause.reason for pause in paused if pause.reason))
    return Finding(text, lasts, place=place, mute=Mute(authors, reasons, None))


def _dead_letters(facts: Facts, limit: float) -> Finding | None:
    count = sum(facts.dead_letters.values())
    if count < limit or not count:
        return None
    most = max(facts.dead_letters, key=lambda name: facts.dead_letters[name])
    letters = "1 dead letter: a row that was given up"
    text = letters if count == 1 else f"{count:,} dead letters: rows that were given up"
    return Finding(text, None, count, Place("spout", most))


def _dead_letters_full(facts: Facts, _: float) -> Finding | None:
    count, name = max(((count, name) for name, count in facts.dead_letters.items()), default=(0, ""))
    if count < DEAD_LETTERS:
        return None
    return Finding(
        f"spout {name} has {count:,} dead letters, its most: outcomes wait until some are replayed or "
        "discarded",
        place=Place("spout", name),
    )


def _unreadable(facts: Facts, limit: float) -> Finding | None:
    if facts.damage:
        return Finding(f"a record cannot be read: {facts.damage}")
    count = facts.totals.unreadable
    text = f"{count:,} records could not be read, and were passed over"
    return Finding(text, value=count) if count >= limit else None


RULES: tuple[Rule, ...] = (
    Rule(
        "no-ticks",
        "critical",
        None,
        _no_ticks,
        "Run acker serve or acker tick, or look for an overloaded store.",
    ),
    Rule(
        "full",
        "critical",
        "full",
        _full,
        "Look for a spout that does not confirm its outcomes, or for slow bolts.",
    ),
    Rule(
        "nearly-full",
        "critical",
        "full",
        _nearly_full,
        "Look for a spout that does not confirm, or for slow bolts.",
    ),
    Rule(
        "drain-behind",
        "look",
        None,
        _drain_behind,
        "It passes by itself; if it stays, look at the store's load.",
    ),
    Rule(
        "failing",
        "critical",
        "failed",
        _failing,
        "Read the reasons of the latest outcomes, and look at the bolts' logs.",
    ),
    Rule(
        "expiring",
        "critical",
        "expired",
        _expiring,
        "See that all bolts run, and ack all they take; compare the latency.",
    ),
    Rule(
        "slow",
        "look",
        "latency",
        _slow,
        "Give bolts more room, send less, or make the message timeout longer.",
    ),
    Rule("no-bolt", "look", "silence", _no_bolt, "Start its job again; its log says why it ended."),
    Rule(
        "behind", "look", "behind", _behind, "See that its bolt runs and keeps up, or drop the subscription."
    ),
    Rule(
        "unstamped",
        "look",
        None,
        _unstamped,
        "See that the header acker-stamp or the column _acker_stamp is kept on the way to the step.",
    ),
    Rule(
        "unheard",
        "look",
        None,
        _unheard,
        "Start a stream's consumers, or declare its subscription, before its senders.",
    ),
    Rule("no-spout", "look", "silence", _no_spout, "Start the spout again: it gets what is not confirmed."),
    Rule("unread", "look", None, _unread, "Mend the source, or `reread`: these rows are asked for again."),
    Rule("unsent", "look", None, _unsent, "Mend the sink of `dead_letters_to`: it is asked again."),
    Rule("silent", "look", "silent", _silent, "See that its process runs, and that its source has records."),
    Rule(
        "paused",
        "look",
        None,
        _paused,
        "Resume it (acker resume); where it is paused in part, pause it again or resume it.",
    ),
    Rule(
        "dead-letters-full",
        "critical",
        None,
        _dead_letters_full,
        "See them by cause (acker dead-letters --groups), and replay or discard the letters of a cause.",
    ),
    Rule(
        "dead-letters",
        "look",
        "dead_letters",
        _dead_letters,
        "Read their reasons; replay them when they are mended.",
    ),
    Rule(
        "unreadable",
        "look",
        "unreadable",
        _unreadable,
        "Look for damage in the store, or for two versions of acker.",
    ),
)
