"""Rules of health: what is judged, with which thresholds, and since when."""

from dataclasses import replace
from typing import Any

import pytest
import redis

from acker.errors import ValidationError
from acker.inspect.topology import health
from acker.inspect.topology.facts import Facts, Recently
from acker.inspect.topology.graph import graph
from acker.inspect.topology.health_rules import RULES, Judged, judge
from acker.inspect.topology.pace import BLIND, STEADY, Pace
from acker.inspect.topology.thresholds import THRESHOLDS, Thresholds
from acker.inspect.topology.totals import ShardTotals, Totals
from acker.inspect.topology.troubles import CODES, Mute, Muted, PausedSpout, Place
from acker.ledger.client import Ledger
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.store import keys
from acker.streams.log.stream_totals import StreamTotals, SubscriptionTotals
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from tests.helpers.builders.kept_rows import consume, lines, rows
from tests.helpers.builders.ledgers import Trees, opened

AT = 1_000_000.0


def facts(timeout: float = 30.0, **changes: Any) -> Facts:
    shard = ShardTotals(0, (), 0, 0, 100, 5, changes.pop("rotation_age", 1.0), changes.pop("backlog", 0),
                        None, changes.pop("unreadable", 0), {})  # fmt: skip
    shard = replace(shard, outstanding=changes.pop("outstanding", 0))
    return Facts(TopologyConfig("t", message_timeout=timeout), AT, Totals(AT, (shard,)), **changes)


def stream(behind: int, unread: float | None) -> StreamTotals:
    own = SubscriptionTotals("split", 0, behind, 0, 0, unread)
    return StreamTotals("lines", "managed", 1, 1, 0, 1.0, 1, 0, (own,))


def external(received: int, unstamped: int = 0, unheard: int = 0) -> StreamTotals:
    own = SubscriptionTotals(
        "count", 0, 0, 0, 0, None, rows_received=received, rows_unstamped=unstamped, rows_over=received // 2
    )
    return StreamTotals("items", "external", 1, 0, 0, 1.0, 1, unheard, () if unheard else (own,))


def step(age: float, seconds: float = 0.0) -> Step:
    return Step("split", "bolt", reads=("lines",), last_seen=AT - age, age=age, seconds=seconds)


BAD: dict[str, tuple[dict[str, Any], float | None]] = {
    "no-ticks": ({"rotation_age": 60.0}, AT - 45),
    "full": ({"outstanding": 100}, None),
    "nearly-full": ({"outstanding": 80}, None),
    "drain-behind": ({"backlog": 2}, None),
    "failing": ({"recently": Recently(600.0, acked=41, failed=59)}, None),
    "expiring": ({"recently": Recently(None, expired=832)}, None),
    "slow": ({"recently": Recently(600.0, acked=100, p99=24.0)}, None),
    "behind": ({"streams": [stream(7, 31.0)]}, AT - 1),
    "no-bolt": ({"streams": [stream(7, None)], "steps": [step(240.0)]}, AT - 240),
    "unstamped": ({"streams": [external(40, unstamped=20)]}, None),
    "unheard": ({"streams": [external(40, unheard=3)]}, None),
    "no-spout": ({"unconfirmed": {"s": 130.0, "other": 1.0}}, AT - 130),
    "unread": ({"unread": {"s": "OSError: away"}, "unconfirmed": {"s": 130.0}}, None),
    "unsent": ({"unsent": {"s": "OSError: away"}}, None),
    "silent": ({"paces": {"s": Pace(9, AT - 130, AT, 20.0, STEADY)}}, AT - 130),
    "paused": ({"paused": (PausedSpout("s", "ann", "a bad file", AT - 7, whole=False),)}, AT - 7),
    "dead-letters-full": (
        {"dead_letters": {"s": 100_000}, "thresholds": Thresholds().changed({"dead_letters": 0})},
        None,
    ),
    "dead-letters": ({"dead_letters": {"s": 1}}, None),
    "unreadable": ({"unreadable": 1}, None),
}


