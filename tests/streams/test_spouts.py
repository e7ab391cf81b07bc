"""Spouts that keep their rows in the store, on real servers: what is tracked, told and refused."""

from typing import Any

import pyarrow as pa
import pytest
import redis

from acker import keys
from acker.errors import SpoutPendingFull, TrackRejected, ValidationError
from acker.ledger import Ledger, open_ledger
from acker.store import Store
from acker.streams import settler
from acker.streams.replays import Stepped
from acker.streams.roots import Roots, Tracking
from acker.streams.spout import StreamSpout
from tests.kept_rows import HOW, consume, fail, lines, pending, rows
from tests.leaks import assert_settled
from tests.streaming import counters

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def test_rows_are_tracked_emitted_and_forgotten_when_acked(ledger: Ledger, raw: "redis.Redis") -> None:
    made = StreamSpout(ledger, HOW).write(lines(1250))
    found = rows(ledger)
    assert [row["id"] for row in found] == list(range(1250))
    assert {row["attempt"] for row in found} == {1}
    assert [row["_acker"] for row in found] == [int(anchor) for one in made for anchor in one.anchors()]
    assert counters(ledger) == {"tracked": 1250}
    assert pending(ledger) == {"pending": 1250, "acked": 0, "replayed": 0, "dead": 0}
    assert settler.settle(ledger) == Stepped()
    consume(ledger)
    assert counters(ledger) == {"tracked": 1250, "acked": 1250}
    assert settler.settle(ledger) == Stepped(acked=1250)
    assert pending(ledger) == {"pending": 0, "acked": 1250, "replayed": 0, "dead": 0}
    assert not list(raw.scan_iter(b"*rows:*"))
    assert_settled(raw)


def test_rows_may_have_a_slab_each(url: str, raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(url), "alone", ackers=3, slab_limit=1)
    made = StreamSpout(ledger, HOW).write(lines(2500))
    found = rows(ledger)
    assert [row["_acker"] for row in found] == [int(anchor) for one in made for anchor in one.anchors()]
    assert max(row["_acker"] for row in found) < 0
    fail(ledger, lambda row: row["id"] % 10 == 0)
    assert counters(ledger) == {"tracked": 2500, "acked": 2250, "failed": 250, "late": 250}
    assert settler.settle(ledger) == Stepped(acked=2250, replayed=250)
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=250)
    assert pending(ledger) == {"pending": 0, "acked": 2500, "replayed": 250, "dead": 0}
    assert_settled(raw)


def test_outcomes_are_told_again_until_they_are_taken(ledger: Ledger) -> None:
    StreamSpout(ledger, HOW).write(lines(20))
    fail(ledger, lambda row: row["id"] == 7, "seven")
    told: list[dict[str, Any]] = []

    def breaks(table: pa.Table) -> None:
        raise RuntimeError("not today")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            settler.settle(ledger, told=breaks)
    settler.settle(ledger, told=lambda table: told.extend(table.to_pylist()))
    assert len(told) == 20
    [bad] = [row for row in told if row["status"] != "acked"]
    assert (bad["message_id"], bad["status"], bad["reason"], bad["attempt"], bad["final"]) == (
        b"7", "failed", "seven", 1, False,
    )  # fmt: skip
    assert all(row["final"] and 0 <= row["latency"] < 60 for row in told if row["status"] == "acked")
    settler.settle(ledger, told=breaks)


def test_outcomes_that_somebody_asks_for_are_left_to_who_asks(ledger: Ledger) -> None:
    told: list[dict[str, Any]] = []
    spout = StreamSpout(ledger, HOW)
    settler.settle(ledger, "s", told=lambda table: told.extend(table.to_pylist()))
    spout.write(lines(10))
    consume(ledger)
    assert settler.settle(ledger) == Stepped()  # `acker tick`, a commit that waits for room
    settler.settle(ledger, "s", told=lambda table: told.extend(table.to_pylist()))
    assert len(told) == 10
    spout.write(lines(10))
    consume(ledger)
    assert settler.settle(ledger, "s") == Stepped(acked=10)
    spout.write(lines(10))
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=10)


