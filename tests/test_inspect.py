"""The read side: what it tells of trees, and that it never reads more than a bounded piece."""

import secrets
from collections.abc import Callable

import pytest
import redis

from acker import cursors, ids, inspect
from acker.config import TopologyConfig
from acker.errors import ValidationError
from acker.ids import Ids
from acker.inspect import PAGE_TREES, Page, Tree
from acker.ledger import Ledger, open_ledger
from acker.store import Store
from acker.submissions import NewSlab
from acker.totals import Totals, due, totals

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "reads", ackers=4, message_timeout=60.0)


def track(ledger: Ledger, count: int, name: str = "m", spout: str = "source") -> tuple[Ids, Ids]:
    anchors, values = ids.new_anchors(count), ids.new_ids(count)
    ledger.track(anchors, values, [f"{name}{index}" for index in range(count)], spout=spout)
    return anchors, values


def track_singles(ledger: Ledger, count: int, spout: str = "source") -> list[int]:
    slabs = [NewSlab(ids.new_anchors(1), ids.new_ids(1), [b"single%d" % number]) for number in range(count)]
    assert set(ledger.track_slabs(slabs, spout=spout)) == {"A"}
    return [int(slab.anchors[0]) for slab in slabs]


def tree(ledger: Ledger, anchor: int) -> Tree:
    found = ledger.run(inspect.tree(ledger.core, anchor))
    assert found is not None
    return found


def pages(read: Callable[[str | None], Page], most: int = 5_000) -> list[Page]:
    """All pages from the first on; fails where they do not end."""
    found = [read(None)]
    while found[-1].cursor is not None:
        assert len(found) < most
        found.append(read(found[-1].cursor))
    return found


def listed(ledger: Ledger, limit: int = PAGE_TREES, **filters: object) -> list[Tree]:
    read = pages(
        lambda cursor: ledger.run(inspect.trees(ledger.core, limit=limit, cursor=cursor, **filters))  # type: ignore[arg-type]
    )
    assert all(len(page.trees) <= limit for page in read)
    return [tree for page in read for tree in page.trees]


def read_totals(ledger: Ledger) -> Totals:
    return ledger.run(totals(ledger.core))


# One tree


def test_a_pending_tree_is_told_whole(ledger: Ledger) -> None:
    anchors, values = track(ledger, 5, spout="lines")
    found = tree(ledger, int(anchors[3]))
    assert (found.anchor, found.state, found.value) == (int(anchors[3]), "pending", int(values[3]))
    assert (found.spout, found.message_id, found.failure) == ("lines", b"m3", None)
    assert (found.slab, found.index, found.bucket) == (int(anchors[0]), 3, "nursery")
    assert found.shard == ids.shard_of(ids.slab_of(found.anchor), 4)
    assert read_totals(ledger).at == pytest.approx(found.tracked_at + found.age, abs=30)


def test_the_ack_value_is_signed_and_follows_updates(ledger: Ledger) -> None:
    anchors = ids.new_anchors(2)
    ledger.track(anchors, [-(1 << 63), (1 << 63) - 1], ["a", "b"], spout="s")
    ledger.update(anchors, [1, -1])
    assert tree(ledger, int(anchors[0])).value == -(1 << 63) + 1
    assert tree(ledger, int(anchors[1])).value == -(1 << 63)


def test_an_unknown_tree_is_none(ledger: Ledger) -> None:
    anchors, _ = track(ledger, 3)
    assert ledger.run(inspect.tree(ledger.core, int(ids.new_anchors(1)[0]))) is None
    assert ledger.run(inspect.tree(ledger.core, int(anchors[0]) + 3)) is None


def test_a_finished_tree_is_known_until_its_slab_is_confirmed(ledger: Ledger) -> None:
    anchors, values = track(ledger, 2)
    ledger.update(anchors[:1], values[:1])
    ledger.fail(anchors[1:])
    for anchor in anchors.tolist():
        found = tree(ledger, anchor)
        assert (found.state, found.value, found.bucket, found.time_left_earliest) == (
            "finished",
            0,
            None,
            None,
        )
        assert found.message_id is not None


