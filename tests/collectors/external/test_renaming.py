"""A subscription that gets another name keeps what it owes and has received."""

from typing import Any

import pytest

from acker.collectors.external import exchange
from acker.errors import StreamKindError, StreamLost, SubscriptionInUse, UnknownSubscription, ValidationError
from acker.streams import Stream
from acker.streams.staging.external import announcing, serving
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source
from tests.helpers.faults.late_copies import recorded
from tests.helpers.worlds.commits import pass_time


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps count as ended at once, and renew their heartbeat with each flush."""
    monkeypatch.setattr(serving, "LEASE", 0.0)
    monkeypatch.setattr(exchange, "SECONDS", 0.0)


@pytest.mark.usefixtures("ended")
def test_bits_and_open_segments_go_with_a_renamed_subscription(make: Make) -> None:
    made, old = make(), make()
    items = old.incoming("items", subscription="count")
    headers = source(made, 10, rows=4)
    made.flush()
    rows = items.extract_many(headers)
    items.ack(rows[:15])
    items.fail(rows[15], "no such word")
    for row in rows[16:]:
        old._exchange.give_up(row)  # type: ignore[union-attr]
    old.flush()
    stream = Stream(made.ledger, "items")
    stream.rename_subscription("count", "count-words")
    assert [one.name for one in stream.totals().subscriptions] == ["count-words"]
    with pytest.raises(UnknownSubscription, match="has the name 'count-words' now"):
        old.flush()
    step = make()
    renamed = step.incoming("items", subscription="count-words")
    renamed.ack(renamed.extract_many(headers[16:]))
    step.flush()
    counted = made.counters()
    assert (counted["acked"], counted["failed"]) == (9, 1)
    pass_time(made.ledger)
    [own] = stream.totals().subscriptions
    assert (own.rows_acked, own.rows_behind) == (40, 0)


@pytest.mark.usefixtures("ended")
def test_a_sender_gives_a_lost_subscription_back_under_its_new_name(
    make: Make, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    make().incoming("items", subscription="count")
    source(made, 1)
    made.flush()
    stream, key = Stream(made.ledger, "items"), "acker:{t/items}:subscriptions"
    stream.rename_subscription("count", "price")
    monkeypatch.setattr(announcing, "_NAMED", 0.0)
    source(made, 1)
    made.flush()
    slot = raw.hget(key, "name:price").decode()
    raw.hdel(key, "name:price", f"slot:{slot}", "slots")  # it was set back to a time before
    source(made, 1)
    with pytest.raises(StreamLost):
        made.flush()
    assert [one.name for one in stream.totals().subscriptions] == ["price"]


def test_a_subscription_keeps_its_name_while_a_step_serves_it(make: Make) -> None:
    step = make()
    step.incoming("items", subscription="count")
    stream = Stream(step.ledger, "items")
    with pytest.raises(SubscriptionInUse, match="'count' of stream 'items' is served by step 'count'"):
        stream.rename_subscription("count", "price")
    assert [one.name for one in stream.totals().subscriptions] == ["count"]


@pytest.mark.usefixtures("ended")
def test_what_cannot_be_renamed_is_refused(make: Make) -> None:
    step = make()
    for name in ("count", "price"):
        step.incoming("items", subscription=name)
    stream = Stream(step.ledger, "items")
    with pytest.raises(SubscriptionInUse, match="has a subscription 'price' already"):
        stream.rename_subscription("count", "price")
    with pytest.raises(UnknownSubscription, match="no subscription 'none'"):
        stream.rename_subscription("none", "words")
    with pytest.raises(ValidationError, match="new name"):
        stream.rename_subscription("count", "no/name")
    managed = Stream(step.ledger, "lines")
    managed.subscribe("split")
    with pytest.raises(StreamKindError):
        managed.rename_subscription("split", "words")


@pytest.mark.usefixtures("ended")
def test_a_late_copy_renames_nothing_and_makes_no_earlier_name_anew(
    make: Make, monkeypatch: pytest.MonkeyPatch, raw: Any
) -> None:
    step = make()
    stream = Stream(step.ledger, "items")
    with recorded(monkeypatch) as copies:
        step.incoming("items", subscription="count")
        stream.rename_subscription("count", "price")
    stream.rename_subscription("price", "count")
    copies.come("rename_subscription", "subscribe")
    assert [one.name for one in stream.totals().subscriptions] == ["count"]
    names = [name for name in raw.hkeys("acker:{t/items}:subscriptions") if name.startswith(b"name:")]
    assert names == [b"name:count"]
