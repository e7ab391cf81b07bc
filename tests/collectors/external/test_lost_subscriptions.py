"""A store that loses its latest writes: no record is acked without a subscription that it lost."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import redis

from acker.collectors.external import exchange
from acker.errors import AckerError, StreamLost, UnknownSubscription
from acker.store import keys
from acker.streams import Stream
from acker.streams.log import scripts as log_scripts
from acker.streams.log import subscriptions
from acker.streams.log.kinds import Seen
from acker.streams.staging.external import scripts as staging_scripts
from acker.streams.staging.external.subscribed import MOST_GONE
from acker.streams.upkeep import scripts
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source, work
from tests.helpers.faults.stepping import before_script

pytestmark = pytest.mark.damage


def of_stream(raw: redis.Redis) -> dict[Any, Any]:
    """The keys of stream items."""
    return {key: raw.dump(key) for key in raw.scan_iter("acker:{t/items}:*")}


def set_back(raw: redis.Redis, before: dict[Any, Any]) -> None:
    """Sets the stream back, as a replica does that lags and takes over."""
    raw.delete(*of_stream(raw))
    for key, value in before.items():
        raw.restore(key, 0, value)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("kept", [(), ("price",)])
def test_a_sender_gives_lost_subscriptions_back(
    make: Make, raw: redis.Redis, kept: tuple[str, ...], flushed: bool
) -> None:
    step, other = make(), make()
    step.outgoing("items")
    for name in kept:
        other.incoming("items", subscription=name)
    before = of_stream(raw)
    items = step.incoming("items", subscription="count")
    made = make()
    made.outgoing("items")
    if flushed:
        source(made, 1)
        made.flush()
    set_back(raw, before)
    source(made, 2)
    with pytest.raises(StreamLost):
        made.flush()
    again = make()  # the sender is started again, before any step has noticed
    headers = source(again, 2)
    again.flush()
    for name in kept:
        work(other, headers, name)
    other.flush()
    assert again.counters()["acked"] == 0
    with pytest.raises(UnknownSubscription):
        items.extract_many(headers)
    assert again.counters()["acked"] == 0
    step = make()
    work(step, headers)
    step.flush()
    assert again.counters()["acked"] == 2


@pytest.mark.parametrize("flushed", [False, True])
def test_a_step_gives_its_lost_subscription_back_before_it_ends(
    make: Make, raw: redis.Redis, flushed: bool
) -> None:
    made, step = make(), make()
    made.outgoing("items")
    before = of_stream(raw)
    items = step.incoming("items", subscription="count")
    headers = source(made, 1)
    made.flush()
    rows = items.extract_many(headers)
    items.ack(rows)
    set_back(raw, before)
    call = step.flush if flushed else partial(items.extract, source(made, 1)[0])
    with pytest.raises(UnknownSubscription, match="the store has lost subscription 'count'"):
        call()
    again = make()  # a sender that has not seen the subscription
    headers = source(again, 2)
    again.flush()
    acked = again.counters()["acked"]
    step = make()
    work(step, headers)
    step.flush()
    assert again.counters()["acked"] == acked + 2


@pytest.mark.parametrize("lost", ["the store", "the subscription"])
def test_an_idle_step_notices_that_its_subscription_is_lost_and_declares_it_anew(
    make: Make, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Rows that are sent before its next one would be owed by nobody."""
    made, step = make(), make()
    made.outgoing("items")
    before = of_stream(raw)
    step.incoming("items", subscription="count")
    if lost == "the store":
        raw.flushall()
    else:
        set_back(raw, before)
    monkeypatch.setattr(exchange, "SECONDS", 0.0)  # its next heartbeat is due
    for _ in range(2):
        with pytest.raises(StreamLost if lost == "the store" else UnknownSubscription):
            step.flush()
    again = make()  # a sender that has not seen the subscription
    headers = source(again, 2)
    again.flush()
    assert again.counters()["acked"] == 0
    step = make()
    work(step, headers)
    step.flush()
    assert again.counters()["acked"] == 2


def test_a_subscription_waits_for_the_copies_that_the_topology_asks_for(make: Make) -> None:
    step, own = make(), keys.Stream("t", "items")
    config = replace(step.ledger.config, wait_fsync=1, wait_replicas=2)
    seen = Seen(b"", 0)
    for request in (
        log_scripts.subscribe(config, own, "count", 64, 1, 1, seen),
        staging_scripts.declare_external(config, own, "", "", "", "", "", "", seen),
    ):
        assert request.wait == (1, 2)


