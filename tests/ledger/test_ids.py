"""Anchors and tuple ids: 64 bits, signed wherever they are seen, lossless wherever they go."""

import secrets
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import ValidationError
from acker.ledger import ids

SIGNED = st.integers(-(2**63), 2**63 - 1)


@given(SIGNED.map(lambda value: value | 1))
def test_slab_and_index_name_an_anchor(anchor: int) -> None:
    slab, index = ids.slab_of(anchor), ids.index_of(anchor)
    assert len(slab) == 8
    assert 0 <= index < 4096
    assert ids.anchor_at(slab, index) == anchor
    slabs, indexes = ids.split(np.array([anchor], np.int64))
    assert int(slabs[0]).to_bytes(8, "big") == slab
    assert ids.shards_of(slabs, 7).tolist() == [ids.shard_of(slab, 7)]
    assert int(indexes[0]) == index


@given(st.integers(0, 2**50 - 1), st.integers(1, 1024))
def test_all_trees_of_a_slab_are_in_one_shard(slab: int, ackers: int) -> None:
    shards = {ids.shard_of(ids.slab_of((slab << 13) | within), ackers) for within in (1, 7, 8191)}
    assert len(shards) == 1
    assert shards.pop() in range(ackers)


@pytest.mark.parametrize("count", [1, 2, 4096])
def test_new_anchors_are_one_slab_in_order_from_index_zero(count: int) -> None:
    anchors = ids.new_anchors(count)
    assert anchors.dtype == np.int64
    assert [ids.index_of(int(anchor)) for anchor in anchors] == list(range(count))
    assert len({ids.slab_of(int(anchor)) for anchor in anchors}) == 1
    assert ids.slab_of(int(anchors[0])) != bytes(8)


def test_new_anchors_tell_slabs_of_one_by_their_sign_and_are_never_the_same() -> None:
    ones = [int(ids.new_anchors(1)[0]) for _ in range(200)]
    firsts = [ids.new_slab() for _ in range(200)] + [int(ids.new_anchors(2)[0]) for _ in range(200)]
    assert len(set(ones)) + len(set(firsts)) == 600
    assert max(ones) < 0 < min(firsts)
    assert all(ids.is_one(ids.slab_of(anchor)) for anchor in ones)
    assert not any(ids.is_one(ids.slab_of(anchor)) for anchor in firsts)


@given(st.integers(1, 2**50 - 1), st.integers(0, 4095), st.booleans())
def test_an_anchor_that_was_a_float_is_itself_or_none(slab: int, index: int, alone: bool) -> None:
    anchor = ids.anchor_at((slab << 13).to_bytes(8, "big"), index) - (1 << 63 if alone else 0)
    assert ids.are_anchors(np.array([anchor]))
    rounded = float(anchor)
    if abs(rounded) < 2**63 and int(rounded) != anchor:
        with pytest.raises(ValidationError, match="expected odd numbers"):
            ids.check_anchors(np.array([anchor, int(rounded)]))


@pytest.mark.parametrize("count", [0, -1, 4097])
def test_a_slab_has_1_to_4096_trees(count: int) -> None:
    with pytest.raises(ValidationError, match="1 to 4096"):
        ids.new_anchors(count)


def test_new_ids_are_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 not in ids.new_ids(1000)
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    assert 0 not in ids.new_ids(3)
    draws = iter([1 << 63, (1 << 63) + 5])
    monkeypatch.setattr(secrets, "randbits", lambda _: next(draws))
    assert ids.new_id() == 5


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(0, 50), st.integers(0, 50))
def test_seeded_ids_do_not_depend_on_how_they_are_cut(seed: int, start: int, first: int, rest: int) -> None:
    whole = ids.seeded_ids(seed, start, first + rest)
    parts = [ids.seeded_ids(seed, start, first), ids.seeded_ids(seed, start + first, rest)]
    assert whole.tolist() == np.concatenate(parts).tolist()
    assert 0 not in whole


