"""Records that a newer version or a hand has left: a typed error, a quarantine, and ticks that go on."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from acker import ids, inspect
from acker.errors import UnreadableRecord
from acker.ledger import Ledger
from acker.totals import totals
from tests.ledger_state import shard_key
from tests.ledgers import Trees, confirm_all, counted, opened, told

pytestmark = pytest.mark.cluster(slow=True)

BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "newer": lambda header: b"\x03" + header[1:],
    "short": lambda header: header[:5],
    "empty": lambda header: b"",
    "longer": lambda header: header + b"more",
}


def slab_of(trees: Trees) -> bytes:
    return ids.slab_of(int(trees.anchors[0]))


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


def break_header(ledger: Ledger, raw: Any, trees: Trees, how: str) -> bytes:
    key = shard_key(ledger, 0, "slabs")
    broken = BROKEN[how](raw.hget(key, slab_of(trees)))
    raw.hset(key, slab_of(trees), broken)
    return broken


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("count", [1, 5])
def test_a_slab_that_is_unreadable_does_not_keep_the_others_from_expiring(
    url: str, raw: "redis.Redis", how: str, count: int
) -> None:
    ledger = opened(url, high_water_mark=2 * count)
    bad, good = Trees(count).track(ledger), Trees(count).track(ledger)
    broken = break_header(ledger, raw, bad, how)
    expire(ledger)
    assert {status for _, status, _ in told(ledger, good)} == {"expired"}
    assert ledger.run(ledger.core.quarantined()) == {slab_of(bad): broken}
    assert raw.hget(shard_key(ledger, 0, "counters"), "unreadable") == b"1"
    counted(ledger, tracked=2 * count, expired=count)
    expire(ledger)
    # Nothing of it is left that could be taken for a tree, or that takes room from others.
    assert confirm_all(ledger) == count
    assert ledger.run(inspect.tree(ledger.core, int(bad.anchors[0]))) is None
    Trees(2 * count).track(ledger)
    assert raw.hlen(shard_key(ledger, 0, "slabs")) == 1


def test_a_vector_or_a_failure_that_is_unreadable_is_put_away_too(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)
    cut, early, good = Trees(3).track(ledger), Trees(2), Trees(3).track(ledger)
    ledger.fail(early.anchors[:1], "early")
    raw.append(ledger.core.shards[0].vector(slab_of(cut)), b"odd")
    raw.hset(shard_key(ledger, 0, "failures"), slab_of(early), b"\x00\x00\xff")
    expire(ledger)
    assert len(told(ledger, good)) == 3
    assert set(ledger.run(ledger.core.quarantined())) == {slab_of(cut), slab_of(early)}
    assert int(raw.hget(shard_key(ledger, 0, "counters"), "waiting")) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["newer", "short"])
def test_who_calls_for_an_unreadable_slab_gets_a_typed_error(url: str, raw: "redis.Redis", how: str) -> None:
    ledger = opened(url)
    trees = Trees(3).track(ledger)
    break_header(ledger, raw, trees, how)
    for call in (
        lambda: ledger.fail(trees.anchors[:1], "bad"),
        lambda: ledger.reset_timeout(trees.anchors[:1]),
        lambda: trees.track(ledger),
    ):
        with pytest.raises(UnreadableRecord, match="UNREADABLE"):
            call()
    with pytest.raises(UnreadableRecord):
        ledger.run(inspect.tree(ledger.core, int(trees.anchors[0])))
    assert len(ledger.run(inspect.trees(ledger.core)).trees) == 0
    assert ledger.run(totals(ledger.core)).oldest_age is None
    Trees(2).track(ledger).complete(ledger)
