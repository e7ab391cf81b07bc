"""Spouts that keep their rows in the store: replays, dead letters, watermarks, on real servers."""

from typing import Any

import pyarrow as pa
import pytest
import redis

from acker import keys
from acker.errors import SpoutPendingFull, TrackRejected, ValidationError
from acker.ledger import Ledger, open_ledger
from acker.outcomes import OutcomeReader
from acker.store import Store
from acker.streams import commits, dead_letters, kept, lost, replays, settler
from acker.streams.commits import Commit
from acker.streams.replays import Stepped
from acker.streams.roots import Roots, Tracking
from acker.streams.spout import StreamSpout
from acker.streams.staging import Staging
from tests.kept_rows import HOW, consume, fail, letters, lines, pending, rows
from tests.leaks import assert_settled, kind_of
from tests.streaming import counters, run_cut

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


def test_a_spout_is_found_also_by_who_opens_the_topology_after_the_store_lost_everything(
    ledger: Ledger, raw: "redis.Redis", url: str
) -> None:
    ledger.register_spout("other")
    StreamSpout(ledger, HOW).write(lines(5))
    raw.flushall()
    opened = open_ledger(Store(url), "t", ackers=3, slab_limit=100)
    StreamSpout(ledger, HOW).write(lines(10))
    consume(opened)
    assert settler.settle(opened) == Stepped(acked=10)


def test_a_spout_tells_a_store_that_lost_everything_how_its_topology_was_configured(
    ledger: Ledger, raw: "redis.Redis", url: str
) -> None:
    ledger.register_spout("other")
    raw.flushall()
    StreamSpout(ledger, HOW).write(lines(10))
    opened = open_ledger(Store(url), "t", create=False)
    assert opened.config == ledger.config
    assert opened.core.spouts == ledger.core.spouts
    assert opened.core.spouts.keys() == {HOW.spout, "other"}
    consume(opened)
    assert settler.settle(opened) == Stepped(acked=10)


def test_a_step_that_is_cut_anywhere_is_finished_once_by_another(valkey_url: str) -> None:
    """The settler dies after each of its exchanges: every row is replayed once, every outcome told."""
    cuts = 0
    for after in range(200):
        ledger = open_ledger(Store(valkey_url), f"cut{after}", ackers=2, slab_limit=10)
        how = Tracking("s", "lines", "id", attempts=2, outcomes=True)
        StreamSpout(ledger, how).write(lines(30))
        fail(ledger, lambda row: row["id"] % 3 == 0)
        cut = run_cut(ledger, replays.step(ledger.core, "s"), after)
        cuts += cut
        settler.settle(ledger)
        assert sorted(row["id"] for row in rows(ledger)) == list(range(0, 30, 3)), after
        assert pending(ledger)["pending"] == 10
        told = rows(ledger, "s.outcomes")
        assert len(told) == 30
        assert sorted(row["message_id"] for row in told if row["final"]) == sorted(
            b"%d" % n for n in range(30) if n % 3
        )
        fail(ledger, lambda row: True)
        cut = run_cut(ledger, replays.step(ledger.core, "s"), after)
        settler.settle(ledger)
        assert len(letters(ledger)) == 10
        assert pending(ledger) == {"pending": 0, "acked": 20, "replayed": 10, "dead": 10}
        assert {name: n for name, n in counters(ledger).items() if name != "duplicates"} == {
            "tracked": 40, "acked": 20, "failed": 20, "late": 20,
        }  # fmt: skip
        if not cut:
            break
    assert 15 < cuts < 100


def test_a_write_that_is_cut_anywhere_is_finished_once(valkey_url: str) -> None:
    for after in range(100):
        ledger = open_ledger(Store(valkey_url), f"cut{after}", ackers=2, slab_limit=10)
        made, staged = ledger.run(
            replays.emit_recorded(ledger.core, HOW, Staging("lines"), lines(35).to_batches())
        )
        what = Commit((staged,), made)
        cut = run_cut(ledger, commits.commit(ledger.core, "w", 0, what), after)
        for _ in range(2):
            ledger.run(commits.commit(ledger.core, "w", 0, what))
        assert counters(ledger)["tracked"] == 35
        assert len(rows(ledger)) == 35
        consume(ledger)
        assert counters(ledger)["acked"] == 35
        assert settler.settle(ledger) == Stepped(acked=35)
        if not cut:
            return
    raise AssertionError("it never came to its end")