def test_a_tree_that_waits_for_its_track_has_no_owner_yet(ledger: Ledger) -> None:
    anchors = ids.new_anchors(3)
    ledger.update(anchors[:1], [7])
    ledger.fail(anchors[2:], "too early")
    first, last = tree(ledger, int(anchors[0])), tree(ledger, int(anchors[2]))
    assert (first.state, first.value, first.failure) == ("waiting", 7, None)
    assert (first.spout, first.message_id, first.bucket) == (None, None, "nursery")
    assert (last.state, last.value, last.failure) == ("waiting", 0, "too early")
    assert ledger.run(inspect.tree(ledger.core, int(anchors[1]))) is None


def test_the_time_left_is_that_of_the_ticks_to_come(ledger: Ledger) -> None:
    anchor = int(track(ledger, 1)[0][0])
    for ticks, bucket in ((3, "nursery"), (2, "middle"), (1, "oldest")):
        found = tree(ledger, anchor)
        assert found.bucket == bucket
        assert found.time_left_earliest is not None
        assert found.time_left_latest is not None
        # The tick period is 30 s, and this shard's last rotation was a moment ago.
        assert (ticks - 1) * 30 < found.time_left_earliest <= ticks * 30
        assert found.time_left_latest == pytest.approx(found.time_left_earliest + ticks * inspect.TICK_LAG)
        ledger.run(ledger.core.rotate(force=True))
    found = tree(ledger, anchor)
    assert (found.bucket, found.time_left_earliest) == ("expiring", 0.0)
    ledger.tick()
    assert tree(ledger, anchor).state == "finished"


def test_no_latest_time_is_told_where_no_ticker_seems_to_run(ledger: Ledger, raw: "redis.Redis") -> None:
    anchor = int(track(ledger, 1)[0][0])
    found = tree(ledger, anchor)
    clock = ledger.core.shards[found.shard].clock
    rotated_at = int(raw.hget(clock, "rotated_at") or 0)
    raw.hset(clock, "rotated_at", rotated_at - 50_000)
    found = tree(ledger, anchor)
    assert (found.time_left_earliest, found.time_left_latest) == (60.0, None)


@pytest.mark.parametrize(
    ("late", "latest"),
    [(-10.0, 73.0), (1.0, 63.0), (1.5, 60.0 + 13.5 + 2), (15.0, 62.0), (15.001, None)],
)
def test_a_tick_that_is_late_is_waited_for_until_nobody_seems_to_tick(
    late: float, latest: float | None
) -> None:
    config = TopologyConfig("t", message_timeout=60.0)
    clock = inspect.Clock(1_000_000 + round(1000 * late), 4, 1_000_000 - 30_000, 4)
    assert clock.time_left(config, 4) == (60.0 + max(0.0, -late), latest)


def test_a_reset_gives_the_whole_time_again(ledger: Ledger) -> None:
    anchor = int(track(ledger, 1)[0][0])
    ledger.run(ledger.core.rotate(force=True))
    ledger.reset_timeout([anchor])
    found = tree(ledger, anchor)
    assert found.bucket == "nursery"
    assert found.time_left_earliest is not None
    assert found.time_left_earliest > 60


def test_message_ids_of_any_bytes_come_back(ledger: Ledger) -> None:
    wanted = [b"", b"\x00\xff", b"x" * 1024, "é".encode(), secrets.token_bytes(64)]
    anchors = ids.new_anchors(len(wanted))
    ledger.track(anchors, ids.new_ids(len(wanted)), wanted, spout="s")
    assert [tree(ledger, anchor).message_id for anchor in anchors.tolist()] == wanted


@pytest.mark.parametrize("anchor", [1.5, "7", None, True, 1 << 63])
def test_what_is_no_anchor_is_refused(ledger: Ledger, anchor: object) -> None:
    with pytest.raises(ValidationError):
        ledger.run(inspect.tree(ledger.core, anchor))  # type: ignore[arg-type]


# Pages


@pytest.mark.parametrize("limit", [1, 7, 100, 1000])
def test_pages_list_every_tree_in_flight_once(ledger: Ledger, limit: int) -> None:
    expected = set(track(ledger, 40)[0].tolist() + track_singles(ledger, 60))
    ledger.run(ledger.core.rotate(force=True))
    waiting, large = ids.new_anchors(5), track(ledger, 150)
    ledger.update(waiting, [1, 2, 3, 4, 5])
    expected |= set(waiting.tolist()) | set(large[0][50:].tolist())
    ledger.update(large[0][:50], large[1][:50])
    found = [tree.anchor for tree in listed(ledger, limit)]
    assert len(found) == len(expected)
    assert set(found) == expected