@pytest.mark.parametrize("code", CODES)
def test_each_rule_finds_its_trouble_says_so_in_words_and_can_be_switched_off(code: str) -> None:
    changes, since = BAD[code]
    [found], _ = judge(facts(**changes))
    assert (found.code, found.since) == (code, since)
    assert found.text
    assert found.advice.endswith(".")
    noted = since if since is not None else 5.0
    assert judge(facts(**changes, since={code: 5.0})).troubles[0].since == noted
    [rule] = [rule for rule in RULES if rule.code == code]
    assert found.severity == rule.severity
    assert (found.threshold, found.limit is None) == (rule.threshold, rule.threshold is None)
    if rule.threshold:
        assert found.value is None or found.limit is None or found.value >= found.limit
        off = judge(facts(**changes, thresholds=Thresholds().changed({rule.threshold: 0})))
        assert off.troubles == ()
        [muted] = off.muted
        assert (muted.trouble.text, muted.mute.until) == (found.text, None)
        assert muted.mute.reason == f"its threshold {rule.threshold} is switched off"
        own = {code: Mute("ann", "known", AT + 1)}
        limits = Thresholds().changed({rule.threshold: 0})
        [muted] = judge(facts(**changes | {"thresholds": limits, "mutes": own})).muted
        words = f"known; its threshold {rule.threshold} is switched off, too"
        assert muted.mute == Mute("ann", words, None)
    mute = Mute("ann", "known", AT + 1)
    assert Muted(found, mute) in judge(facts(**changes, mutes={code: mute})).muted
    assert judge(facts(**changes, mutes={code: replace(mute, until=AT)})).troubles == (found,)


def test_a_topology_that_is_full_or_slow_names_the_spout_or_stream_where_that_is_known() -> None:
    slow = Recently(600.0, acked=100, p99=24.0)
    for changes in ({"outstanding": 100}, {"outstanding": 80}, {"recently": slow}):
        [unknown], _ = judge(facts(**changes))
        assert unknown.place is None
        [rows], _ = judge(facts(**changes, streams=[stream(7, 2.0)], steps=[step(1.0)]))
        assert rows.text == f"{unknown.text}; 7 rows of stream lines wait for split"
        assert rows.place == Place("reads", "lines", "split")
    [kept], _ = judge(facts(outstanding=100, unconfirmed={"s": 3.0, "r": 1.0}, streams=[stream(7, 2.0)]))
    assert kept.text.endswith("; most are outcomes that are not confirmed, of spout s for 3 s")
    assert kept.place == Place("spout", "s")


WELL = Judged((), ())


def test_paused_spouts_are_muted_by_who_has_paused_them_and_not_silent() -> None:
    paces = {name: Pace(9, AT - 130, AT, 20.0, STEADY) for name in ("", "s")}
    pauses = tuple(PausedSpout(name, "ann", "a bad file", AT - 7) for name in ("r", "s"))
    found = judge(facts(paces=paces, paused=pauses))
    assert found.troubles == ()
    [muted] = found.muted
    assert (muted.trouble.text, muted.trouble.since) == ("spouts r, s are paused", AT - 7)
    assert muted.mute == Mute("ann", "a bad file", None)


def test_the_worst_comes_first() -> None:
    troubles, _ = judge(facts(dead_letters={"s": 1}, backlog=2, recently=Recently(600.0, acked=1, failed=99)))
    assert [(one.code, one.severity) for one in troubles] == [
        ("failing", "critical"), ("drain-behind", "look"), ("dead-letters", "look"),
    ]  # fmt: skip


def test_the_pace_of_a_source_is_its_usual_gap() -> None:
    pace = Pace(0, 0.0, 0.0)
    for number in range(1, 14):
        assert pace.silence(1000.0) is None
        pace = pace.after(number, 5.0 * number)
    assert (pace.gap, pace.silence(75.0)) == (5.0, 10.0)
    quiet = pace.after(13, 70.0).after(13, 95.0)
    assert (quiet.gap, quiet.silence(100.0)) == (5.0, 35.0)
    assert quiet.after(14, 100.0).gap == 35.0  # as long as it was silent and came back
    # Where nobody looked for long, nothing is known of that time: the silence before it stays.
    assert quiet.after(13, 100.0 + BLIND).silence(101.0 + BLIND) == 31.0
    assert quiet.after(14, 100.0 + BLIND).gap == 5.0
    assert quiet.after(3, 100.0) == Pace(3, 0.0, 100.0)
    assert Pace.load(quiet.dump().encode()) == quiet
    assert [Pace.load(text) for text in (b"", b"[]", b"[1,2,3]x", b'["a",1,2]', b"[NaN,1,2]")] == [None] * 5


