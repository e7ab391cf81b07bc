"""Buckets, clocks and counts that cannot be read: ticks and calls go on, and end nothing half done."""

from contextlib import suppress
from typing import Any

import pytest

from acker.errors import TrackRejected, UnreadableRecord
from acker.inspect.operate.removal import remove
from acker.inspect.topology.totals import totals
from acker.inspect.trees import failures, pages
from acker.ledger import ids
from acker.ledger.tick.ticker import Ticker
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees, opened
from tests.helpers.faults.unreadable import counter, expire, first, slab_of, states
from tests.helpers.models.ledger_state import pass_time, shard_key

pytestmark = [pytest.mark.cluster(slow=True, first=True), pytest.mark.timeout(120)]

PERIOD = 30_000
"""Milliseconds between two ticks, for a message timeout of 60 s."""


@pytest.mark.parametrize("name", [b"", b"abc", b"16 bytes of name", b"\xff" * 2000])
def test_what_is_no_name_of_a_slab_is_put_away_and_ends_no_tick(url: str, raw: Any, name: bytes) -> None:
    ledger = opened(url)
    good = Trees(3).track(ledger)
    raw.sadd(ledger.core.shards[0].bucket(0), name)
    expire(ledger)
    assert states(ledger, good) == {"expired": 3}
    assert counter(ledger, raw, "unreadable") == 1
    assert ledger.run(totals(ledger.core)).backlog == 0


def test_pages_pass_over_what_is_no_name_of_a_slab(url: str, raw: Any) -> None:
    ledger = opened(url)
    good = Trees(1).track(ledger)
    header = raw.hget(shard_key(ledger, 0, "slabs"), slab_of(good))
    for name in (b"", b"abc", b"16 bytes of name"):
        raw.hset(shard_key(ledger, 0, "slabs"), name, header)
        raw.sadd(ledger.core.shards[0].bucket(0), name)
    for page in (pages.trees(ledger.core), pages.find(ledger.core, good.message_ids[0])):
        assert [tree.anchor for tree in ledger.run(page).trees] == [first(good)]
    ledger.run(remove(ledger.config.name, force=True))


@pytest.mark.parametrize(
    "field", ["rotations", "rotated_at", "drained", "measured", "passed", "writers_at", "spouts"]
)
@pytest.mark.parametrize("value", ["", "soon", "1.5", "-7", "4000000000", "9" * 30])
def test_an_unreadable_clock_holds_up_no_other_shard(url: str, raw: Any, field: str, value: str) -> None:
    broken, good = (opened(url, name, ackers=2, message_timeout=60) for name in ("broken", "good"))
    one = Ticker(Store(url), ["broken", "good"])
    one.step()  # the clocks begin
    for ledger in (broken, good):
        pass_time(raw, ledger, PERIOD)
    raw.hset(broken.core.shards[0].clock, field, value)
    Ticker(Store(url), ["broken", "good"]).step()
    made = [raw.hget(ledger.core.shards[1].clock, "rotations") for ledger in (broken, good)]
    assert made == [b"1", b"1"]
    assert raw.hget(good.core.shards[0].clock, "rotations") == b"1"


@pytest.mark.parametrize(
    "spouts", [b"1,1/0:", b"1,1/0.s", b"1,1", b"1,1/0:s\xc7\xff", b"0,1/0:s", b"2,1/0:s"]
)
def test_unreadable_spouts_of_a_shard_end_a_call_unchanged(url: str, raw: Any, spouts: bytes) -> None:
    ledger = opened(url)
    trees = [Trees(5).track(ledger) for _ in range(2)]
    shard = ledger.core.shards[0]
    sound = raw.hget(shard.clock, "spouts")
    raw.hset(shard.clock, "spouts", spouts)
    before = {key: raw.dump(key) for key in raw.scan_iter()}
    for call in (trees[0].complete, lambda ledger: ledger.fail(trees[1].anchors), Trees(5).track, expire):
        with pytest.raises(UnreadableRecord, match="spouts of shard 0 of 'tested'"):
            call(ledger)
    assert {key: raw.dump(key) for key in raw.scan_iter()} == before
    raw.hset(shard.clock, "spouts", sound)
    trees[0].complete(ledger)
    expire(ledger)
    assert states(ledger, *trees) == {"acked": 5, "expired": 5}


@pytest.mark.parametrize("field", ["rotated_at", "drained", "measured", "passed", "writers_at"])
def test_what_a_clock_needs_not_to_know_it_finds_out_again(url: str, raw: Any, field: str) -> None:
    ledger = opened(url)
    trees = Trees(3).track(ledger)
    for _ in range(3):
        raw.hset(ledger.core.shards[0].clock, field, "nonsense")
        with suppress(UnreadableRecord):
            ledger.tick(force=True)
    assert states(ledger, trees) == {"expired": 3}


def test_a_clock_that_is_far_ahead_of_what_is_drained_holds_no_tick_up(url: str, raw: Any) -> None:
    ledger = opened(url)
    raw.hset(ledger.core.shards[0].clock, mapping={"rotations": 10**9, "rotated_at": 0, "drained": 0})
    ledger.tick()
    assert raw.hget(ledger.core.shards[0].clock, "rotations") == b"%d" % (10**9 + 1)


@pytest.mark.parametrize("name", ["acked", "failed", "late", "recent", "duplicates", "bucket:0"])
def test_a_count_that_is_unreadable_ends_no_call_half_done(url: str, raw: Any, name: str) -> None:
    ledger = opened(url)
    trees = Trees(5).track(ledger)
    raw.hset(shard_key(ledger, 0, "counters"), name, "many")
    for number in range(200):
        raw.hset(ledger.core.shards[0].latency, number, "many")
    update = ledger.core.update(trees.anchors[:1], trees.values[:1])
    fail = ledger.core.fail(trees.anchors[1:2], b"bad")
    for _ in range(3):  # however often they are sent
        ledger.send(update)
        ledger.send(fail)
        for call in update.calls + fail.calls:
            call.reply = None
    assert states(ledger, trees) == {"acked": 1, "failed": 1}


def test_a_shard_that_cannot_read_how_much_it_holds_takes_no_further_trees(url: str, raw: Any) -> None:
    ledger = opened(url)
    trees = Trees(5).track(ledger)
    raw.hset(shard_key(ledger, 0, "counters"), "outstanding", "many")
    with pytest.raises(TrackRejected):
        Trees(5).track(ledger)
    with pytest.raises(TrackRejected):
        ledger.track(ids.new_anchors(300), ids.new_ids(300), [b"x" * 1024] * 300, spout="s")
    trees.complete(ledger)
    assert states(ledger, trees) == {"acked": 5}


def test_a_count_that_was_set_back_keeps_no_tree_from_failing(url: str, raw: Any) -> None:
    ledger = opened(url)
    trees = Trees(5).track(ledger)
    ledger.fail(trees.anchors[:2], "before")
    raw.hdel(shard_key(ledger, 0, "counters"), "recent")
    ledger.fail(trees.anchors[2:3], "after")
    expire(ledger)
    assert states(ledger, trees) == {"failed": 3, "expired": 2}
    kept = ledger.run(failures.page(ledger.core, limit=10)).trees
    assert sorted((tree.anchor, tree.status) for tree in kept) == [
        (int(trees.anchors[2]), "failed"),
        (int(trees.anchors[3]), "expired"),
        (int(trees.anchors[4]), "expired"),
    ]
