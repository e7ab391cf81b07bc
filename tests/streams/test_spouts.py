"""Spouts that keep their rows, or ids, on real servers: what is tracked, reported and refused."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import SpoutPendingFull, TrackConflict, TrackRejected, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters import dead_letters
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped, emit_recorded
from acker.streams.staging.staging import Staging
from tests.helpers.builders.kept_rows import HOW, Keeping, consume, fail, letters, lines, pending, rows
from tests.helpers.builders.ledgers import confirm_all
from tests.helpers.builders.streaming import counters
from tests.helpers.models.leaks import assert_settled

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def test_rows_are_tracked_emitted_and_forgotten_when_acked(
    ledger: Ledger, keeping: Keeping, raw: "redis.Redis"
) -> None:
    tracked = keeping.write(ledger, lines(1250))
    found = rows(ledger)
    assert [row["id"] for row in found] == list(range(1250))
    assert {row["attempt"] for row in found} == {1}
    assert [row["_acker"] for row in found] == [int(anchor) for one in tracked for anchor in one.anchors()]
    assert counters(ledger) == {"tracked": 1250}
    assert pending(ledger) == {"pending": 1250, "acked": 0, "replayed": 0, "dead": 0}
    assert keeping.settle(ledger) == Stepped()
    consume(ledger)
    assert counters(ledger) == {"tracked": 1250, "acked": 1250}
    assert keeping.settle(ledger) == Stepped(acked=1250)
    assert pending(ledger) == {"pending": 0, "acked": 1250, "replayed": 0, "dead": 0}
    assert not list(raw.scan_iter(b"*rows:*"))
    assert_settled(raw)


def test_a_write_leaves_no_record_of_its_commit(ledger: Ledger, raw: "redis.Redis") -> None:
    spout = StreamSpout(ledger, HOW)
    for number in range(5):
        spout.write(lines(2, 2 * number))
    assert len(rows(ledger)) == 10
    assert not list(raw.scan_iter(b"*:commits:*"))


@pytest.mark.parametrize("broken", [False, True])
def test_a_slab_that_is_somebody_elses_or_unreadable_ends_the_commit_before_anything_is_published(
    ledger: Ledger, raw: "redis.Redis", broken: bool
) -> None:
    tracked, staged = ledger.run(emit_recorded(ledger.core, HOW, Staging("lines"), lines(250).to_batches()))
    anchors = tracked[0].anchors()
    slab = anchors[100:200]
    ledger.track(slab, ids.new_ids(100), [b"m"] * 100, spout="other")
    if broken:
        for shard in ledger.core.shards:
            if raw.hexists(shard.slabs.decode(), ids.slab_of(int(slab[0]))):
                raw.hset(shard.slabs.decode(), ids.slab_of(int(slab[0])), b"\x03 of a newer version")
    work = Commit((staged,), tracked)
    for _ in range(2):
        with pytest.raises(UnreadableRecord if broken else TrackConflict, match=str(int(slab[0]))):
            ledger.run(commit.commit(ledger.core, "writer", 0, work))
        assert rows(ledger) == []
    for _ in range(3):
        ledger.tick(force=True)
    confirm_all(ledger, "other")
    assert ledger.run(commit.commit(ledger.core, "writer", 0, work))
    assert len(rows(ledger)) == 250


def test_rows_may_have_a_slab_each(url: str, keeping: Keeping, raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(url), "alone", ackers=3, slab_limit=1)
    made = keeping.write(ledger, lines(2500))
    found = rows(ledger)
    assert [row["_acker"] for row in found] == [int(anchor) for one in made for anchor in one.anchors()]
    assert max(row["_acker"] for row in found) < 0
    fail(ledger, lambda row: row["id"] % 10 == 0)
    assert counters(ledger) == {"tracked": 2500, "acked": 2250, "failed": 250, "late": 250}
    assert keeping.settle(ledger) == Stepped(acked=2250, replayed=250)
    consume(ledger)
    assert keeping.settle(ledger) == Stepped(acked=250)
    assert pending(ledger) == {"pending": 0, "acked": 2500, "replayed": 250, "dead": 0}
    assert_settled(raw)


def test_outcomes_are_reported_again_until_they_are_taken(ledger: Ledger, keeping: Keeping) -> None:
    keeping.write(ledger, lines(20))
    fail(ledger, lambda row: row["id"] == 7, "seven")
    reported: list[dict[str, Any]] = []

    def breaks(table: pa.Table) -> None:
        raise RuntimeError("not today")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            keeping.settle(ledger, on_outcomes=breaks)
    keeping.settle(ledger, on_outcomes=lambda table: reported.extend(table.to_pylist()))
    assert len(reported) == 20
    [bad] = [row for row in reported if row["status"] != "acked"]
    assert (bad["message_id"], bad["status"], bad["reason"], bad["attempt"], bad["final"]) == (
        b"7", "failed", "seven", 1, False,
    )  # fmt: skip
    assert all(row["final"] and 0 <= row["latency"] < 60 for row in reported if row["status"] == "acked")
    keeping.settle(ledger, on_outcomes=breaks)


def test_outcomes_are_reported_again_where_their_function_has_left_its_work_undone(ledger: Ledger) -> None:
    StreamSpout(ledger, HOW).write(lines(20))
    consume(ledger)
    reported: list[int] = []

    async def later(table: pa.Table) -> None:
        reported.append(0)

    def piecemeal(table: pa.Table) -> Iterator[int]:
        yield from table.column("attempt").to_pylist()

    for function, kind in ((later, "coroutine"), (piecemeal, "generator")):
        with pytest.raises(ValidationError, match=f"on_outcomes: expected .* returned a {kind}"):
            settler.settle(ledger, on_outcomes=function)
    settler.settle(ledger, on_outcomes=lambda table: reported.append(table.num_rows))
    assert reported == [20]


def test_outcomes_that_somebody_asks_for_are_left_to_who_asks(ledger: Ledger) -> None:
    reported: list[dict[str, Any]] = []
    spout = StreamSpout(ledger, HOW)
    settler.settle(ledger, "s", on_outcomes=lambda table: reported.extend(table.to_pylist()))
    spout.write(lines(10))
    consume(ledger)
    assert settler.settle(ledger) == Stepped()  # `acker tick`, a commit that waits for room
    settler.settle(ledger, "s", on_outcomes=lambda table: reported.extend(table.to_pylist()))
    assert len(reported) == 10
    spout.write(lines(10))
    consume(ledger)
    assert settler.settle(ledger, "s") == Stepped(acked=10)
    spout.write(lines(10))
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=10)


def test_no_more_rows_are_pending_than_allowed(ledger: Ledger, keeping: Keeping) -> None:
    how = SpoutOptions("s", "lines", "id", max_spout_pending=100)
    with pytest.raises(
        ValidationError, match=r"101 rows or more can never be tracked.*max_spout_pending = 100"
    ):
        keeping.write(ledger, lines(101), how)
    keeping.write(ledger, lines(60), how)
    with pytest.raises(SpoutPendingFull, match="too many rows without outcome for 60 more") as refused:
        keeping.write(ledger, lines(60), how, timeout=0)
    assert ("keep='ids'" in str(refused.value)) == (keeping.kind == "rows")
    assert counters(ledger) == {"tracked": 60}
    consume(ledger)
    keeping.write(ledger, lines(60), how, timeout=5)  # settles by itself
    assert counters(ledger) == {"tracked": 120, "acked": 60}


def test_a_write_waits_below_the_high_water_mark(url: str, keeping: Keeping) -> None:
    ledger = open_ledger(Store(url), "small", ackers=1, high_water_mark=100, slab_limit=10)
    how = SpoutOptions("s", "lines", "id")
    with pytest.raises(ValidationError, match=r"can never be tracked.*high-water mark of 100"):
        keeping.write(ledger, lines(101), how)
    keeping.write(ledger, lines(80), how)
    with pytest.raises(TrackRejected, match="over its high-water mark of 100"):
        keeping.write(ledger, lines(40), how, timeout=0)
    fail(ledger, lambda row: True)
    # Replays take the places of what they replay, though there is no room for them beside.
    assert keeping.settle(ledger) == Stepped(replayed=80)
    consume(ledger)
    keeping.write(ledger, lines(40), how, timeout=5)
    consume(ledger)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (SpoutOptions("s", "lines", "nope"), "expected one of the columns id, line, offset, got 'nope'"),
        (
            SpoutOptions("s", "lines", "id", offset="line"),
            "expected whole numbers without null in column 'line'",
        ),
        (SpoutOptions("s", "lines", "id", offset="below"), "offset: expected 0 to"),
        (SpoutOptions("s", "lines", "id", offset="nope"), "offset: expected columns of"),
    ],
)
def test_rows_that_cannot_be_tracked_are_refused(ledger: Ledger, how: SpoutOptions, message: str) -> None:
    table = lines(2)
    if how.offset == "below":
        table = table.append_column("below", pa.array([-1, 0]))
    with pytest.raises(ValidationError, match=message):
        StreamSpout(ledger, how).write(table)
    assert counters(ledger) == {}


NAMES = ["a", None, "ü" * 600, "", "z" * 1024]


def test_a_row_without_a_good_message_id_is_a_dead_letter(
    ledger: Ledger, keeping: Keeping, raw: "redis.Redis"
) -> None:
    table = lines(5).append_column("name", pa.array(NAMES, pa.string()))
    keeping.write(ledger, table, SpoutOptions("s", "lines", "name", attempts=3, attempt="attempt"))
    assert [row["name"] for row in rows(ledger)] == ["a", "", "z" * 1024]
    assert counters(ledger) == {"tracked": 5, "failed": 2}
    reported: list[dict[str, Any]] = []
    assert keeping.settle(ledger, on_outcomes=lambda found: reported.extend(found.to_pylist())) == Stepped(
        dead=2
    )
    assert all(row["final"] and row["status"] == "failed" for row in reported)
    consume(ledger)
    assert keeping.settle(ledger, "s") == Stepped(acked=3)
    none, long = letters(ledger)
    expected = "message_id: expected at most 1,024 bytes, got"
    assert (none.message_id, none.reason) == (b"", f"{expected} null in column 'name'")
    assert (long.message_id, long.reason) == (
        "ü".encode() * 510 + b"...", f"{expected} 1,200 in column 'name'",
    )  # fmt: skip
    assert (long.attempts, long.row) == (
        1, {"id": 2, "line": "line 2", "offset": 2, "name": "ü" * 600, "attempt": 1},
    )  # fmt: skip
    with pytest.raises(ValidationError, match="cannot be replayed: its message id is null or too long"):
        ledger.run(dead_letters.replay(ledger.core, long.id))
    assert letters(ledger) == [none, long]
    assert keeping.asked == [], "they are kept with their rows"
    assert not list(raw.scan_iter(b"*rows:*"))
    assert_settled(raw)


def test_a_spout_of_rows_none_of_which_can_be_tracked_has_dead_letters_only(ledger: Ledger) -> None:
    StreamSpout(ledger, SpoutOptions("s", "lines", "name")).write(
        pa.table({"name": pa.nulls(250, pa.string())})
    )
    assert rows(ledger) == []
    assert settler.settle(ledger) == Stepped(dead=250)


def test_rows_without_a_message_id_may_go_on_untracked(ledger: Ledger, raw: "redis.Redis") -> None:
    table = lines(5).append_column("name", pa.array(NAMES, pa.string()))
    StreamSpout(ledger, SpoutOptions("s", "lines", "name", bad_message_id="untracked")).write(table)
    assert sorted((row["id"], row["_acker"] is None) for row in rows(ledger)) == [
        (0, False), (1, True), (2, True), (3, False), (4, False),
    ]  # fmt: skip
    consume(ledger)
    assert counters(ledger) == {"tracked": 3, "acked": 3}
    assert settler.settle(ledger) == Stepped(acked=3)
    assert_settled(raw)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"spout": "a b"}, "spout: expected 1 to 64"),
        ({"spout": "x" * 60}, "spout, with .outcomes: expected 1 to 64"),
        ({"attempts": 0}, "attempts: expected int from 1"),
        ({"max_spout_pending": 0}, "max_spout_pending: expected int from 1"),
        ({"message_id": ""}, "message_id: expected the name of a column"),
        ({"partition": "p"}, "partition: expected with offset"),
        ({"bad_message_id": "drop"}, "bad_message_id: expected dead_letter or untracked, got 'drop'"),
    ],
)
def test_a_tracking_is_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SpoutOptions(**{"spout": "s", "stream": "lines", "message_id": "id", **wrong})


def test_roots_are_reported_by_their_record_alone() -> None:
    roots = Roots("0" * 32, 250, 12345, 100, HOW, 2, {"a": (1, 2)})
    anchors = roots.anchors()
    assert len(set(anchors.tolist())) == 250
    assert [ids.index_of(int(anchor)) for anchor in anchors] == [*range(100), *range(100), *range(50)]
    assert len(roots.names()) == 24
    assert keys.Spout("t", "s").rows("x") == b"acker:{t@s}:rows:x"


def test_nothing_is_kept_where_tracking_is_off(url: str, raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(url), "off", ackers=0)
    assert StreamSpout(ledger, HOW).write(lines(10)) == ()
    assert [row["_acker"] for row in rows(ledger)] == [None] * 10
    assert settler.settle(ledger) == Stepped()
    assert not list(raw.scan_iter(b"*@s}*"))