def test_a_slab_of_the_largest_size_is_paged_inside(ledger: Ledger) -> None:
    anchors, values = track(ledger, 4096)
    first = ledger.run(inspect.trees(ledger.core, limit=1000))
    assert [tree.anchor for tree in first.trees] == anchors[:1000].tolist()
    assert [tree.value for tree in first.trees] == values[:1000].tolist()
    assert [tree.message_id for tree in first.trees[-2:]] == [b"m998", b"m999"]
    assert [tree.anchor for tree in listed(ledger)] == anchors.tolist()


def test_many_slabs_are_paged_whatever_becomes_of_them_in_between(ledger: Ledger) -> None:
    anchors = track_singles(ledger, 3_000)
    found: list[int] = []
    cursor = None
    finished: set[int] = set()
    for number in range(10_000):
        page = ledger.run(inspect.trees(ledger.core, limit=100, cursor=cursor))
        found += [tree.anchor for tree in page.trees]
        cursor = page.cursor
        if cursor is None:
            break
        gone = [anchor for anchor in anchors if anchor not in finished][:10]
        ledger.fail(gone)
        finished.update(gone)
        track_singles(ledger, 10)
        if number in (3, 9, 15):
            ledger.run(ledger.core.rotate(force=True))
    assert cursor is None
    assert len(found) == len(set(found))
    assert set(anchors) - finished <= set(found)


def test_what_expires_next_comes_first(ledger: Ledger) -> None:
    for _ in range(3):
        track_singles(ledger, 20)
        ledger.run(ledger.core.rotate(force=True))
    track_singles(ledger, 20)
    for shard in range(4):
        order = [inspect.BUCKETS.index(tree.bucket) for tree in listed(ledger, 7, shard=shard) if tree.bucket]
        assert order == sorted(order, reverse=True)
        assert order[0] == 3


def test_filters_take_what_they_name(ledger: Ledger, raw: "redis.Redis") -> None:
    old = track(ledger, 10, spout="a")[0].tolist()
    clock = ledger.core.shards[tree(ledger, old[0]).shard]
    header = raw.hget(clock.slabs, ids.slab_of(old[0]))
    assert isinstance(header, bytes)
    an_hour_ago = (int.from_bytes(header[8:16], "little") - 3_600_000).to_bytes(8, "little")
    raw.hset(clock.slabs, ids.slab_of(old[0]), header[:8] + an_hour_ago + header[16:])
    ledger.run(ledger.core.rotate(force=True))
    new = track(ledger, 10, spout="b")[0].tolist()
    waiting = ids.new_anchors(1).tolist()
    ledger.update(waiting, [9])

    def anchors(**filters: object) -> set[int]:
        return {tree.anchor for tree in listed(ledger, 3, **filters)}

    assert anchors(bucket="middle") == set(old)
    assert anchors(bucket="nursery") == set(new + waiting)
    assert anchors(bucket="oldest") == anchors(bucket="expiring") == set()
    assert anchors(spout="a") == set(old)
    assert anchors(spout="b") == set(new)
    assert anchors(state="waiting") == set(waiting)
    assert anchors(state="pending") == set(old + new)
    assert anchors(older_than=3_600.0) == set(old)
    assert anchors(older_than=7_200.0) == set()
    assert anchors(spout="b", bucket="middle") == set()
    by_shard = [anchors(shard=shard) for shard in range(4)]
    assert set().union(*by_shard) == set(old + new + waiting)
    assert sum(map(len, by_shard)) == 21


def test_a_page_reads_a_bounded_piece_though_nothing_matches(ledger: Ledger, raw: "redis.Redis") -> None:
    for _ in range(12):
        track_singles(ledger, 2_000)
    raw.config_resetstat()
    page = ledger.run(inspect.trees(ledger.core, older_than=86_400.0))
    calls = {name: facts["calls"] for name, facts in raw.info("commandstats").items()}
    assert page.trees == ()
    assert page.cursor is not None
    assert len(page.cursor) < 100
    assert sum(calls.values()) < 2_000
    assert listed(ledger, older_than=86_400.0) == []


def test_cursors_of_large_pages_stay_short_enough_for_a_url(ledger: Ledger) -> None:
    for _ in range(5):
        track_singles(ledger, 1_000)
    read = pages(lambda cursor: ledger.run(inspect.trees(ledger.core, limit=100, cursor=cursor)))
    assert max(len(page.cursor or "") for page in read) < 4_000


