"""Tuples, and what spouts and bolts are given: checked."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker import AckerError, Topology, TopologyConfigError, Tuple, TupleError, ValidationError
from acker.collectors.bolt import Collector
from acker.collectors.tuples import MAX_ROOTS
from tests.helpers.builders.collectors import Make, reported, statuses

IDS = st.integers(-(2**63), 2**63 - 1)
EDGES = st.dictionaries(IDS, IDS.filter(bool), max_size=20)


@given(EDGES)
def test_a_tuple_parses_back_from_what_it_prints_as(edges: dict[int, int]) -> None:
    original = Tuple(edges)
    assert str(original) == ",".join(f"{anchor}:{own}" for anchor, own in edges.items())
    assert Tuple.parse(str(original)) == original
    assert Tuple.parse(str(original)).anchors == tuple(edges)
    assert dict(Tuple.parse(str(original)).edges) == edges


@given(EDGES)
def test_a_tuple_is_a_value(edges: dict[int, int]) -> None:
    made = Tuple(edges)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert hash(Tuple(list(edges.items()))) == hash(made)
    assert eval(repr(made), {"Tuple": Tuple}) == made


def test_the_value_of_a_tuple_cannot_be_changed() -> None:
    original = Tuple({1: 2})
    for name in ("anchors", "edges", "other"):
        with pytest.raises(AttributeError):
            setattr(original, name, ())
    with pytest.raises(TypeError):
        original.edges[1] = 3  # type: ignore[index]


def test_order_of_roots_is_part_of_the_value() -> None:
    assert Tuple({1: 2, 3: 4}) != Tuple({3: 4, 1: 2})
    assert Tuple({1: 2}) != "1:2"


@pytest.mark.parametrize(
    "text",
    [
        "1", ":", "1:", ":1", "1:2,", ",1:2", "1:2,,3:4", "1:2:3", " 1:2", "1:2\n", "1: 2", "+1:2", "01:2",
        "1:02", "-0:1", "1:-0", "1:0", "0x1:2", "1e3:2", "1.0:2", "1_0:2", "٣:٤", "a:b", "1:2,1:3", "null",
        "1:2;3:4", f"{2**63}:1", f"1:{-(2**63) - 1}", f"{10**30}:1", "9" * 200_000, "1:2," * 100_000,
    ],
)  # fmt: skip
def test_text_that_is_no_tuple_is_refused_by_name(text: str) -> None:
    with pytest.raises(TupleError) as caught:
        Tuple.parse(text)
    assert len(str(caught.value)) < 400
    assert isinstance(caught.value, AckerError)
    assert isinstance(caught.value, ValueError)
    if len(text) < 40 and text.isascii() and "\n" not in text and len(text) > 3:
        assert (
            text in str(caught.value) or "signed 64-bit" in str(caught.value) or "twice" in str(caught.value)
        )


@given(st.text(max_size=60))
def test_any_text_is_a_tuple_or_a_tuple_error(text: str) -> None:
    try:
        parsed = Tuple.parse(text)
    except TupleError:
        return
    assert str(parsed) == text


@pytest.mark.parametrize("value", [None, 1, b"1:2", ["1:2"]])
def test_only_text_is_parsed(value: object) -> None:
    with pytest.raises(TupleError):
        Tuple.parse(value)  # type: ignore[arg-type]


def test_a_tuple_belongs_to_a_bounded_number_of_trees() -> None:
    edges = {-(2**63) + number: -(2**63) + 1 for number in range(MAX_ROOTS)}
    assert Tuple.parse(str(Tuple(edges))) == Tuple(edges)
    with pytest.raises(TupleError):
        Tuple({**edges, 1: 1})


def test_an_untracked_tuple_prints_as_nothing_and_parses_back() -> None:
    assert str(Tuple()) == ""
    assert Tuple.parse("") == Tuple()
    assert Tuple.parse("").anchors == ()


@pytest.mark.cluster(slow=True)
def test_what_was_acked_or_failed_cannot_be_used_again(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    acked, failed = spout.emit("m", targets=2)
    bolt.ack(acked)
    bolt.fail(failed)
    for done, how in ((acked, "acked"), (failed, "failed")):
        for call in (bolt.emit, bolt.ack, bolt.fail, bolt.reset_timeout):
            with pytest.raises(TupleError, match=f"was {how} before"):
                call(done)
        with pytest.raises(TupleError, match=str(done)), bolt.processing(done):
            pytest.fail("not reached")
    assert statuses(reported(spout)) == {b"m": "failed"}


@pytest.mark.cluster(slow=True)
def test_an_emit_with_one_bad_anchor_leaves_the_others_as_they_were(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    good, bad = spout.emit("m", targets=2)
    bolt.ack(bad)
    with pytest.raises(TupleError):
        bolt.emit([good, bad])
    bolt.ack(good)
    assert statuses(reported(spout)) == {b"m": "acked"}


@pytest.mark.cluster(slow=True)
def test_tuples_of_another_topology_are_refused(make: Make) -> None:
    here, there = make("here"), make("there")
    [foreign] = there.spout("s").emit("m")
    for call in (here.bolt("b").emit, here.bolt("b").ack, here.bolt("b").fail, here.bolt("b").reset_timeout):
        with pytest.raises(TupleError, match="there"):
            call(foreign)
    there.bolt("b").ack(foreign)
    make("here").bolt("b").emit(here.spout("s").emit("m"))


@pytest.mark.cluster(slow=True)
@pytest.mark.parametrize("value", ["1:2", None, 7, (1, 2)])
def test_what_is_no_tuple_is_refused(make: Make, value: Any) -> None:
    topology = make()
    bolt, [good] = topology.bolt("b"), topology.spout("s").emit("m")
    for call in (bolt.ack, bolt.fail, bolt.reset_timeout, bolt.emit, lambda each: bolt.emit([good, each])):
        with pytest.raises(TupleError, match=r"expected an acker\.Tuple"):
            call(value)
    others: list[Any] = [bolt.ack_many, lambda each: Collector(bolt, good).emit(also=each)]
    for call in others:
        with pytest.raises(TupleError, match=r"expected (several|an) acker\.Tuple"):
            call(value)
    assert (good.ended, good.children) == ("", {})


@pytest.mark.parametrize("edges", [None, 7, "12", [7], [None], [(1, 2, 3)], ["12"]])
def test_edges_are_pairs(edges: Any) -> None:
    with pytest.raises(TupleError, match=r"expected \(anchor, tuple id\) pairs, or a mapping of them, got"):
        Tuple(edges)


@pytest.mark.cluster(slow=True)
def test_bad_arguments_are_named(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    for bad in (-1, 1.5, True, "2", 10**9):
        with pytest.raises(ValidationError, match="targets"):
            spout.emit("m", targets=bad)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="targets"):
            bolt.emit([], targets=bad)  # type: ignore[arg-type]
    for message_id in ("x" * 1025, 7, ["m"]):
        with pytest.raises(ValidationError, match="message id"):
            spout.emit(message_id)  # type: ignore[arg-type]
    [each] = spout.emit("m")
    for reason in ("x" * 1025, b"bytes"):
        with pytest.raises(ValidationError, match="reason"):
            bolt.fail(each, reason)  # type: ignore[arg-type]
    for name in ("", "a b", "x" * 65):
        with pytest.raises(ValidationError):
            topology.spout(name)
        with pytest.raises(ValidationError):
            topology.bolt(name)
    for most in (0, -1, 1.0, True):
        with pytest.raises(ValidationError, match="max_spout_pending"):
            topology.spout("s", max_spout_pending=most)  # type: ignore[arg-type]
    bolt.ack(each)
    assert statuses(reported(spout)) == {b"m": "acked"}


@pytest.mark.cluster(slow=True)
def test_a_second_opener_with_other_values_is_reported_what_differs(make: Make, url: str) -> None:
    make("t", ackers=2)
    with pytest.raises(TopologyConfigError) as caught:
        Topology(url, "t", ackers=3)
    assert caught.value.differences == {"ackers": (2, 3)}
    for linger in (-1, 61, "1", float("nan"), True):
        with pytest.raises(ValidationError, match="linger"):
            Topology(url, "t", linger=linger)  # type: ignore[arg-type]
