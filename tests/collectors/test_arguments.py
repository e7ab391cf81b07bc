"""Spouts and bolts: what they are given is checked."""

from typing import Any

import pytest

from acker import (
    Topology,
    TopologyConfigError,
    TupleError,
    ValidationError,
)
from tests.helpers.builders.collectors import Make, reported, statuses

pytestmark = pytest.mark.cluster(slow=True)


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


def test_an_emit_with_one_bad_anchor_leaves_the_others_as_they_were(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    good, bad = spout.emit("m", targets=2)
    bolt.ack(bad)
    with pytest.raises(TupleError):
        bolt.emit([good, bad])
    bolt.ack(good)
    assert statuses(reported(spout)) == {b"m": "acked"}


def test_tuples_of_another_topology_are_refused(make: Make) -> None:
    here, there = make("here"), make("there")
    [foreign] = there.spout("s").emit("m")
    for call in (here.bolt("b").emit, here.bolt("b").ack, here.bolt("b").fail, here.bolt("b").reset_timeout):
        with pytest.raises(TupleError, match="there"):
            call(foreign)
    there.bolt("b").ack(foreign)
    make("here").bolt("b").emit(here.spout("s").emit("m"))


@pytest.mark.parametrize("value", ["1:2", None, 7, (1, 2)])
def test_what_is_no_tuple_is_refused(make: Make, value: Any) -> None:
    bolt = make().bolt("b")
    for call in (bolt.ack, bolt.fail, bolt.reset_timeout, lambda each: bolt.emit([each])):
        with pytest.raises(TupleError, match=r"expected an acker\.Tuple"):
            call(value)


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


def test_a_second_opener_with_other_values_is_reported_what_differs(make: Make, url: str) -> None:
    make("t", ackers=2)
    with pytest.raises(TopologyConfigError) as caught:
        Topology(url, "t", ackers=3)
    assert caught.value.differences == {"ackers": (2, 3)}
    for linger in (-1, 61, "1", float("nan"), True):
        with pytest.raises(ValidationError, match="linger"):
            Topology(url, "t", linger=linger)  # type: ignore[arg-type]
