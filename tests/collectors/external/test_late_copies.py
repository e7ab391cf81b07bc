"""Late copies of calls, that a client has sent again, change nothing of what has ended meanwhile."""

from typing import Any

import pytest

from acker.streams import Stream
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source
from tests.helpers.faults.late_copies import recorded
from tests.helpers.faults.stepping import before_script
from tests.helpers.worlds.commits import pass_time

EMITTING = ("send", "apply_staged")


def test_a_void_segment_is_not_emitted_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, step = make(ackers=1, waiting_bytes=470), make(ackers=1)
    items = step.incoming("items", subscription="count")
    made.spout("s")
    headers = source(made, 20)
    with recorded(monkeypatch) as copies:
        made._exchange.flush()  # type: ignore[union-attr]  # before the track of its records
    rows = items.extract_many(headers)
    items.fail(rows[0], "x" * 1_000)  # there is no room for it to wait
    items.ack(rows[1:])
    step.flush()
    assert made.counters()["orphaned"] > 0
    copies.come(*EMITTING)
    made.flush()
    assert made.counters()["acked"] == 19
    assert not make(ackers=1).incoming("items", subscription="count").extract(headers[0]).tracked
    pass_time(made.ledger)
    [count] = Stream(made.ledger, "items").totals().subscriptions
    assert (count.rows_acked, count.rows_dropped) == (19, 1)


def test_what_a_dropped_subscription_had_not_acked_is_not_emitted_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    made.spout("s").emit("first")
    made.flush()  # copies of calls with other spouts are refused
    source(made, 2)
    with recorded(monkeypatch) as copies:
        made._exchange.flush()  # type: ignore[union-attr]
    Stream(made.ledger, "items").unsubscribe("count")
    made.flush()
    assert made.counters()["failed"] == 2
    before = made.counters()
    copies.come(*EMITTING)
    assert made.counters() == before | {"duplicates": before["duplicates"] + 3}


def test_no_late_copy_makes_a_dropped_subscription_anew(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    step = make()
    with recorded(monkeypatch) as copies:
        step.incoming("items", subscription="count")
    stream = Stream(step.ledger, "items")
    stream.unsubscribe("count")
    copies.come("subscribe")
    assert not stream.totals().subscriptions
    make().incoming("items", subscription="count")
    assert [one.name for one in stream.totals().subscriptions] == ["count"]


@pytest.mark.parametrize("script", ["subscribe", "declare_external"])
def test_no_late_copy_makes_a_removed_stream_anew(
    make: Make, raw: Any, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    step = make()
    with recorded(monkeypatch) as copies:
        step.incoming("items", subscription="count")
    step.remove(force=True)
    copies.come(script)
    assert [key for key in raw.scan_iter("acker:*") if raw.ttl(key) == -1] == []
    again = make()
    again.incoming("items", subscription="count")
    assert [one.name for one in Stream(again.ledger, "items").totals().subscriptions] == ["count"]


def test_a_subscription_is_made_though_the_stream_was_removed_meanwhile(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, other = make(), make()
    step.outgoing("items")
    stream = Stream(other.ledger, "items")

    def drop() -> None:
        stream.subscribe("price")
        stream.unsubscribe("price")

    before_script(monkeypatch, "subscribe", drop, lambda: step.incoming("items", subscription="count"))
    assert [one.name for one in stream.totals().subscriptions] == ["count"]


def lasting(raw: Any) -> list[bytes]:
    """The topology's keys without a time to live."""
    return [key for key in raw.scan_iter("acker:*") if raw.ttl(key) == -1]


def test_no_late_copy_of_a_pass_leaves_keys_of_a_removed_stream(
    make: Make, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    made.incoming("items", subscription="count")
    source(made, 1)
    made.flush()
    with recorded(monkeypatch) as copies:
        pass_time(made.ledger)
    subscriptions = raw.hgetall("acker:{t/items}:subscriptions")
    assert any(name.startswith(b"ahead:") for name in subscriptions)
    made.remove(force=True)
    copies.come("note_lags")
    assert lasting(raw) == []


def test_no_late_copy_of_a_pass_leaves_an_unreadable_hash_that_has_ended(
    make: Make, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(ackers=1)
    made.incoming("items", subscription="count")
    source(made, 1)
    made.flush()
    [staged] = [key for key in raw.scan_iter("acker:{t:*:staged:*") if raw.hexists(key, "layout")]
    raw.hset(staged, "layout", "x")
    with recorded(monkeypatch) as copies:
        pass_time(made.ledger)
        pass_time(made.ledger)
    assert raw.hget(staged, "unread") == b"1"
    raw.delete(staged)  # its time to live is over
    copies.come("mark_unreadable")
    assert not raw.exists(staged)
