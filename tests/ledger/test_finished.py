"""Slabs whose trees finish at different times: what is late, what completes, and what an update costs."""

import random

import numpy as np
import numpy.typing as npt
import pytest
import redis

from acker.ledger import ids
from acker.ledger.client import Ledger
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.ledger_state import shard_key

pytestmark = pytest.mark.cluster(slow=True)


def finish(ledger: Ledger, trees: Trees, share: float) -> npt.NDArray[np.bool_]:
    """Acks so many of a slab's trees, picked at random, by one update; returns which are left."""
    done = np.random.default_rng(trees.count).random(trees.count) < share
    ledger.update(trees.anchors[done], trees.values[done])
    return ~done


@pytest.mark.parametrize("count", [2, 70, 600])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_tree_has_one_outcome_whatever_comes_late(url: str, count: int, seed: int) -> None:
    chance = random.Random(seed * count)
    ledger = opened(url)
    trees = Trees(count).track(ledger)
    values = dict(zip(trees.anchors.tolist(), trees.values.tolist(), strict=True))
    expected: dict[int, tuple[str, str]] = {}
    late = 0
    while values:
        touched = chance.sample(trees.anchors.tolist(), chance.choice([1, 2, count // 2 or 1, count]))
        kind = chance.choice(["emit", "emit", "ack", "fail", "reset"])
        if kind == "reset":
            ledger.tick(force=True)
            assert ledger.reset_timeout(trees.anchors) == 1
        elif kind == "fail":
            touched = touched[:3]
            sent = ledger.fail(touched, "bad")
            gone = [anchor for anchor in touched if anchor in values]
            assert (sent.failed, sent.late) == (len(gone), len(touched) - len(gone))
            for anchor in gone:
                expected[anchor] = "failed", "bad"
                del values[anchor]
            late += sent.late
        else:
            deltas = [ids.new_id() for _ in touched]
            for place, anchor in enumerate(touched):
                if anchor not in values:
                    late += 1
                elif kind == "ack" and chance.random() < 0.4:
                    deltas[place] = values.pop(anchor)
                    expected[anchor] = "acked", ""
                else:
                    values[anchor] ^= deltas[place]
            before = ledger.counters()["late"]
            ledger.update(touched, deltas)
            assert ledger.counters()["late"] == late >= before
    assert reported(ledger, trees) == {(anchor, *outcome): 1 for anchor, outcome in expected.items()}
    failed = sum(status == "failed" for status, _ in expected.values())
    sums = {"tracked": count, "acked": count - failed, "failed": failed, "late": late}
    counted(ledger, **{name: number for name, number in sums.items() if number})
    confirm_all(ledger)


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
def test_an_update_of_a_slab_some_of_whose_trees_are_finished_costs_little_more(
    url: str, raw: "redis.Redis", share: float
) -> None:
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