def test_a_settler_that_is_overtaken_anywhere_replays_nothing_again(valkey_url: str) -> None:
    """Another settler does all there is to do, after each exchange of this one in turn."""
    for after in range(100):
        ledger = open_ledger(Store(valkey_url), f"race{after}", ackers=2, slab_limit=10)
        StreamSpout(ledger, HOW).write(lines(15))
        fail(ledger, lambda row: row["id"] < 5)
        slow, replies, exchanges = replays.step(ledger.core, "s"), None, 0
        try:
            while True:
                requests = slow.send(replies)  # type: ignore[arg-type]
                if exchanges == after:
                    settler.settle(ledger)
                replies = ledger.store.send(requests)
                exchanges += 1
        except StopIteration:
            pass
        settler.settle(ledger)
        assert sorted(row["id"] for row in rows(ledger)) == list(range(5)), after
        assert pending(ledger) == {"pending": 5, "acked": 10, "replayed": 5, "dead": 0}
        if exchanges < after:
            return
    raise AssertionError("it never came to its end")


def test_rows_that_are_settled_again_count_once(ledger: Ledger) -> None:
    """Outcomes of some trees of a slab are settled, but not confirmed before the process dies."""
    StreamSpout(ledger, HOW).write(lines(50))
    ledger.fail([row["_acker"] for row in rows(ledger) if row["id"] % 5 == 0])
    number = ledger.register_spout("s")
    entries = ledger.run(OutcomeReader(ledger.core, number).read())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acker.outcomes.confirm", lambda *_: iter(()))
        for _ in range(2):
            ledger.run(kept.settle_entries(ledger.core, "s", entries))
    assert pending(ledger) == {"pending": 40, "acked": 0, "replayed": 10, "dead": 0}


def test_a_commit_that_goes_on_late_tracks_no_tree_again(ledger: Ledger) -> None:
    made, staged = ledger.run(
        replays.emit_recorded(ledger.core, Tracking("s", "lines", "id", attempts=1), Staging("lines"),
                              lines(200).to_batches())
    )  # fmt: skip
    what = Commit((staged,), made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits, "_publish", _cut)
        with pytest.raises(RuntimeError, match="cut"):
            ledger.run(commits.commit(ledger.core, "w", 0, what))
    first_slab = made[0].anchors()[:100]
    ledger.fail(first_slab, "meanwhile")
    assert settler.settle(ledger) == Stepped(dead=100)
    ledger.run(commits.finish(ledger.core, "w", 0))
    consume(ledger)
    assert counters(ledger)["tracked"] == 200
    assert settler.settle(ledger) == Stepped(acked=100)


def _cut(*_: Any) -> Any:
    raise RuntimeError("cut")