def test_seeded_ids_are_those_of_splitmix64() -> None:
    """Reference values of the algorithm for the seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert ids.seeded_ids(1234567, 0, 4).view(np.uint64).tolist() == expected


def test_seeded_ids_are_made_in_blocks_that_nobody_sees() -> None:
    whole = ids.seeded_ids(1234567, 3, 20_000)
    for at in (8191, 8192, 8193, 16_384, 19_999):
        assert ids.seeded_ids(1234567, 3 + at, 1)[0] == whole[at]
    assert len(np.unique(whole)) == 20_000


@given(st.lists(st.tuples(st.sampled_from([-(2**63), -1, 0, 1, 4096, 2**63 - 1]) | SIGNED, SIGNED)))
def test_fold_xors_the_values_of_each_anchor(pairs: list[tuple[int, int]]) -> None:
    expected: dict[int, int] = {}
    for anchor, value in pairs:
        expected[anchor] = expected.get(anchor, 0) ^ value
    anchors = np.array([anchor for anchor, _ in pairs], np.int64)
    folded, values = ids.fold(anchors, np.array([value for _, value in pairs], np.int64))
    assert dict(zip(folded.tolist(), values.tolist(), strict=True)) == expected
    assert len(folded) == len(expected)
    unsigned = folded.view(np.uint64).tolist()
    assert unsigned == sorted(unsigned)


@given(
    width=st.integers(1, 3),
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2)), max_size=20),
    data=st.data(),
)
def test_fold_rows_keeps_all_xors(width: int, rows: list[tuple[int, int]], data: st.DataObject) -> None:
    anchors = np.array([[first + column * step for column in range(width)] for first, step in rows], np.int64)
    values = np.array(data.draw(st.lists(SIGNED, min_size=anchors.size, max_size=anchors.size)), np.int64)
    left, folded = ids.fold_rows(anchors.ravel(), values, width)
    for found, expected in zip(ids.fold(left, folded), ids.fold(anchors.ravel(), values), strict=True):
        assert found.tolist() == expected.tolist()
    repeated = sum(row == before for row, before in zip(rows[1:], rows[:-1], strict=True))
    assert len(left) <= (len(rows) - repeated) * width


def test_fold_leaves_its_arguments_as_they_were() -> None:
    anchors, values = np.array([3, 1, 3], np.int64), np.array([5, 6, 7], np.int64)
    ids.fold(anchors, values)
    assert (anchors.tolist(), values.tolist()) == ([3, 1, 3], [5, 6, 7])


@pytest.mark.parametrize(
    "values",
    [[1.0], [True], ["1"], [None], [2**63], [-(2**63) - 1], np.zeros((1, 1), np.int64),
     np.zeros(1, np.uint64), np.zeros(1, np.float64), np.zeros(1, bool), [[1]]],
)  # fmt: skip
def test_what_is_not_a_vector_of_signed_64_bit_numbers_is_an_error(values: list[int]) -> None:
    with pytest.raises(ValidationError, match="edges"):
        ids.as_ids(values, "edges")


def test_ids_are_taken_as_lists_and_as_arrays_of_any_signed_type() -> None:
    wide = np.arange(10, dtype=np.int64)
    assert ids.as_ids(wide) is wide
    given_ids: tuple[Any, ...] = (
        [1, -2],
        (1, -2),
        np.array([1, -2], np.int8),
        np.array([1, -2], ">i8"),
        [np.int64(1), -2],
    )
    for values in given_ids:
        assert ids.as_ids(values).tolist() == [1, -2]
    assert ids.as_ids(wide[::2]).flags.c_contiguous
    assert ids.as_ids([]).dtype == np.int64
    assert ids.as_ids([-(2**63), 2**63 - 1]).tolist() == [-(2**63), 2**63 - 1]


@pytest.mark.parametrize("value", [1.0, "1", None, True, 2**63])
def test_check_id_takes_whole_numbers_of_64_bits_only(value: object) -> None:
    with pytest.raises(ValidationError, match="tuple id"):
        ids.check_id(value, "tuple id")


def test_check_id_returns_a_plain_number() -> None:
    assert type(ids.check_id(np.int64(-5))) is int