def test_a_pipeline_that_works_has_no_troubles() -> None:
    assert judge(facts()) == WELL
    busy = Recently(600.0, acked=10_000, failed=200, expired=9, p99=3.0)
    working = [step(0.5), replace(step(9_000.0), query_id="given up")]
    assert judge(facts(recently=busy, streams=[stream(90, 2.0)], steps=working, outstanding=50)) == WELL
    # Nothing comes, so bolts have nothing to do; a batch takes long; one of three was bad.
    assert judge(facts(streams=[stream(0, None)], steps=[step(9_000.0)])) == WELL
    assert judge(facts(streams=[stream(9, None)], steps=[step(240.0, seconds=200.0)])) == WELL
    assert judge(facts(recently=Recently(600.0, acked=2, failed=1))) == WELL
    # An external stream that began without stamps, and has been read a second time.
    assert judge(facts(streams=[external(100, unstamped=49), external(9, unstamped=9)])) == WELL
    # Ticks confirm the outcomes of an observing spout.
    assert judge(facts(unconfirmed={"s.observed": 130.0})) == WELL
    # A source that was never steady, one that pauses as ever, and one whose last look is long ago.
    paces = {"": Pace(9, AT - 900, AT, 1.0, STEADY - 1), "s": Pace(9, AT - 90, AT, 20.0, STEADY)}
    assert judge(facts(paces=paces)) == WELL
    # A stream whose consumer came later than its first rows.
    assert judge(facts(streams=[replace(external(100), rows_unheard=3)])) == WELL


@pytest.mark.parametrize("timeout", [1.0, 30.0, 604800.0])
def test_a_late_tick_is_a_trouble_only_when_nobody_seems_to_tick(timeout: float) -> None:
    config = facts(timeout).config
    due = config.tick_ms / 1000
    for age in (None, 0.0, due, due + 1.5, due + config.tick_limit):
        assert judge(facts(timeout, rotation_age=age)) == WELL
    [found], _ = judge(facts(timeout, rotation_age=due + config.tick_limit + 0.1))
    assert found.code == "no-ticks"


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return opened(valkey_url, message_timeout=60.0, ackers=2)


def codes(ledger: Ledger, note: bool = False) -> dict[str, float | None]:
    found = ledger.run(health.health(ledger.core, note=note))
    return {one.code: one.since for one in found.troubles}


def test_a_pipeline_that_is_dead_is_not_healthy_and_since_when_is_kept(ledger: Ledger) -> None:
    Trees(50).track(ledger)
    assert codes(ledger, note=True) == {}
    for _ in range(3):
        ledger.tick(force=True)
    assert codes(ledger) == {"expiring": None}
    first = codes(ledger, note=True)
    assert codes(ledger) == codes(ledger, note=True) != first
    since = codes(ledger)
    assert since["expiring"] is not None
    assert ledger.run(health.set_thresholds(ledger.core, {"expired": 0.0})).expired == 0
    assert codes(ledger, note=True) == {}
    ledger.run(health.set_thresholds(ledger.core, {"expired": 0.5, "silence": 7}))
    assert codes(ledger) == since  # it was there while it was muted


def test_a_source_that_stopped_is_silent_until_it_goes_on(ledger: Ledger) -> None:
    Trees(1).track(ledger)
    ledger.register_spout("s")
    assert codes(ledger, note=True) == {}
    key = keys.health("tested")
    with redis.Redis.from_url(ledger.store.url) as raw:
        [name] = [name for name in raw.hkeys(key) if name.startswith(b"pace:")]
        pace = Pace.load(raw.hget(key, name) or b"")
        assert pace is not None
        then = replace(pace, worked=pace.looked - 500, gap=20.0, gaps=STEADY)
        raw.hset(key, name, then.dump())
    [since] = codes(ledger).values()
    assert since == pytest.approx(pace.looked - 500, abs=0.01)
    assert list(codes(ledger, note=True)) == ["silent"]
    [trouble] = ledger.run(health.health(ledger.core)).troubles
    assert trouble.text.startswith("spout s tracked nothing for 8 min, and paused at most 20 s before")
    Trees(1).track(ledger)
    codes(ledger, note=True)
    assert codes(ledger) == {}


