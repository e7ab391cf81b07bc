"""Messages that wait for their track, and slabs whose trees end at different times: bounds and costs."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
import redis

from acker.inspect.trees import pages
from acker.ledger import ids
from acker.ledger.calls.calls import Failed, Updated
from acker.ledger.client import Ledger
from acker.ledger.trees import trees as ledger_trees
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.ledger_state import WAITING_SLAB, shard_key

pytestmark = pytest.mark.cluster(slow=True, first=True)

FURTHER = "failed before its track, for a reason that was not kept: more waited than are kept"


def taken(raw: "redis.Redis") -> int:
    """Bytes of the store."""
    return int(raw.info("memory")["used_memory"])


def waiting_bytes(ledger: Ledger, raw: "redis.Redis") -> int:
    """The bytes of waiting messages, as the shard counts them."""
    return int(raw.hget(shard_key(ledger, 0, "counters").decode(), "waiting_bytes") or 0)


@pytest.mark.parametrize("message", ["update", "fail"])
def test_an_early_message_takes_few_bytes(url: str, raw: "redis.Redis", message: str) -> None:
    ledger = opened(url)
    last = np.array([ids.anchor_at(ids.slab_of(int(ids.new_anchors(2)[0])), 4095) for _ in range(2000)])
    ledger.update(ids.new_anchors(3)[1:2], ids.new_ids(1))
    before = taken(raw)
    for part in np.array_split(last, 50):
        if message == "update":
            ledger.update(part, ids.new_ids(len(part)))
        else:
            ledger.fail(part, "nobody tracks this")
    assert taken(raw) - before < 1000 * len(last)
    assert waiting_bytes(ledger, raw) >= (taken(raw) - before) // 2


@pytest.mark.parametrize(
    "steps",
    [
        [[4095]],
        [[4095], range(3)],
        [range(100), [4000], [50], range(60, 200)],
        [[4000], [3999, 4001, 17], range(3990, 4010)],
        [[n] for n in range(4090, 3900, -3)],
        [range(0, 4096, 64), range(1, 4096, 64), [4095]],
        [[4095], range(4096)],
    ],
)
def test_each_waiting_word_counts(ledger: Ledger, raw: "redis.Redis", steps: list[list[int]]) -> None:
    """In a vector, beyond its end, and when many pairs become a vector; also what comes several times."""
    trees = Trees(4096)
    values = np.zeros(4096, dtype=np.int64)
    for step in steps:
        chosen = np.array(list(step))
        for _ in range(3):
            emitted = ids.new_ids(len(chosen))
            values[chosen] ^= emitted
            assert ledger.update(trees.anchors[chosen], emitted) == Updated()
    touched = np.flatnonzero(values)
    for index in (int(touched[0]), int(touched[-1])):
        tree = ledger.run(ledger_trees.tree(ledger.core, int(trees.anchors[index])))
        assert tree is not None
        assert (tree.state, tree.value) == ("waiting", int(values[index]))
    page = ledger.run(pages.trees(ledger.core, limit=1000)).trees
    assert {tree.anchor: tree.value for tree in page} == {
        int(trees.anchors[index]): int(values[index]) for index in touched[:1000]
    }
    trees.values[touched] = values[touched]
    trees.track(ledger)
    assert reported(ledger, trees) == Counter((int(trees.anchors[index]), "acked", "") for index in touched)
    assert waiting_bytes(ledger, raw) == 0
    trees.complete(ledger, *np.setdiff1d(np.arange(4096), touched).tolist())
    assert confirm_all(ledger) == 4096
    assert_settled(raw)


def test_a_waiting_word_that_becomes_zero_is_as_none(ledger: Ledger, raw: "redis.Redis") -> None:
    trees = Trees(200)
    before = None
    for _ in range(3):
        delta = ids.new_ids(1)
        for _ in range(2):
            ledger.update(trees.anchors[150:151], delta)
        before = before or waiting_bytes(ledger, raw)
        assert waiting_bytes(ledger, raw) == before == WAITING_SLAB
    assert ledger.tick(force=True).orphaned == 0
    ledger.tick(force=True)
    assert ledger.tick(force=True).orphaned == 0
    counted(ledger)
    assert_settled(raw)


def test_what_waits_is_given_back_when_it_is_dropped(ledger: Ledger, raw: "redis.Redis") -> None:
    several = [Trees(1), Trees(300), Trees(4096), Trees(4096)]
    for trees in several:
        trees.complete(ledger, trees.count - 1)
        ledger.fail(trees.anchors[trees.count // 2 : trees.count // 2 + 1], "early")
    several[2].complete(ledger)
    assert waiting_bytes(ledger, raw) > 4096 * 8
    assert sum(ledger.tick(force=True).orphaned for _ in range(3)) == 1 + 2 + 4095 + 2
    assert waiting_bytes(ledger, raw) == 0
    assert_settled(raw)


def test_messages_over_the_waiting_bytes_are_orphaned_alone(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url, waiting_bytes=WAITING_SLAB + 60)
    trees, other = Trees(4096), Trees(4096)
    some = trees.anchors[1000:1006]
    assert ledger.update(some, ids.new_ids(6)) == Updated()
    assert ledger.update(other.anchors[7:8], ids.new_ids(1)) == Updated(orphaned=1)
    assert ledger.update(some, ids.new_ids(6)) == Updated()
    assert ledger.update(trees.anchors[1005:1008], ids.new_ids(3)) == Updated(orphaned=2)
    assert ledger.update(trees.anchors[:500], ids.new_ids(500)) == Updated(orphaned=500)
    assert ledger.fail(trees.anchors[1005:1007], "early") == Failed(orphaned=2)
    assert ledger.fail(other.anchors[:1], "early") == Failed(orphaned=1)
    assert waiting_bytes(ledger, raw) == WAITING_SLAB + 60
    counted(ledger, orphaned=506)


def test_a_slab_keeps_few_early_reasons_and_all_trees(ledger: Ledger, raw: "redis.Redis") -> None:
    trees = Trees(4096)
    for index in range(100):
        assert ledger.fail(trees.anchors[index * 40 : index * 40 + 2], f"{index} ".ljust(1024)) == Failed()
    # Not what the server takes: a script that it loads meanwhile is as large, and a cluster has several.
    assert sum(raw.memory_usage(key, samples=0) or 0 for key in raw.scan_iter()) < 100_000
    assert ledger.fail(trees.anchors, "0 ".ljust(1024)) == Failed()
    trees.track(ledger)
    reasons = {anchor: reason for anchor, _, reason in reported(ledger, trees)}
    assert len(reasons) == 4096
    for index in range(100):
        found = reasons[int(trees.anchors[index * 40 + 1])]
        assert found == (f"{index} ".ljust(1024) if index < 16 else FURTHER)
    assert reasons[int(trees.anchors[-1])] == "0 ".ljust(1024)


def finish(ledger: Ledger, trees: Trees, share: float) -> npt.NDArray[np.bool_]:
    """Acks so many of a slab's trees, picked at random, by one update; returns which are left."""
    done = np.random.default_rng(trees.count).random(trees.count) < share
    ledger.update(trees.anchors[done], trees.values[done])
    return ~done