@pytest.mark.parametrize(
    "filters",
    [
        {"bucket": "attic"},
        {"state": "finished"},
        {"spout": "nobody"},
        {"spout": "no name!"},
        {"shard": 4},
        {"shard": -1},
        {"older_than": -1.0},
        {"older_than": float("nan")},
        {"limit": 0},
        {"limit": 1001},
        {"limit": True},
    ],
    ids=str,
)
def test_filters_that_can_not_be_are_refused(ledger: Ledger, filters: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ledger.run(inspect.trees(ledger.core, **filters))  # type: ignore[arg-type]


def test_cursors_of_others_are_refused(ledger: Ledger) -> None:
    track(ledger, 30)
    cursor = ledger.run(inspect.trees(ledger.core, limit=10)).cursor
    assert cursor is not None
    for wrong in (
        "",
        "x",
        "é",
        cursor[:-1],
        cursor[1:],
        cursor[:9] + "A" + cursor[10:],
        cursor + "AAAA",
        "A" * 10**6,
    ):
        if wrong != cursor:
            with pytest.raises(ValidationError):
                ledger.run(inspect.trees(ledger.core, limit=10, cursor=wrong))
    with pytest.raises(ValidationError):
        ledger.run(inspect.trees(ledger.core, bucket="nursery", cursor=cursor))
    with pytest.raises(ValidationError):
        ledger.run(inspect.find(ledger.core, b"m1", cursor=cursor))


def test_a_cursor_made_by_hand_does_no_harm(ledger: Ledger) -> None:
    track(ledger, 3)
    query = ("reads", "trees", None, None, None, None, 0.0)
    slab = bytes([1, 2, 3, 4, 5, 6, 7, 0])
    forged = cursors.Position(shard=3, generation=10**15, scan=2**64 - 1, first=65_535, slabs=[slab])
    page = ledger.run(inspect.trees(ledger.core, cursor=cursors.encode(forged, query)))
    assert page == Page((), None)


def test_without_tracking_there_is_nothing_to_read(url: str) -> None:
    ledger = open_ledger(Store(url), "untracked", ackers=0)
    assert ledger.run(inspect.tree(ledger.core, 4096)) is None
    assert ledger.run(inspect.trees(ledger.core)) == Page((), None)
    assert ledger.run(inspect.find(ledger.core, b"x")) == Page((), None)
    assert read_totals(ledger) == Totals(None, ())
    assert ledger.run(due(ledger.core)) is None


# By message id


def found(ledger: Ledger, message_id: bytes | str, limit: int = 100) -> list[Tree]:
    read = pages(lambda cursor: ledger.run(inspect.find(ledger.core, message_id, limit=limit, cursor=cursor)))
    return [tree for page in read for tree in page.trees]


def test_trees_are_found_by_their_message_id(ledger: Ledger) -> None:
    anchors, values = track(ledger, 300, name="file.py:")
    [tree] = found(ledger, "file.py:123")
    assert (tree.anchor, tree.value) == (int(anchors[123]), int(values[123]))
    assert found(ledger, b"file.py:") == []
    assert found(ledger, b"ile.py:12") == []
    assert found(ledger, "file.py:300") == []


def test_all_trees_of_a_message_id_are_found_in_pages(ledger: Ledger) -> None:
    expected = set()
    for count in (1, 50, 1, 200):
        anchors = ids.new_anchors(count)
        message_ids = ["again" if index % 2 == 0 else "" for index in range(count)]
        ledger.track(anchors, ids.new_ids(count), message_ids, spout="s")
        expected |= set(anchors[::2].tolist())
    for limit in (1, 10, 1000):
        assert len(found(ledger, "again", limit)) == len(expected)
    assert {tree.anchor for tree in found(ledger, "again", 7)} == expected
    assert len(found(ledger, "", 1000)) == 125


def test_finished_trees_are_found_while_they_are_held(ledger: Ledger) -> None:
    anchors, values = track(ledger, 3)
    ledger.update(anchors, values)
    assert [tree.state for tree in found(ledger, "m1")] == ["finished"]


def test_ids_whose_bytes_look_like_one_another_are_told_apart(ledger: Ledger) -> None:
    # The second id ends with the first, and the lengths in front of them hold the same bytes too.
    message_ids = [b"a", b"ba", b"ab", b"aa", b"\x01\x00a", b"", b"a"]
    anchors = ids.new_anchors(len(message_ids))
    ledger.track(anchors, ids.new_ids(len(message_ids)), message_ids, spout="s")
    for wanted in set(message_ids):
        expected = [int(anchors[place]) for place, own in enumerate(message_ids) if own == wanted]
        assert [tree.anchor for tree in found(ledger, wanted)] == expected


def test_a_search_reads_a_bounded_piece_of_large_message_ids(ledger: Ledger, raw: "redis.Redis") -> None:
    for _ in range(6):
        anchors = ids.new_anchors(4096)
        ledger.track(anchors, ids.new_ids(4096), [secrets.token_bytes(512) + bytes(512)] * 4096, spout="s")
    raw.config_resetstat()
    page = ledger.run(inspect.find(ledger.core, b"nowhere"))
    assert page.cursor is not None
    assert raw.info("stats")["total_net_output_bytes"] < 20 << 20
    assert found(ledger, b"nowhere") == []


# Totals


def test_totals_add_up_with_the_counters(ledger: Ledger) -> None:
    anchors, values = track(ledger, 100)
    ledger.update(anchors[:10], values[:10])
    ledger.fail(anchors[10:15])
    ledger.run(ledger.core.rotate(force=True))
    track_singles(ledger, 20)
    ledger.update(ids.new_anchors(2), [1, 2])
    read = read_totals(ledger)
    assert read.buckets == {"nursery": 20, "middle": 85, "oldest": 0, "expiring": 0}
    assert (read.pending, read.held, read.waiting, read.backlog) == (105, 120, 1, 0)
    assert read.counters == ledger.counters()
    assert sum(bucket.slabs for shard in read.shards for bucket in shard.buckets) == 22
    assert 0 < read.high_water_use < 1


def test_totals_tell_what_is_set_aside_until_it_is_drained(ledger: Ledger) -> None:
    track(ledger, 10)
    for _ in range(3):
        ledger.run(ledger.core.rotate(force=True))
    read = read_totals(ledger)
    assert (read.buckets["expiring"], read.backlog) == (10, 1)
    ledger.tick()
    read = read_totals(ledger)
    assert (read.pending, read.backlog, read.held, read.oldest_age) == (0, 0, 10, None)


def test_ages_are_those_of_the_clock(ledger: Ledger, raw: "redis.Redis") -> None:
    anchor = int(track(ledger, 1)[0][0])
    shard = tree(ledger, anchor).shard
    clock = ledger.core.shards[shard].clock
    raw.hincrby(clock, "rotated_at", -10_000)
    found = read_totals(ledger).shards[shard]
    assert found.rotation_age == pytest.approx(10, abs=5)
    assert found.oldest_age == pytest.approx(0, abs=5)
    nursery, middle, oldest, expiring = found.buckets
    assert (nursery.youngest, nursery.oldest) == (0.0, found.rotation_age)
    assert middle.youngest == found.rotation_age
    assert oldest.youngest == pytest.approx(40, abs=5)
    assert expiring.oldest is None
    left = ledger.run(due(ledger.core))
    assert left is not None
    assert left <= 20


def test_a_topology_never_used_has_empty_totals(ledger: Ledger) -> None:
    read = read_totals(ledger)
    assert (len(read.shards), read.pending, read.rotation_age, read.oldest_age) == (4, 0, None, None)
    assert ledger.run(due(ledger.core)) == 0.0


def test_a_thousand_shards_can_be_read(url: str) -> None:
    ledger = open_ledger(Store(url), "wide", ackers=1024, message_timeout=60.0)
    anchors = track_singles(ledger, 50)
    assert len(read_totals(ledger).shards) == 1024
    assert {tree.anchor for tree in listed(ledger)} == set(anchors)
    assert len(found(ledger, b"single7")) == 1


def test_reads_change_nothing(ledger: Ledger, raw: "redis.Redis") -> None:
    anchors, _ = track(ledger, 20)
    ledger.run(ledger.core.rotate(force=True))
    before = {key: raw.dump(key) for key in raw.scan_iter()}
    tree(ledger, int(anchors[0]))
    listed(ledger, 3)
    found(ledger, "m3")
    read_totals(ledger)
    ledger.run(due(ledger.core))
    assert {key: raw.dump(key) for key in raw.scan_iter()} == before