def test_trees_that_the_ledger_lost_are_failed_and_tried_again(
    ledger: Ledger, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    StreamSpout(ledger, HOW).write(lines(250))
    anchors = [row["_acker"] for row in rows(ledger)]
    assert settler.recover(ledger) == 0
    monkeypatch.setattr(lost, "AFTER", 0.0)
    assert settler.recover(ledger) == 0  # late, but known
    for key in raw.scan_iter():
        if kind_of(key) in ("slabs", "ack", "bucket", "message_ids") and b"@" not in key:
            raw.delete(key)
    ledger.update(anchors[:1], [1])  # what comes for a tree that is lost waits for it
    assert settler.recover(ledger) == 250
    assert settler.recover(ledger) == 0
    assert settler.settle(ledger) == Stepped(replayed=250)
    assert pending(ledger)["pending"] == 250
    again = [row for row in rows(ledger) if row["attempt"] == 2]
    assert sorted(row["id"] for row in again) == list(range(250))


def test_rows_of_a_commit_that_was_given_up_are_tried_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost, "AFTER", 0.0)
    made, staged = ledger.run(
        replays.emit_recorded(ledger.core, HOW, Staging("lines"), lines(5).to_batches())
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acker.streams.tracking._track", _cut)
        with pytest.raises(RuntimeError, match="cut"):
            ledger.run(commits.commit(ledger.core, "w", 0, Commit((staged,), made)))
    assert (pending(ledger)["pending"], counters(ledger)) == (5, {})
    assert settler.recover(ledger, "s") == 5
    assert settler.settle(ledger) == Stepped(replayed=5)
    assert [row["attempt"] for row in rows(ledger)] == [2] * 5


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


def test_a_watermark_is_held_back_by_what_is_not_done(ledger: Ledger) -> None:
    how = Tracking("s", "lines", "id", attempts=2, offset="offset", partition="partition")

    def write(partition: str, first: int, count: int) -> None:
        table = lines(count, first)
        StreamSpout(ledger, how).write(table.append_column("partition", pa.array([partition] * count)))

    def watermark() -> dict[str, int]:
        settler.settle(ledger)
        return ledger.run(kept.watermark(ledger.core, "s"))

    assert watermark() == {}
    write("a", 10, 10)
    assert watermark() == {"a": 10}
    consume(ledger)
    assert watermark() == {"a": 20}
    write("a", 20, 10)
    write("b", 0, 5)
    fail(ledger, lambda row: row["id"] == 25)
    assert watermark() == {"a": 25, "b": 5}
    write("a", 30, 10)
    assert watermark() == {"a": 25, "b": 5}
    fail(ledger, lambda row: row["id"] == 25)
    assert watermark() == {"a": 40, "b": 5}
    assert len(letters(ledger)) == 1


def _pieces(ledger: Ledger, how: Tracking, *firsts: int) -> Commit:
    """A batch of pieces of 100 rows each, in this order."""
    staged, made = [], list[Roots]()
    for first in firsts:
        found, piece = ledger.run(
            replays.emit_recorded(ledger.core, how, Staging("lines"), lines(100, first).to_batches())
        )
        staged.append(piece)
        made += found
    return Commit(tuple(staged), tuple(made))


def test_a_watermark_does_not_pass_rows_of_a_batch_that_wait_for_room(ledger: Ledger) -> None:
    how = Tracking("s", "lines", "id", offset="offset", max_spout_pending=250)
    StreamSpout(ledger, how).write(lines(100))
    what = _pieces(ledger, how, 200, 100)
    with pytest.raises(SpoutPendingFull):
        ledger.run(commits.commit(ledger.core, "w", 0, what))
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"": 0}
    consume(ledger)
    settler.settle(ledger)
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"": 100}
    ledger.run(commits.commit(ledger.core, "w", 0, what))
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"": 100}
    consume(ledger)
    settler.settle(ledger)
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"": 300}


def test_a_watermark_does_not_pass_rows_of_a_batch_that_is_cut_anywhere(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile those that are tracked are lost, tried again, and acked."""
    monkeypatch.setattr(lost, "AFTER", 0.0)
    how = Tracking("s", "lines", "id", offset="offset")
    for after in range(100):
        ledger = open_ledger(Store(valkey_url), f"cut{after}", ackers=2, slab_limit=100)
        what = _pieces(ledger, how, 100, 0)
        cut = run_cut(ledger, commits.commit(ledger.core, "w", 0, what), after)
        assert ledger.run(kept.watermark(ledger.core, "s")).get("", 0) == 0, after
        settler.recover(ledger, "s")
        acked: set[int] = set()

        def take(table: pa.Table, acked: set[int] = acked) -> None:
            acked.update(int(row["message_id"]) for row in table.to_pylist() if row["status"] == "acked")

        for _ in range(2):
            settler.settle(ledger, "s", told=take)
            consume(ledger)
        settler.settle(ledger, "s", told=take)
        watermark = ledger.run(kept.watermark(ledger.core, "s")).get("", 0)
        assert acked.issuperset(range(watermark)), after
        ledger.run(commits.commit(ledger.core, "w", 0, what))
        consume(ledger)
        settler.settle(ledger, "s")
        assert ledger.run(kept.watermark(ledger.core, "s")) == {"": 200}, after
        if not cut:
            return
    raise AssertionError("it never came to its end")


def test_a_dead_letter_that_is_replayed_holds_no_watermark_back(ledger: Ledger) -> None:
    how = Tracking("s", "lines", "id", attempts=2, offset="offset", partition="partition")
    table = lines(20)
    StreamSpout(ledger, how).write(table.append_column("partition", pa.array(["a"] * 20)))
    for _ in range(2):
        fail(ledger, lambda row: row["id"] == 7)
        settler.settle(ledger)
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"a": 20}
    [letter] = letters(ledger)
    ledger.run(dead_letters.replay(ledger.core, letter.id))
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"a": 20}
    fail(ledger, lambda row: True)
    assert settler.settle(ledger) == Stepped(replayed=1)
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"a": 20}
    assert [(row["id"], row["partition"]) for row in rows(ledger)] == [(7, "a")]


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