def test_nothing_is_left_of_a_slab_whose_trees_finished_in_parts(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)
    slabs = [Trees(64).track(ledger) for _ in range(4)]
    left = [finish(ledger, trees, 0.5) for trees in slabs]
    masks = shard_key(ledger, 0, "finished")
    assert raw.hlen(masks) == 4
    ledger.update(slabs[0].anchors[left[0]], slabs[0].values[left[0]])
    ledger.fail(slabs[1].anchors[left[1]], "bad")
    for anchor, value in zip(slabs[2].anchors[left[2]], slabs[2].values[left[2]], strict=True):
        ledger.update([anchor], [value])
    assert raw.hlen(masks) == 1
    for _ in range(3):
        ledger.tick(force=True)
    assert raw.hlen(masks) == 0
    assert confirm_all(ledger) == 256
    assert_settled(raw)


@pytest.mark.one_server
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_an_update_of_a_half_finished_slab_costs_little(url: str, raw: "redis.Redis", share: float) -> None:
    ledger = opened(url)
    fresh, partly = Trees(1024).track(ledger), Trees(1024).track(ledger)
    left = {id(fresh): np.ones(1024, bool), id(partly): finish(ledger, partly, share)}

    def cost(trees: Trees) -> int:
        anchors = trees.anchors[left[id(trees)]]
        before = raw.info("commandstats")["cmdstat_evalsha"]["usec"]
        ledger.update(anchors, ids.new_ids(len(anchors)))
        return int(raw.info("commandstats")["cmdstat_evalsha"]["usec"] - before)

    # In turn, and the least: these are microseconds of a clock, and others have the processor in between.
    fresh_cost, partly_cost = zip(*((cost(fresh), cost(partly)) for _ in range(80)), strict=True)
    assert min(partly_cost) < 2 * min(fresh_cost)
