"""External streams are told apart from managed ones, with the rows that their steps were given."""

import json
import re
from typing import Any

import pytest

from acker.cli.app import run
from acker.inspect.operate import ticker_hooks
from acker.streams.log.stream_totals import UNTRACKED, stream_totals
from tests.helpers.builders.collectors import Make


def test_totals_tell_the_rows_that_a_subscription_was_given(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sender, step = make(), make()
    spout, out = sender.spout("s"), sender.outgoing("items")

    def sent(message_id: str) -> Any:
        [tracked] = spout.emit(message_id)
        return out.inject({}, tracked)

    sent("unheard")
    sender.flush()
    items = step.incoming("items", subscription="count")
    first, second = sent("first"), sent("second")
    sender.flush()
    other = {"acker-stamp": sender.outgoing("others").stamp(spout.emit("third")[0])}
    cut = {"acker-stamp": first["acker-stamp"][:-3]}
    rows = items.extract_many([first, second, {}, {}, cut, other])
    items.ack(rows)
    step.flush()

    [totals] = step.ledger.run(stream_totals(step.ledger.core, ["items"]))
    [own] = totals.subscriptions
    assert (totals.kind, totals.rows_unheard, own.name) == ("external", 1, "count")
    assert (own.rows_published, own.rows_received) == (2, 6)
    counts = {reason: getattr(own, f"rows_{reason}") for reason in UNTRACKED}
    assert counts == {"unstamped": 2, "damaged": 1, "foreign": 1, "newer": 0, "over": 0}

    again = make()  # another process reads a row whose segment is acked
    again.incoming("items", subscription="count").extract(first)
    again.flush()
    [totals] = step.ledger.run(stream_totals(step.ledger.core, ["items"]))
    assert totals.subscriptions[0].rows_over == 1

    name, url = step.ledger.config.name, step.ledger.store.url
    assert run(["streams", name, "--url", url]) == 0
    shown = capsys.readouterr().out
    assert "external" in shown
    assert "unheard" in shown
    assert run(["streams", name, "--url", url, "--json"]) == 0
    [printed] = [one for one in json.loads(capsys.readouterr().out) if one["stream"] == "items"]
    assert (printed["kind"], printed["subscriptions"][0]["rows_foreign"]) == ("external", 1)


def test_a_fast_subscription_is_not_said_to_be_behind_with_a_slow_one(make: Make) -> None:
    sender, step = make(), make()
    step.incoming("items", subscription="slow")
    items = step.incoming("items", subscription="fast")
    spout, out = sender.spout("s"), sender.outgoing("items", segment_rows=10)
    rows = [out.inject({}, spout.emit(f"m{number}")[0]) for number in range(30)]
    sender.flush()
    items.ack(items.extract_many(rows[:13]))
    step.flush()

    stuck = {one.subscription: (one.segments, one.rows) for one in step.stuck().stuck}
    assert stuck == {"slow": (3, 30), "fast": (2, 17)}
    step.ledger.run(ticker_hooks.keep(step.ledger.core))
    [totals] = step.ledger.run(stream_totals(step.ledger.core, ["items"]))
    assert {one.name: one.rows_behind for one in totals.subscriptions} == {"slow": 30, "fast": 17}
    ages = {one.name: one.unread_age for one in totals.subscriptions}
    assert ages["fast"] is not None

    items.ack(items.extract_many(rows[13:]))
    step.flush()
    step.ledger.run(ticker_hooks.keep(step.ledger.core))
    [totals] = step.ledger.run(stream_totals(step.ledger.core, ["items"]))
    assert {one.name: one.rows_behind for one in totals.subscriptions} == {"slow": 30, "fast": 0}
    assert {one.name: one.unread_age is None for one in totals.subscriptions} == {"slow": False, "fast": True}
    assert [one.subscription for one in step.stuck().stuck] == ["slow"]

    slow = step.incoming("items", subscription="slow")
    slow.ack(slow.extract_many(rows))
    step.flush()
    step.ledger.run(ticker_hooks.keep(step.ledger.core))
    [totals] = step.ledger.run(stream_totals(step.ledger.core, ["items"]))
    assert {one.name: (one.rows_acked, one.rows_behind) for one in totals.subscriptions} == {
        "slow": (30, 0),
        "fast": (30, 0),
    }
    assert step.stuck().stuck == ()
    assert step.counters()["acked"] == 30


def test_failures_of_steps_in_plain_python_are_listed(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    sender, step = make(), make()
    items = step.incoming("items", subscription="count")
    spout, out = sender.spout("s"), sender.outgoing("items")
    rows = [out.inject({}, spout.emit(f"m{number}")[0]) for number in range(3)]
    sender.flush()
    first, second, third = items.extract_many(rows)
    items.fail(first, "no such sku")
    items.fail(second, "no price")
    items.ack(third)
    step.flush()
    name, url = step.name, step.ledger.store.url

    def listed(*options: str) -> list[Any]:
        assert run(["failures", name, "--url", url, *options]) == 0
        return sorted(re.findall(r"failed +s +(m\d) +(\S.*\S) +count ", capsys.readouterr().out))

    assert listed() == [("m0", "no such sku"), ("m1", "no price")]
    assert listed("--reason", "price", "--step", "count") == [("m1", "no price")]
    assert listed("--limit", "1", "--status", "failed") != listed("--limit", "2")
    assert run(["failures", name, "--url", url, "--status", "expired"]) == 0
    assert capsys.readouterr().out == "no failures\n"
    assert run(["failures", name, "--url", url, "--json", "--spout", "s"]) == 0
    assert len(json.loads(capsys.readouterr().out)["outcomes"]) == 2
    assert run(["failures", name, "--url", url, "--status", "acked"]) == 2
