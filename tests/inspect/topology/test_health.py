"""Rules of health: what is judged, with which thresholds, and since when."""

from dataclasses import replace
from typing import Any

import pytest
import redis

from acker.errors import ValidationError
from acker.inspect.topology import health
from acker.inspect.topology.health_rules import CODES, RULES, THRESHOLDS, Facts, Recently, Thresholds, judge
from acker.inspect.topology.totals import ShardTotals, Totals
from acker.ledger.client import Ledger
from acker.ledger.settings.config import TopologyConfig
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
    shard = replace(shard, held=changes.pop("held", 0))
    return Facts(TopologyConfig("t", message_timeout=timeout), AT, Totals(AT, (shard,)), **changes)


def stream(behind: int, unread: float | None) -> StreamTotals:
    own = SubscriptionTotals("split", 0, behind, 0, 0, unread)
    return StreamTotals("lines", 1, 1, 0, 1.0, 1, (own,))


def step(age: float, seconds: float = 0.0) -> Step:
    return Step("split", "bolt", reads=("lines",), last_seen=AT - age, age=age, seconds=seconds)


BAD: dict[str, tuple[dict[str, Any], float | None]] = {
    "no-ticks": ({"rotation_age": 60.0}, AT - 45),
    "full": ({"held": 100}, None),
    "nearly-full": ({"held": 80}, None),
    "drain-behind": ({"backlog": 2}, None),
    "failing": ({"recently": Recently(600.0, acked=41, failed=59)}, None),
    "expiring": ({"recently": Recently(None, expired=832)}, None),
    "slow": ({"recently": Recently(600.0, acked=100, p99=24.0)}, None),
    "behind": ({"streams": [stream(7, 31.0)]}, AT - 1),
    "no-bolt": ({"streams": [stream(7, None)], "steps": [step(240.0)]}, AT - 240),
    "no-spout": ({"unconfirmed": {"s": 130.0, "other": 1.0}}, AT - 130),
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
    [found] = judge(facts(**changes))
    assert (found.code, found.since) == (code, since)
    assert found.text
    assert found.advice.endswith(".")
    noted = since if since is not None else 5.0
    assert judge(facts(**changes, since={code: 5.0}))[0].since == noted
    [rule] = [rule for rule in RULES if rule.code == code]
    if rule.threshold:
        assert judge(facts(**changes, thresholds=Thresholds().changed({rule.threshold: 0}))) == ()


def test_a_pipeline_that_works_has_no_troubles() -> None:
    assert judge(facts()) == ()
    busy = Recently(600.0, acked=10_000, failed=200, expired=9, p99=3.0)
    working = [step(0.5), replace(step(9_000.0), query_id="given up")]
    assert judge(facts(recently=busy, streams=[stream(90, 2.0)], steps=working, held=50)) == ()
    # Nothing comes, so bolts have nothing to do; a batch takes long; one of three was bad.
    assert judge(facts(streams=[stream(0, None)], steps=[step(9_000.0)])) == ()
    assert judge(facts(streams=[stream(9, None)], steps=[step(240.0, seconds=200.0)])) == ()
    assert judge(facts(recently=Recently(600.0, acked=2, failed=1))) == ()


@pytest.mark.parametrize("timeout", [1.0, 30.0, 604800.0])
def test_a_late_tick_is_a_trouble_only_when_nobody_seems_to_tick(timeout: float) -> None:
    config = facts(timeout).config
    due = config.tick_ms / 1000
    for age in (None, 0.0, due, due + 1.5, due + config.tick_limit):
        assert judge(facts(timeout, rotation_age=age)) == ()
    [found] = judge(facts(timeout, rotation_age=due + config.tick_limit + 0.1))
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
    assert codes(ledger)["expiring"] is not None
    assert ledger.run(health.set_thresholds(ledger.core, {"expired": 0.0})).expired == 0
    assert codes(ledger, note=True) == {}
    ledger.run(health.set_thresholds(ledger.core, {"expired": 0.5, "silence": 7}))
    assert codes(ledger) == {"expiring": None}


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
