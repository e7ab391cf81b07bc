"""Pages of trees: each tree once, by filters and message ids, and a bounded piece at a time."""

import itertools
import secrets
from typing import Any

import pytest
import redis

from acker.errors import ValidationError
from acker.inspect.topology.totals import Totals
from acker.inspect.trees import pages as inspect
from acker.inspect.trees.pages import TreesPage
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.tick import tick
from acker.ledger.tick.keeper import due
from acker.ledger.trees import cursors, trees
from acker.ledger.trees.buckets import BUCKETS
from acker.store.client import Store
from tests.helpers.builders.reading import found, listed, pages, read_totals, track, track_singles, tree

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "reads", ackers=4, message_timeout=60.0)


@pytest.mark.parametrize("limit", [1, 7, 100, 1000])
def test_pages_list_every_tree_in_flight_once(ledger: Ledger, limit: int) -> None:
    expected = set(track(ledger, 40)[0].tolist() + track_singles(ledger, 60))
    ledger.run(tick.rotate(ledger.core, force=True))
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
            ledger.run(tick.rotate(ledger.core, force=True))
    assert cursor is None
    assert len(found) == len(set(found))
    assert set(anchors) - finished <= set(found)


def test_trees_that_are_reset_while_a_page_is_read_come_once(ledger: Ledger) -> None:
    anchors = track_singles(ledger, 120)
    ledger.run(tick.rotate(ledger.core, force=True))
    _, exchanges = read_page(ledger, -1, anchors)
    for number in range(0, exchanges, 4):
        page, _ = read_page(ledger, number, anchors)
        assert page.cursor is None
        assert sorted(tree.anchor for tree in page.trees) == sorted(anchors), number
        ledger.run(tick.rotate(ledger.core, force=True))


def read_page(ledger: Ledger, number: int, anchors: list[int]) -> tuple[TreesPage, int]:
    """A page whose trees are reset after an exchange of that number, and the number of exchanges."""
    reading = inspect.trees(ledger.core, limit=1000)
    requests = next(reading)
    for exchange in itertools.count():
        replies = ledger.store.send(requests)
        if exchange == number:
            ledger.reset_timeout(anchors)  # a slab that was read is in the nursery, and read again
        try:
            requests = reading.send(replies)
        except StopIteration as end:
            return end.value, exchange + 1
    raise AssertionError


@pytest.mark.parametrize("filters", [{}, {"shard": 0}, {"state": "pending"}], ids=str)
def test_trees_that_are_reset_between_two_pages_come_once(ledger: Ledger, filters: dict[str, Any]) -> None:
    anchors = track_singles(ledger, 300) + track(ledger, 150)[0].tolist()
    ledger.run(tick.rotate(ledger.core, force=True))
    expected = [tree.anchor for tree in listed(ledger, **filters)]

    def read(cursor: str | None) -> TreesPage:
        page = ledger.run(inspect.trees(ledger.core, limit=40, cursor=cursor, **filters))
        ledger.reset_timeout(anchors[:: 1 if cursor is None else 3])
        ledger.run(tick.rotate(ledger.core, force=True))
        return page

    found = [tree.anchor for page in pages(read) for tree in page.trees]
    assert sorted(found) == sorted(expected)


def test_what_expires_next_comes_first(ledger: Ledger) -> None:
    for _ in range(3):
        track_singles(ledger, 60)
        ledger.run(tick.rotate(ledger.core, force=True))
    track_singles(ledger, 60)
    assert len({tree.shard for tree in listed(ledger)}) == 4
    for shard in (None, 0, 1, 2, 3):  # over all shards, too
        order = [BUCKETS.index(tree.bucket) for tree in listed(ledger, 7, shard=shard) if tree.bucket]
        assert order == sorted(order, reverse=True)
        assert order[0] == 3


def test_filters_take_what_they_name(ledger: Ledger, raw: "redis.Redis") -> None:
    old = track(ledger, 10, spout="a")[0].tolist()
    clock = ledger.core.shards[tree(ledger, old[0]).shard]
    header = raw.hget(clock.slabs, ids.slab_of(old[0]))
    assert isinstance(header, bytes)
    an_hour_ago = (int.from_bytes(header[11:19], "little") - 3_600_000).to_bytes(8, "little")
    raw.hset(clock.slabs, ids.slab_of(old[0]), header[:11] + an_hour_ago + header[19:])
    ledger.run(tick.rotate(ledger.core, force=True))
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
    assert max(len(page.cursor or "") for page in read) < 7_500  # proxies take lines of 8 KiB


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
def test_filters_that_cannot_be_are_refused(ledger: Ledger, filters: dict[str, object]) -> None:
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
    assert page == TreesPage((), None)
    for clocks in ([(10**15, 255)] * 4, [(-1, 0)] * 4):
        forged = cursors.Position(shard=3, generation=10**15, turn=2, clocks=clocks)
        ledger.run(inspect.trees(ledger.core, cursor=cursors.encode(forged, query)))
    for shards in (3, 5):
        forged = cursors.Position(turn=1, clocks=[(1, 0)] * shards)
        with pytest.raises(ValidationError):
            ledger.run(inspect.trees(ledger.core, cursor=cursors.encode(forged, query)))


def test_without_tracking_there_is_nothing_to_read(url: str) -> None:
    ledger = open_ledger(Store(url), "untracked", ackers=0)
    assert ledger.run(trees.tree(ledger.core, 4096)) is None
    assert ledger.run(inspect.trees(ledger.core)) == TreesPage((), None)
    assert ledger.run(inspect.find(ledger.core, b"x")) == TreesPage((), None)
    assert read_totals(ledger) == Totals(None, ())
    assert ledger.run(due(ledger.core)) is None


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


def test_ids_whose_bytes_look_like_one_another_are_reported_apart(ledger: Ledger) -> None:
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
