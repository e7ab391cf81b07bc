"""A hash of staged vectors that cannot be read costs its own segment alone."""

from typing import Any

import pytest

from acker import Topology
from acker.errors import UnknownSubscription
from acker.streams import Stream
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source
from tests.helpers.worlds.commits import pass_time

pytestmark = pytest.mark.damage


def damage(raw: Any, kind: str) -> None:
    """Damages the hash of an open segment."""
    key = next(key for key in raw.scan_iter("acker:{t:*:staged:*") if raw.hexists(key, "layout"))
    if kind == "layout":
        raw.hset(key, "layout", "x")
    elif kind == "vectors":
        raw.hset(key, "indexes:0", "x")
        raw.hset(key, "full", 1)
    else:
        raw.delete(key)
        raw.set(key, "x", ex=600)


def sent(made: Topology) -> list[Any]:
    """A record whose trees are in a slab of their own, and its row."""
    headers = source(made, 1)
    made.flush()
    return headers


@pytest.mark.parametrize("damaged", ["layout", "type"])
def test_the_trees_of_other_segments_go_on_waiting(make: Make, raw: Any, damaged: str) -> None:
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    for _ in range(4):
        sent(made)
    damage(raw, damaged)
    for _ in range(6):
        pass_time(made.ledger)
    assert (made.counters()["expired"], made.counters()["acked"]) == (1, 0)


@pytest.mark.parametrize("name", ["received", "lost_after", "downtime"])
def test_open_segments_wait_though_a_number_of_their_stream_cannot_be_read(
    make: Make, raw: Any, name: str
) -> None:
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    sent(made)
    key = "acker:{t/items}:subscriptions"
    slot = next(one[5:] for one in raw.hkeys(key) if one.startswith(b"slot:"))
    raw.hset(key, f"received:{slot.decode()}" if name == "received" else name, "x")
    for _ in range(6):
        pass_time(made.ledger)
    assert made.counters()["expired"] == 0


@pytest.mark.parametrize("damaged", ["layout", "vectors", "type"])
def test_the_pass_ends_other_segments(make: Make, raw: Any, damaged: str) -> None:
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    for _ in range(3):
        sent(made)
    damage(raw, damaged)
    for key in raw.scan_iter("acker:{t:*:staged:*"):
        if raw.type(key) == b"hash" and raw.hexists(key, "layout"):
            raw.hset(key, "full", 1)  # their consumer died before it acked them
    pass_time(made.ledger)
    assert made.counters()["acked"] == 2


def test_a_subscription_is_dropped_though_it_has_such_a_hash(make: Make, raw: Any) -> None:
    made, step = make(ackers=1), make(ackers=1)
    items = step.incoming("items", subscription="count")
    headers = [one for _ in range(3) for one in sent(made)]
    damage(raw, "layout")
    stream = Stream(made.ledger, "items")
    assert stream.unsubscribe("count") == 2
    assert not stream.totals().subscriptions
    assert made.counters()["failed"] == 2
    with pytest.raises(UnknownSubscription):
        items.extract_many(headers)


@pytest.mark.parametrize("slabs", [b"", b"x", b"another slab's n"])
def test_a_subscription_is_dropped_though_slabs_of_such_a_hash_are_others(
    make: Make, raw: Any, slabs: bytes
) -> None:
    made, step = make(ackers=3), make(ackers=3)
    step.incoming("items", subscription="count")
    for _ in range(3):
        sent(made)
    for key in list(raw.scan_iter("acker:{t:*:staged:*"))[1:]:
        if raw.hexists(key, "layout"):
            raw.hset(key, "slabs", slabs)
    stream = Stream(made.ledger, "items")
    stream.unsubscribe("count")
    assert not stream.totals().subscriptions


def test_a_hash_that_has_lost_a_part_fails_no_record_of_others(make: Make, raw: Any) -> None:
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    spout, out = made.spout("s"), made.outgoing("items")
    _, second = [spout.emit(name)[0] for name in ("first", "second")]  # trees of one slab
    out.inject(None, second)
    made.flush()
    key = next(key for key in raw.scan_iter("acker:{t:*:staged:*") if raw.hexists(key, "layout"))
    raw.hdel(key, "counts:0", "lengths:0")
    assert Stream(made.ledger, "items").unsubscribe("count") == 0
    assert made.counters()["failed"] == 0


@pytest.mark.parametrize("numbers", ["x", "9", "9 9 3600 10", "10 10 3600 9" + "0" * 30, ""])
def test_a_number_of_rows_that_cannot_be_read_acks_nothing(make: Make, raw: Any, numbers: str) -> None:
    made, step = make(ackers=1), make(ackers=1)
    items = step.incoming("items", subscription="count")
    headers = source(made, 1, rows=10)
    made.flush()
    key = next(key for key in raw.scan_iter("acker:{t:*:staged:*") if raw.hexists(key, "rows"))
    raw.hset(key, "rows", numbers)
    items.ack(items.extract_many(headers[1:]))
    step.flush()
    assert made.counters()["acked"] == 0
    [share] = made.stuck().stuck[0].shares
    assert share.rows in (9, 10)
