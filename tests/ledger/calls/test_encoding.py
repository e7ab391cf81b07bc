"""Calls carry each message once, within the bounds of a call."""

import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.calls import encoding
from acker.ledger.calls.encoding import CALL_FAILS, CALL_TREES, CALL_WORDS, TreesCall, UpdateCall
from acker.ledger.ids import Ids
from acker.ledger.outcomes import outcomes
from acker.ledger.slabs import slabs

SLABS = st.sampled_from([1, 2, 3, 17, 2**49, 2**50 - 1])
INDEXES = st.integers(0, 4095) | st.integers(0, 20) | st.just(0)
MANY = st.builds(lambda slab, index: (slab << 13) + 2 * index + 1, SLABS, INDEXES)
ANCHORS = MANY | st.sampled_from([-1, -3, -4095, -4097, 1 - 2**63])
DELTAS = st.integers(-(2**63), 2**63 - 1) | st.just(0)


def vector(values: list[int]) -> Ids:
    return np.array(values, dtype=np.int64)


def words(packed: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(packed) // 8}q", packed))


def shorts(packed: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(packed) // 2}H", packed))


def carried(call: UpdateCall) -> Iterator[tuple[int, int]]:
    """The (anchor, delta) pairs of a call, as the script takes them apart."""
    counts, indexes, deltas = shorts(call.counts), iter(shorts(call.indexes)), iter(words(call.deltas))
    slabs = iter(call.slabs)
    for count in counts:
        slab = next(slabs)
        for _ in range(count):
            yield ids.anchor_at(slab, next(indexes)), next(deltas)
    for packed in call.vectors:
        slab = next(slabs)
        yield from ((ids.anchor_at(slab, index), delta) for index, delta in enumerate(words(packed)) if delta)
    assert next(slabs, None) is None
    assert next(indexes, None) is None
    assert next(deltas, None) is None
    for slab, delta in zip(call.singles, words(call.ones), strict=True):
        assert ids.is_one(slab)
        yield ids.anchor_at(slab, 0), delta


@given(st.lists(st.tuples(ANCHORS, DELTAS), max_size=80), st.integers(1, 3))
def test_updates_carry_each_trees_folded_delta_once(pairs: list[tuple[int, int]], ackers: int) -> None:
    expected: dict[int, int] = {}
    for anchor, delta in pairs:
        expected[anchor] = expected.get(anchor, 0) ^ delta
    calls = encoding.update_calls(vector([a for a, _ in pairs]), vector([d for _, d in pairs]), ackers)
    found = [pair for call in calls for pair in carried(call)]
    assert len(found) == len(dict(found))
    assert dict(found) == {anchor: delta for anchor, delta in expected.items() if delta}
    for call in calls:
        slabs = call.slabs + call.singles
        assert len(set(slabs)) == len(slabs) <= CALL_TREES
        assert {ids.shard_of(slab, ackers) for slab in slabs} == {call.shard}


@given(st.lists(st.tuples(ANCHORS, DELTAS), max_size=40), st.integers(1, 3))
def test_few_trees_make_the_same_calls_as_many(pairs: list[tuple[int, int]], ackers: int) -> None:
    given_anchors, deltas = vector([a for a, _ in pairs]), vector([d for _, d in pairs])
    whole = ids.new_ids(16) if len(pairs) % 2 else vector([])  # a slab that goes as a vector
    given_anchors = np.concatenate([given_anchors, ids.anchors_from(ids.new_slab(), len(whole))])
    deltas = np.concatenate([deltas, whole])
    few = encoding.update_calls(given_anchors, deltas, ackers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(encoding, "_FEW", -1)
        assert encoding.update_calls(given_anchors, deltas, ackers) == few


@pytest.mark.parametrize(("slabs", "trees"), [(3000, 1), (2500, 2), (40, 1024), (9, 4096), (1200, 40)])
@pytest.mark.parametrize("ackers", [1, 4])
def test_calls_are_bounded(slabs: int, trees: int, ackers: int) -> None:
    anchors = np.concatenate([ids.new_anchors(trees) for _ in range(slabs)])
    deltas = ids.new_ids(len(anchors))
    calls = encoding.update_calls(anchors, deltas, ackers)
    for call in calls:
        assert len(call.slabs) + len(call.singles) <= CALL_TREES
        assert len(call.indexes) // 2 <= CALL_TREES
        assert sum(len(packed) for packed in call.vectors) // 8 <= CALL_WORDS
        assert len(call.vectors) <= 51
    found = dict(pair for call in calls for pair in carried(call))
    assert found == dict(zip(anchors.tolist(), deltas.tolist(), strict=True))
    for named in encoding.fail_calls(anchors[:20_000], [b"bad"], ackers):
        assert len(named.indexes) // 2 <= CALL_FAILS


def test_a_slab_that_is_touched_all_over_goes_as_a_vector_and_one_touched_here_and_there_as_pairs() -> None:
    whole, some = ids.new_anchors(1024), ids.new_anchors(1024)[::300]
    [call] = encoding.update_calls(whole, ids.new_ids(1024), 1)
    assert (len(call.vectors), call.counts, call.ones) == (1, b"", b"")
    [call] = encoding.update_calls(some, ids.new_ids(len(some)), 1)
    assert (call.vectors, shorts(call.counts), call.ones) == ([], [4], b"")


def test_slabs_of_one_go_together_in_the_order_in_which_they_came() -> None:
    ones = np.concatenate([ids.new_anchors(1) for _ in range(5)])
    [call] = encoding.update_calls(ones, ids.new_ids(5), 1)
    assert [anchor for anchor, _ in carried(call)] == ones.tolist()
    again = np.concatenate([ones, ones[:1]])
    [call] = encoding.update_calls(again, vector([1, 2, 3, 4, 5, 8]), 1)
    assert list(carried(call)) == list(zip(ones.tolist(), [9, 2, 3, 4, 5], strict=True))
    [call] = encoding.update_calls(ones, vector([1, 0, 3, 0, 5]), 1)
    assert list(carried(call)) == list(zip(ones[::2].tolist(), [1, 3, 5], strict=True))
    [call] = encoding.update_calls(ones, ids.new_ids(5), 1)
    assert (call.vectors, call.counts, len(call.ones)) == ([], b"", 40)


def named(call: TreesCall) -> Iterator[int]:
    indexes = iter(shorts(call.indexes))
    for slab, count in zip(call.slabs, shorts(call.counts), strict=True):
        for _ in range(count):
            yield ids.anchor_at(slab, next(indexes))
    assert next(indexes, None) is None


def of_each(call: TreesCall) -> list[bytes]:
    reasons = outcomes.split_reasons(call.reasons)
    return [reasons[number] for number in shorts(call.why) or [0] * (len(call.indexes) // 2)]


@given(st.lists(ANCHORS, max_size=80), st.integers(1, 3))
def test_calls_fail_each_tree_once_with_its_first_cause(anchors: list[int], ackers: int) -> None:
    causes = [b"%d" % (place % 7) for place in range(len(anchors))]
    calls = encoding.fail_calls(vector(anchors), causes, ackers)
    found = [pair for call in calls for pair in zip(named(call), of_each(call), strict=True)]
    assert len(found) == len(set(anchors))
    assert dict(found) == dict(zip(reversed(anchors), reversed(causes), strict=True))
    for one in encoding.fail_calls(vector(anchors), [b"bad"], ackers):
        assert (one.reasons, one.why) == (b"\3\0bad", b"")
    for call in calls:
        assert len(set(call.slabs)) == len(call.slabs)
        assert {ids.shard_of(slab, ackers) for slab in call.slabs} == {call.shard}


@given(st.lists(st.binary(max_size=1024), max_size=50))
def test_message_ids_are_unpacked_as_they_were_packed(message_ids: list[bytes]) -> None:
    assert slabs.unpack_message_ids(slabs.pack_message_ids(message_ids), len(message_ids)) == message_ids


@pytest.mark.parametrize(("packed", "count"), [(b"", 1), (b"\x01\x00", 1), (b"\x00\x00m", 1), (b"\x01", 1)])
def test_message_ids_that_do_not_fit_their_count_are_an_error(packed: bytes, count: int) -> None:
    with pytest.raises(ValidationError, match="message ids"):
        slabs.unpack_message_ids(packed, count)


def test_as_many_deltas_as_anchors() -> None:
    with pytest.raises(ValidationError, match="one value for each anchor"):
        encoding.update_calls(ids.new_anchors(2), ids.new_ids(3), 1)