def test_no_more_rows_are_pending_than_allowed(ledger: Ledger) -> None:
    how = Tracking("s", "lines", "id", max_spout_pending=100)
    spout = StreamSpout(ledger, how)
    with pytest.raises(
        ValidationError, match=r"101 rows or more can never be tracked.*max_spout_pending = 100"
    ):
        spout.write(lines(101))
    spout.write(lines(60))
    with pytest.raises(SpoutPendingFull, match="too many rows without outcome for 60 more"):
        spout.write(lines(60), timeout=0)
    assert counters(ledger) == {"tracked": 60}
    consume(ledger)
    spout.write(lines(60), timeout=5)  # settles by itself
    assert counters(ledger) == {"tracked": 120, "acked": 60}


def test_a_write_waits_below_the_high_water_mark(url: str) -> None:
    ledger = open_ledger(Store(url), "small", ackers=1, high_water_mark=100, slab_limit=10)
    spout = StreamSpout(ledger, Tracking("s", "lines", "id"))
    with pytest.raises(ValidationError, match=r"can never be tracked.*high-water mark of 100"):
        spout.write(lines(101))
    spout.write(lines(80))
    with pytest.raises(TrackRejected, match="over its high-water mark of 100"):
        spout.write(lines(40), timeout=0)
    fail(ledger, lambda row: True)
    # Replays take the places of what they replay, though there is no room for them beside.
    assert settler.settle(ledger) == Stepped(replayed=80)
    consume(ledger)
    spout.write(lines(40), timeout=5)
    consume(ledger)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Tracking("s", "lines", "nope"), "expected one of the columns id, line, offset, got 'nope'"),
        (Tracking("s", "lines", "empty"), "column 'empty' is null in 2 rows"),
        (Tracking("s", "lines", "long"), "expected at most 1024 bytes, got 1,025 in column 'long'"),
        (Tracking("s", "lines", "id", offset="line"), "expected whole numbers without null in column 'line'"),
        (Tracking("s", "lines", "id", offset="below"), "offset: expected 0 to"),
        (Tracking("s", "lines", "id", offset="nope"), "offset: expected columns of"),
    ],
)
def test_rows_that_can_not_be_tracked_are_refused(ledger: Ledger, how: Tracking, message: str) -> None:
    table = lines(2)
    if how.message_id == "empty":
        table = table.append_column("empty", pa.nulls(2, pa.string()))
    if how.message_id == "long":
        table = table.append_column("long", pa.array(["x" * 1025, ""]))
    if how.offset == "below":
        table = table.append_column("below", pa.array([-1, 0]))
    with pytest.raises(ValidationError, match=message):
        StreamSpout(ledger, how).write(table)
    assert counters(ledger) == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"spout": "a b"}, "spout: expected 1 to 64"),
        ({"spout": "x" * 60}, "spout, with .outcomes: expected 1 to 64"),
        ({"attempts": 0}, "attempts: expected int from 1"),
        ({"max_spout_pending": 0}, "max_spout_pending: expected int from 1"),
        ({"message_id": ""}, "message_id: expected the name of a column"),
        ({"partition": "p"}, "partition: expected with offset"),
    ],
)
def test_a_tracking_is_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Tracking(**{"spout": "s", "stream": "lines", "message_id": "id", **wrong})


def test_roots_are_told_by_their_record_alone() -> None:
    roots = Roots("0" * 32, 250, 12345, 100, HOW, 2, {"a": (1, 2)})
    assert Roots.parse(roots.record()) == roots
    anchors = roots.anchors()
    assert len(set(anchors.tolist())) == 250
    assert [int(anchor) & 4095 for anchor in anchors] == [*range(100), *range(100), *range(50)]
    assert len(roots.names()) == 24
    assert keys.Spout("t", "s").rows("x") == b"acker:{t@s}:rows:x"


def test_nothing_is_kept_where_tracking_is_off(url: str, raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(url), "off", ackers=0)
    assert StreamSpout(ledger, HOW).write(lines(10)) == ()
    assert [row["_acker"] for row in rows(ledger)] == [None] * 10
    assert settler.settle(ledger) == Stepped()
    assert not list(raw.scan_iter(b"*@s}*"))
