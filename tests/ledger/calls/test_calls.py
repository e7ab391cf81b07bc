"""Calls of the ledger, taken or refused: empty, large and wrong ones, and tracks over the mark."""

from collections import Counter

import numpy as np
import pytest
import redis

from acker.errors import TrackRejected, ValidationError
from acker.ledger import ids
from acker.ledger.calls.calls import Failed, Updated
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader, confirm
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.models.leaks import assert_settled

pytestmark = pytest.mark.cluster


def test_the_high_water_mark_counts_trees_in_flight_and_outcomes_not_confirmed(url: str) -> None:
    ledger = opened(url, high_water_mark=10)
    first = Trees(6).track(ledger)
    Trees(4).track(ledger)
    late = Trees(1)
    with pytest.raises(TrackRejected, match="high-water mark of 10"):
        late.track(ledger)
    first.complete(ledger)
    with pytest.raises(TrackRejected):
        late.track(ledger)
    assert confirm_all(ledger) == 6
    late.track(ledger)
    with pytest.raises(TrackRejected):
        Trees(6).track(ledger)
    Trees(5).track(ledger)
    counted(ledger, tracked=16, acked=6, rejected=8)


def test_slabs_of_one_call_are_rejected_from_where_the_limit_is_reached(url: str) -> None:
    ledger = opened(url, high_water_mark=10)
    slabs = [Trees(count) for count in (4, 4, 4, 2, 1)]
    letters = ledger.track_slabs([NewSlab(t.anchors, t.values, t.message_ids) for t in slabs], spout="s")
    assert letters == ["A", "A", "R", "A", "R"]
    counted(ledger, tracked=10, rejected=5)


def test_a_slab_named_twice_in_one_call_is_an_error_and_nothing_is_tracked(ledger: Ledger) -> None:
    trees = Trees(2)
    slab = NewSlab(trees.anchors, trees.values, trees.message_ids)
    with pytest.raises(ValidationError, match="twice"):
        ledger.track_slabs([slab, slab], spout="s")
    counted(ledger)


def test_anchors_that_are_not_one_slab_in_order_are_an_error(ledger: Ledger) -> None:
    anchors, values = ids.new_anchors(4), ids.new_ids(4)
    names = [b"m"] * 4
    wrong = [
        anchors[1:],
        anchors[::-1],
        anchors[[0, 1, 3]],
        np.arange(-4, 0),  # of trees tracked alone
        np.arange(ids.LOWEST, ids.LOWEST + 4),
        np.arange(-2, 2),
        np.concatenate([anchors[:2], ids.new_anchors(2)]),
    ]
    for given in wrong:
        with pytest.raises(ValidationError, match="anchors"):
            ledger.track(given, values[: len(given)], names[: len(given)], spout="s")
    for given, ids_given in ((values[:3], names), (values, names[:3])):
        with pytest.raises(ValidationError, match="one value and one message id"):
            ledger.track(anchors, given, ids_given, spout="s")
    with pytest.raises(ValidationError, match="1 to 4096"):
        ledger.track([], [], [], spout="s")
    with pytest.raises(ValidationError, match="at most 1024 bytes"):
        ledger.track(anchors[:1], values[:1], [b"m" * 1025], spout="s")
    with pytest.raises(ValidationError, match="spout"):
        ledger.track(anchors, values, names, spout="no spaces")
    with pytest.raises(ValidationError, match="reason"):
        ledger.fail(anchors, "ü" * 513)
    with pytest.raises(ValidationError, match="one value for each"):
        ledger.update(anchors, values[:2])
    counted(ledger)


def test_single_trees_of_big_slabs_are_updated_like_any_other(ledger: Ledger) -> None:
    slabs = [Trees(count).track(ledger) for count in [1, 2, 500, 1] * 90]
    first = [int(trees.anchors[0]) for trees in slabs]
    ledger.update(first, [int(trees.values[0]) for trees in slabs])
    assert reported(ledger, *slabs) == Counter((anchor, "acked", "") for anchor in first)
    assert ledger.update(first, [9] * 360) == Updated(late=360)


def test_confirming_much_at_once_goes_in_pieces_and_confirms_all(ledger: Ledger, raw: "redis.Redis") -> None:
    slabs = [Trees(1) for _ in range(5000)]
    new = [NewSlab(trees.anchors, trees.values, trees.message_ids) for trees in slabs]
    ledger.track_slabs(new, spout="s")
    ledger.update([int(trees.anchors[0]) for trees in slabs], [int(trees.values[0]) for trees in slabs])
    reader = OutcomeReader(ledger.core, "s")
    entries = [entry.confirmation for entry in ledger.outcomes(reader)]
    requests = next(confirm(ledger.core, "s", entries))
    [(trees, seen, _)] = ledger.store.send(requests)
    assert 1000 <= trees < 2000 + 1000
    assert seen < len(entries)
    assert ledger.confirm("s", entries) == 5000 - trees
    assert_settled(raw)


def test_many_long_reasons_wait_for_one_track_and_cost_little(ledger: Ledger) -> None:
    trees = Trees(4096)
    for _ in range(2):
        assert ledger.fail(trees.anchors, "r" * 1024) == Failed()
    trees.track(ledger)
    assert reported(ledger, trees) == Counter((int(anchor), "failed", "r" * 1024) for anchor in trees.anchors)


def test_without_ackers_nothing_is_kept(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url, ackers=0)
    trees = Trees(3).track(ledger)
    trees.complete(ledger)
    assert ledger.fail(trees.anchors) == Failed()
    assert ledger.reset_timeout(trees.anchors) == 0
    assert ledger.tick(force=True).rotated == 0
    assert set(ledger.counters().values()) == {0}
    name = ledger.config.name
    listed = keys.LISTED + name.encode()  # a mark with a time to live
    assert set(raw.scan_iter()) == {keys.TOPOLOGIES, listed, keys.config(name)}


def test_empty_calls_do_nothing(ledger: Ledger, raw: "redis.Redis") -> None:
    assert ledger.update([], []) == Updated()
    assert ledger.fail([]) == Failed()
    assert ledger.reset_timeout([]) == 0
    assert ledger.confirm("s", []) == 0
    assert ledger.track_slabs([], spout="s") == []
    assert ledger.message_ids([]) == {}


def test_message_ids_come_back_as_they_were_given(ledger: Ledger) -> None:
    anchors, values = ids.new_anchors(4), ids.new_ids(4)
    ledger.track(anchors, values, ["ü", b"\x00\xff", b"", b"m" * 1024], spout="s")
    slab = ids.slab_of(int(anchors[0]))
    assert ledger.message_ids([slab, b"unknown!"]) == {slab: ["ü".encode(), b"\x00\xff", b"", b"m" * 1024]}


def test_scattered_updates_of_many_slabs_complete_every_tree_once(url: str) -> None:
    ledger = opened(url, ackers=3)
    slabs = [Trees(count) for count in [1] * 1500 + [2] * 200 + [700] * 3]
    new = [NewSlab(trees.anchors, trees.values, trees.message_ids) for trees in slabs]
    assert set(ledger.track_slabs(new, spout="s")) == {"A"}
    anchors = np.concatenate([trees.anchors for trees in slabs])
    values = np.concatenate([trees.values for trees in slabs])
    order = np.random.default_rng(7).permutation(len(anchors))
    for part in np.array_split(order, 5):
        assert ledger.update(anchors[part], values[part]) == Updated()
    assert reported(ledger, *slabs) == Counter((int(anchor), "acked", "") for anchor in anchors)
    assert confirm_all(ledger) == len(anchors)