def test_a_subscription_that_was_dropped_long_ago_does_not_come_back(make: Make, raw: Any) -> None:
    made, step = make(), make()
    for name in ("count", "price"):
        step.incoming("items", subscription=name)
    source(made, 1)
    made.flush()
    stream = Stream(made.ledger, "items")
    stream.unsubscribe("price")
    source(made, 1)
    made.flush()
    raw.hdel("acker:{t/items}:subscriptions", "gone")  # as many later ones were dropped since
    source(made, 1)
    made.flush()
    assert [one.name for one in stream.totals().subscriptions] == ["count"]


def test_a_process_that_was_idle_while_many_subscriptions_were_dropped_makes_none_anew(make: Make) -> None:
    made, step = make(), make()
    for name in ("count", "price"):
        step.incoming("items", subscription=name)
    source(made, 1)
    made.flush()
    stream = Stream(step.ledger, "items")
    stream.unsubscribe("price")
    for number in range(150):
        step.ledger.run(subscriptions.subscribe(step.ledger.core, "items", f"of-{number}", "external"))
        stream.unsubscribe(f"of-{number}")
    source(made, 1)
    made.flush()
    assert [one.name for one in stream.totals().subscriptions] == ["count"]


def test_a_sender_that_was_idle_through_more_drops_than_the_store_keeps_starts_again_and_goes_on(
    make: Make, raw: Any
) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    make().incoming("items", subscription="price")
    source(made, 1)
    made.flush()
    stream = Stream(step.ledger, "items")
    stream.unsubscribe("price")
    raw.hset("acker:{t/items}:subscriptions", "gone", ("7," * MOST_GONE)[:MOST_GONE])
    source(made, 1)
    with pytest.raises(StreamLost):
        made.flush()
    assert [one.name for one in stream.totals().subscriptions] == ["count"], "it is not made anew"
    again = make()
    headers = source(again, 1)
    again.flush()
    work(step, headers)
    step.flush()
    assert again.counters()["acked"] == 1


def test_a_late_copy_of_a_removal_leaves_a_new_subscription_of_the_name(make: Make) -> None:
    step = make()
    step.incoming("items", subscription="count")
    core, own = step.ledger.core, keys.Stream("t", "items")
    former = step.ledger.run(subscriptions.find(core, "items", "count"))
    stream = Stream(step.ledger, "items")
    stream.unsubscribe("count")
    stream.subscribe("count")
    step.ledger.store.send([scripts.remove_subscription(own, "count", former, forget=True)])
    assert [one.name for one in stream.totals().subscriptions] == ["count"]
    assert step.ledger.run(subscriptions.find(core, "items", "count")) != former


def test_a_subscription_that_joins_late_keeps_nothing_of_rows_that_were_sent_before(
    make: Make, raw: redis.Redis
) -> None:
    made, step, late = make(), make(), make()
    step.incoming("items", subscription="count")
    before = source(made, 2)
    made.flush()
    unflushed = source(made, 2)
    items = late.incoming("items", subscription="late")
    keys_before = set(raw.scan_iter("*:staged:*"))
    rows = items.extract_many(before)
    assert [row.tracked for row in rows] == [False, False]
    items.ack(rows)
    late.flush()
    assert set(raw.scan_iter("*:staged:*")) == keys_before
    work(late, unflushed, "late")
    late.flush()
    work(step, before + unflushed)
    step.flush()
    assert made.counters()["acked"] == 2
    made.flush()
    assert made.counters()["acked"] == 4


@pytest.mark.parametrize("script", ["receive", "note_received"])
def test_a_store_that_is_emptied_within_a_flush_is_named_as_such(
    make: Make, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    made, step = make(), make()
    items, errors = step.incoming("items", subscription="count"), list[AckerError]()
    headers = source(made, 1)
    made.flush()
    items.ack(items.extract(headers[0]))

    def flush() -> None:
        try:
            step.flush()
        except AckerError as error:
            errors.append(error)

    before_script(monkeypatch, script, raw.flushall, flush)
    assert [type(error) for error in errors] == [StreamLost]
    assert "or its key was rotated twice" in str(errors[0])
    assert not raw.exists("acker:{t/items}:subscriptions")
