"""Message ids of a KiB each for 4,096 trees: no call holds the server, and each tree has its own."""

from collections import Counter
from collections.abc import Callable

import pytest
import redis

from acker.embedded import EmbeddedServer
from acker.errors import TrackConflict, TrackRejected
from acker.inspect.trees import failures, pages
from acker.ledger import ids
from acker.ledger.calls.calls import Failed
from acker.ledger.client import Ledger
from acker.ledger.slabs import slabs
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.trees import trees as ledger_trees
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.ledger_state import shard_key
from tests.helpers.servers import processor

pytestmark = pytest.mark.cluster(slow=True)

MOST = 12
"""So many times the server's time for a track of short message ids, some 0.6 ms, a call may take at most."""


class Large(Trees):
    """Trees whose message ids are as long as they may be."""

    @property
    def message_ids(self) -> list[bytes]:
        return [b"%04d" % index + b"m" * 1020 for index in range(self.count)]


@pytest.mark.one_server
def test_no_call_of_a_slab_with_large_message_ids_holds_the_server(
    url: str, raw: "redis.Redis", server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(url)
    took, best = processor.note_requests(monkeypatch, server.pid), dict[str, float]()

    def note(name: str, work: Callable[[], object]) -> None:
        took.clear()
        work()
        best[name] = min(best.get(name, 1e9), max(took))

    for _ in range(3):
        acked, gone, small = Large(4096), Large(4096), Trees(4096)
        note("usual", lambda: small.track(ledger))  # noqa: B023
        small.complete(ledger)
        note("track", lambda: [one.track(ledger) for one in (acked, gone)])  # noqa: B023
        note("track again", lambda: acked.track(ledger))  # noqa: B023
        named = [ids.slab_of(int(one.anchors[0])) for one in (acked, gone)]
        note("ids", lambda: ledger.message_ids(named))  # noqa: B023
        note("tree", lambda: ledger.run(ledger_trees.tree(ledger.core, int(acked.anchors[4000]))))  # noqa: B023
        note("page", lambda: ledger.run(pages.trees(ledger.core, limit=1000)))
        note("find", lambda: ledger.run(pages.find(ledger.core, acked.message_ids[4000])))  # noqa: B023
        note("update", lambda: acked.complete(ledger))  # noqa: B023
        note("fail", lambda: ledger.fail(gone.anchors[::20], "bad"))  # noqa: B023
        note("drain", lambda: [ledger.tick(force=True) for _ in range(3)])
        note("recent", lambda: ledger.run(failures.page(ledger.core, limit=100)))
        note("confirm", lambda: confirm_all(ledger))
    usual = best.pop("usual")
    assert {name: time for name, time in best.items() if time >= MOST * usual} == {}, usual
    assert_settled(raw)


def test_no_field_is_large_and_each_tree_has_its_id(ledger: Ledger, raw: "redis.Redis") -> None:
    trees, small = Large(700), Trees(4096).track(ledger)
    trees.track(ledger)
    key = ledger.core.shards[0].message_ids
    sizes = [raw.hstrlen(key, field) for field in raw.hkeys(key)]
    assert max(sizes) <= slabs.WHOLE_BYTES
    assert len(sizes) == 2 + 3
    expected = dict(zip(trees.anchors.tolist(), trees.message_ids, strict=True))
    slab = ids.slab_of(int(trees.anchors[0]))
    assert ledger.message_ids([slab]) == {slab: trees.message_ids}
    for index in (0, 255, 256, 699):
        tree = ledger.run(ledger_trees.tree(ledger.core, int(trees.anchors[index])))
        assert tree is not None
        assert tree.message_id == trees.message_ids[index]
    page = ledger.run(pages.trees(ledger.core, limit=1000))
    paged = {tree.anchor: tree.message_id for tree in page.trees}
    while page.cursor is not None:
        page = ledger.run(pages.trees(ledger.core, limit=1000, cursor=page.cursor))
        paged |= {tree.anchor: tree.message_id for tree in page.trees}
    assert paged == expected | dict(zip(small.anchors.tolist(), small.message_ids, strict=True))
    found = ledger.run(pages.find(ledger.core, trees.message_ids[600])).trees
    assert [tree.anchor for tree in found] == [int(trees.anchors[600])]
    some = trees.anchors[[3, 255, 256]]
    assert ledger.fail(some, "bad") == Failed(failed=3)
    kept = ledger.run(failures.page(ledger.core, limit=100)).trees
    assert {tree.anchor: tree.message_id for tree in kept} == {
        anchor: expected[anchor] for anchor in some.tolist()
    }
    for _ in range(3):
        ledger.tick(force=True)
    known = ledger.run(failures.page(ledger.core, limit=1000)).trees
    named = {tree.anchor: tree.message_id for tree in known if tree.anchor in expected and tree.message_id}
    assert len(named) >= 200
    assert named.items() <= expected.items()
    assert confirm_all(ledger) == 4796
    assert_settled(raw)


def test_a_track_in_pieces_counts_once_and_may_conflict(ledger: Ledger, raw: "redis.Redis") -> None:
    trees = Large(600)
    trees.complete(ledger, 599)
    submission = ledger.core.track([NewSlab(trees.anchors, trees.values, trees.message_ids)], "s")
    assert [call.turn for call in submission.calls] == [0, 0, 0, 1]
    for _ in range(2):
        assert ledger.send(submission) == ["A"]
        for call in submission.calls:
            call.reply = None
    trees.track(ledger)
    others = trees.message_ids
    others[300] = b"x" * 1024
    with pytest.raises(TrackConflict):
        ledger.track(trees.anchors, trees.values, others, spout="s")
    with pytest.raises(TrackConflict):
        ledger.track(trees.anchors, trees.values, [b"m"] * 600, spout="s")
    slab = ids.slab_of(int(trees.anchors[0]))
    assert ledger.message_ids([slab]) == {slab: trees.message_ids}
    trees.complete(ledger, *range(599))
    assert reported(ledger, trees) == Counter((int(anchor), "acked", "") for anchor in trees.anchors)
    assert confirm_all(ledger) == 600
    assert_settled(raw)


@pytest.mark.parametrize("stopped", [1, 2, 3])
def test_pieces_without_a_track_go_with_ticks(ledger: Ledger, raw: "redis.Redis", stopped: int) -> None:
    trees = Large(600)
    submission = ledger.core.track([NewSlab(trees.anchors, trees.values, trees.message_ids)], "s")
    ledger.register_spout("s")
    last = submission.calls[3]
    submission.calls[stopped:] = []
    ledger.submit(submission.calls)
    for _ in range(3):
        ledger.tick(force=True)
    assert int(raw.hget(shard_key(ledger, 0, "counters").decode(), "waiting_bytes") or 0) == 0
    assert_settled(raw)
    ledger.submit([last])  # a driver that was stopped for so long goes on
    assert last.reply == b"W"
    counted(ledger, rejected=600)
    assert trees.track(ledger) is trees
    trees.complete(ledger)
    assert confirm_all(ledger) == 600
    assert_settled(raw)


def test_pieces_are_rejected_over_the_mark_and_the_bytes(url: str, raw: "redis.Redis") -> None:
    low = opened(url, "low", high_water_mark=500)
    with pytest.raises(TrackRejected, match="high-water mark of 500 trees"):
        Large(600).track(low)
    assert raw.hlen(low.core.shards[0].message_ids) == 0
    little = opened(url, "little", waiting_bytes=300_000)
    with pytest.raises(TrackRejected, match=r"within waiting_bytes \(300,000 bytes a shard\)"):
        Large(600).track(little)
    counted(little, rejected=600)
    for _ in range(3):
        little.tick(force=True)
    assert_settled(raw)


def test_a_piece_that_is_gone_keeps_no_outcome_back(ledger: Ledger, raw: "redis.Redis") -> None:
    trees = Large(600).track(ledger)
    slab = ids.slab_of(int(trees.anchors[0]))
    raw.hdel(ledger.core.shards[0].message_ids.decode(), slab + b"\x01")
    trees.complete(ledger)
    assert ledger.message_ids([slab]) == {}
    assert confirm_all(ledger) == 600
    assert_settled(raw)
