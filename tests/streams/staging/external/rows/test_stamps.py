"""A stamp says what was written, or why it cannot be read; whatever a row carries, nothing is raised."""

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acker.errors import ValidationError
from acker.ledger.ids import shard_of_anchor
from acker.streams.staging.external.bits import MOST_POSITIONS, first, pack, unpack
from acker.streams.staging.external.rows import carriers, one_tree
from acker.streams.staging.external.rows.stamps import MOST_ANCHORS, VERSION, Seal, Stamp
from tests.helpers.builders.stamps import KEY, SEAL, anchors, stamps

junk: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.binary(), st.text(), st.integers(), st.lists(st.integers()), st.floats(),
    st.binary().map(lambda some: VERSION.encode() + some), st.text().map(lambda some: VERSION + some),
)  # fmt: skip


@given(stamps)
def test_a_stamp_says_what_was_written(stamp: Stamp) -> None:
    text = SEAL.write(stamp)
    assert SEAL.read(text) == SEAL.read(text.encode()) == stamp


def test_a_stamp_of_one_tree_has_some_fifty_characters() -> None:
    assert len(SEAL.write(Stamp("00" * 14, 1, 1, (1,)))) == 51


@given(st.lists(st.one_of(stamps.map(SEAL.write), junk), max_size=8))
@example(["a1-", "a1-A", "a2-x", "a1-" + "A" * 48, None, b"a1-" + b"A" * 38])
def test_many_are_read_as_each_alone(texts: list[Any]) -> None:
    assert SEAL.read_many(texts) == [SEAL.read(text) for text in texts]


one_tree_stamps = st.builds(Stamp, st.just("0c" * 14), st.integers(0, 65_535), st.just(7), st.tuples(anchors))


@given(
    st.lists(st.one_of(one_tree_stamps, stamps.filter(lambda stamp: len(stamp.anchors) == 1)), max_size=9),
    st.lists(junk, max_size=1),
)
def test_sound_stamps_with_one_anchor_are_read_together(written: list[Stamp], others: list[Any]) -> None:
    texts = [SEAL.write(stamp).encode() for stamp in written]
    read = one_tree.read(SEAL, [*texts, *others], 4)
    if read is None:
        assert others or not texts
        return
    segments = [(head.token, head.sent) for head, first, last, _ in read.runs for _ in range(first, last)]
    assert [
        Stamp(token, position, sent, (anchor,))
        for (token, sent), position, anchor in zip(segments, read.positions, read.anchors, strict=True)
    ] == written
    shards = [shard_of_anchor(anchor, 4) for anchor in read.anchors.tolist()]
    assert read.shards.tolist() == shards
    assert [run.shards for run in read.runs] == [
        sorted(set(shards[one.first : one.last])) for one in read.runs
    ]
    edited = texts[-1][:-1] + (b"A" if texts[-1][-1:] != b"A" else b"B")
    assert one_tree.read(SEAL, [*texts, edited], 4) is None


@given(st.lists(anchors, min_size=1, max_size=50))
def test_many_are_written_as_each_alone(of: list[int]) -> None:
    token, places = "0a" * 14, np.arange(len(of)) * 1000
    each = [SEAL.write(Stamp(token, 1000 * place, 77, (one,))).encode() for place, one in enumerate(of)]
    assert SEAL.write_many(SEAL.head(token, 77), places, np.array(of, np.int64)) == each


@given(stamps, st.data())
def test_an_edited_stamp_is_none(stamp: Stamp, data: st.DataObject) -> None:
    text = SEAL.write(stamp)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(max_codepoint=300).filter(lambda one: one != text[at]))
    assert isinstance(SEAL.read(text[:at] + other + text[at + 1 :]), str)
    assert isinstance(SEAL.read(text[:at]), str)
    assert isinstance(SEAL.read(text + other), str)


@given(stamps, st.integers(0, MOST_POSITIONS - 1), anchors, st.booleans())
def test_a_check_is_good_for_its_own_row_only(stamp: Stamp, position: int, anchor: int, alone: bool) -> None:
    stamp = stamp._replace(anchors=stamp.anchors[:1] if alone else (*stamp.anchors, 1))
    other = stamp._replace(position=position, anchors=(anchor, *stamp.anchors[1:]))
    bodies = [base64.urlsafe_b64decode(SEAL.write(one)[3:] + "=" * 3) for one in (stamp, other)]
    mixed = bodies[0][:23] + bodies[1][23:28] + bodies[0][28:]
    text = VERSION + base64.urlsafe_b64encode(mixed).rstrip(b"=").decode()
    assert SEAL.read(text) == (stamp if stamp == other else "foreign")


@given(stamps)
def test_a_stamp_of_another_stream_key_or_topology_is_foreign(stamp: Stamp) -> None:
    text = SEAL.write(stamp)
    others = [Seal("t", "s", {0: bytes(32)}, 0), Seal("t", "r", {0: KEY}, 0), Seal("u", "s", {0: KEY}, 0)]
    others.append(Seal("t", "s", {1: KEY}, 1))
    assert [one.read(text) for one in others] == ["foreign"] * 4