def test_a_mute_has_an_end_and_is_seen(ledger: Ledger) -> None:
    trees = Trees(20).track(ledger)
    ledger.fail(trees.anchors)
    assert ledger.run(health.health(ledger.core)).severity == "critical"
    ledger.run(health.mute(ledger.core, "failing", by="ann", reason="a bad file", seconds=3600))
    muted = ledger.run(health.health(ledger.core, note=True))
    assert (muted.severity, muted.troubles) == ("muted", ())
    assert [(one.trouble.code, one.mute.by, one.mute.reason) for one in muted.muted] == [
        ("failing", "ann", "a bad file")
    ]
    with redis.Redis.from_url(ledger.store.url) as raw:
        raw.hset(keys.health("tested"), "mute:failing", '{"by": "ann", "reason": "a bad file", "until": 5}')
        assert list(codes(ledger, note=True)) == ["failing"]
        assert not raw.hexists(keys.health("tested"), "mute:failing")
        raw.hset(keys.health("tested"), "mute:failing", '{"by": 1}')
    ledger.run(health.mute(ledger.core, "failing", by="ann", reason="a bad file", seconds=3600))
    ledger.run(health.unmute(ledger.core, "failing"))
    assert list(codes(ledger)) == ["failing"]
    for code, reason, seconds in (("fail", "x", 60), ("failing", " ", 60), ("failing", "x", 0.5)):
        with pytest.raises(ValidationError):
            ledger.run(health.mute(ledger.core, code, by="ann", reason=reason, seconds=seconds))


def test_thresholds_are_checked_and_what_is_stored_wrongly_is_passed_over(ledger: Ledger) -> None:
    for wrong in ({"expire": 1}, {"expired": -1}, {"expired": float("nan")}, {"expired": True}):
        with pytest.raises(ValidationError):
            ledger.run(health.set_thresholds(ledger.core, wrong))
    with redis.Redis.from_url(ledger.store.url) as raw:
        assert not raw.exists(keys.health("tested"))
        raw.hset(keys.health("tested"), mapping={"threshold:failed": "x", "since:x": 1, "threshold:slow": 2})
    assert ledger.run(health.health(ledger.core)).thresholds == Thresholds()
    assert set(THRESHOLDS) >= {rule.threshold for rule in RULES if rule.threshold}


def test_a_stream_whose_counts_cannot_be_read_is_a_trouble(ledger: Ledger) -> None:
    with redis.Redis.from_url(ledger.store.url) as raw:
        raw.sadd(keys.streams("tested"), "lines")
        raw.hset(keys.Stream("tested", "lines").subscriptions, "segments", "many")
    assert list(codes(ledger)) == ["unreadable"]


def test_what_a_spout_does_not_confirm_is_looked_for(ledger: Ledger) -> None:
    Trees(3).track(ledger).complete(ledger)
    ledger.register_spout("s")
    ledger.run(health.set_thresholds(ledger.core, {"silence": 1e-6}))
    assert list(codes(ledger)) == ["no-spout"]


@pytest.mark.parametrize(("wait", "found"), [(0.0, ["no-spout"]), (3600.0, [])])
def test_waiting_attempts_are_no_unconfirmed_outcomes(ledger: Ledger, wait: float, found: list[str]) -> None:
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=2, backoff=wait)).write(lines(3))
    ledger.fail([row["_acker"] for row in rows(ledger)], "busy")
    consume(ledger)
    ledger.run(health.set_thresholds(ledger.core, {"silence": 1e-9, "failed": 0}))
    assert list(codes(ledger)) == found


def test_steps_are_as_old_as_the_clock_of_the_store_says(ledger: Ledger) -> None:
    ledger.run(step_registry.register(ledger.core, Step("split", "bolt")))
    [found] = ledger.run(step_registry.steps(ledger.core))
    assert found.age is not None
    assert 0 <= found.age < 60


def test_an_incident_that_goes_on_is_marked_however_many_trees_have_failed(ledger: Ledger) -> None:
    ledger.run(step_registry.register(ledger.core, Step("parse", "bolt")))
    for _ in range(300):  # more entries than are looked at for the figures of nodes
        trees = Trees(4).track(ledger)
        trees.complete(ledger, 0, 1, 2)
        ledger.send(ledger.core.fail(trees.anchors[3:], Cause("no", "parse").encode()))
    judged = ledger.run(health.health(ledger.core))
    found = ledger.run(graph(ledger.core, judged))
    assert [node.failed < 300 for node in found.nodes] == [True, True]
    assert found.worst is not None
    assert (found.worst.node, found.worst.severity) == ("step:parse", "critical")
    assert found.worst.text == judged.troubles[0].text == "300 of 1,200 trees failed so far, 25%"