def test_two_keys_are_known_and_the_newer_is_written() -> None:
    both = Seal("t", "s", {0: KEY, 1: bytes(32)}, 1)
    stamp = Stamp("00" * 14, 1, 1, (1,))
    assert both.read(SEAL.write(stamp)) == both.read(both.write(stamp)) == stamp
    assert SEAL.read(both.write(stamp)) == "foreign"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "unstamped"), ("", "damaged"), ("a2-AAAA", "newer"), (b"a17-", "newer"),
        ("a0-AAAA", "damaged"), ("b1-", "damaged"), (7, "damaged"), ("a" * 4000, "damaged"),
        ("a1-" + "x" * (1 << 20), "damaged"), ("a" + "1" * 2000 + "-", "newer"),
    ],
)  # fmt: skip
def test_a_fault_is_named(text: Any, fault: str) -> None:
    assert SEAL.read(text) == fault
    assert SEAL.read_many([text]) == [fault]


def test_a_view_that_cannot_be_read_is_damaged() -> None:
    released = memoryview(b"a1-")
    released.release()
    for view in (released, memoryview(bytes(4)).cast("I", []), memoryview(bytes(4)).cast("B", [2, 2])):
        assert SEAL.read(view) == "damaged"


def test_an_edited_stamp_among_sound_ones_is_none() -> None:
    sound = [Stamp("0c" * 14, position, 7, (3,)) for position in range(3)]
    first, edited, last = (SEAL.write(stamp).encode() for stamp in sound)
    edited = edited[:-4] + (b"B" if edited[-4:-3] == b"A" else b"A") + edited[-3:]
    assert SEAL.read_many([first, edited, last]) == [sound[0], "foreign", sound[2]]
    assert one_tree.read(SEAL, [first, edited, last], 1) is None


def test_a_row_has_at_most_255_anchors() -> None:
    most = Stamp("00" * 14, 0, 0, tuple(range(1, 2 * MOST_ANCHORS, 2)))
    assert SEAL.read(SEAL.write(most)) == most
    for count in (0, MOST_ANCHORS + 1):
        with pytest.raises(ValidationError, match=f"expected 1 to 255 anchors, got {count}"):
            SEAL.write(most._replace(anchors=(1,) * count))


@given(st.lists(st.integers(0, MOST_POSITIONS - 1)))
def test_a_bitmap_has_each_position_once(positions: list[int]) -> None:
    bitmap = pack(positions)
    assert unpack(bitmap) == sorted(set(positions))
    assert not bitmap.endswith(b"\0")
    assert first(bitmap) == (len(set(positions)) if set(positions) == set(range(len(set(positions)))) else 0)


def test_a_bitmap_is_bounded() -> None:
    for strange in (-1, MOST_POSITIONS):
        with pytest.raises(ValidationError, match=f"expected 0 to 65,535, got {strange}"):
            pack([1, strange])
    with pytest.raises(ValidationError, match="at most 8,192 bytes"):
        unpack(bytes(8193))


class Hostile(dict[str, Any]):
    """Headers that raise."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "headers", [7, [1], [("a",)], [("a", "b", "c")], Hostile(), iter([None]), "acker-stamp"]
)
def test_headers_that_are_none_hold_a_damaged_stamp(headers: Any) -> None:
    assert SEAL.read(carriers.find(headers)) == "damaged"


def test_stamps_of_several_messages_are_found_as_in_each_alone() -> None:
    usual = [("acker-stamp", b"1")]
    many: list[Any] = [usual, [("a", b"2")], [(b"acker-stamp", b"3")], [], None, [7], {"acker-stamp": b"4"}]
    assert carriers.find_many(many[:3]) == [b"1", None, b"3"]
    assert carriers.find_many(many) == [b"1", None, b"3", None, None, b"", b"4"]
    assert carriers.find_many([usual, [7]]) == [b"1", b""]


@pytest.mark.parametrize("form", [list, dict])
def test_a_stamp_takes_the_place_of_the_one_before_and_leaves_the_rest(form: Any) -> None:
    headers = form([("traceparent", b"00-1"), ("acker-stamp", b"old"), ("ce_id", b"9")])
    made = carriers.put(headers, b"new")
    assert dict(made) == {"traceparent": b"00-1", "ce_id": b"9", "acker-stamp": b"new"}
    assert isinstance(made, form)
    assert carriers.find(made) == b"new"
    assert dict(carriers.put(made, None)) == {"traceparent": b"00-1", "ce_id": b"9"}
    assert carriers.find(carriers.put(None, None)) is None


def test_the_last_of_several_headers_counts() -> None:
    pairs = [("acker-stamp", b"old"), ("a", b""), ("a", b"1"), ("acker-stamp", b"new")]
    assert carriers.find(pairs) == b"new"
    assert carriers.put(pairs, b"x") == [("a", b""), ("a", b"1"), ("acker-stamp", b"x")]
