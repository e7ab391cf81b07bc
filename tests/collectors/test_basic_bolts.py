"""Basic bolts: they anchor, ack and fail by themselves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acker import (
    FailedException,
    Tuple,
    TupleError,
    ValidationError,
)
from tests.helpers.collectors import Make, reported, statuses

pytestmark = pytest.mark.cluster(slow=True)


def test_a_basic_bolt_anchors_and_acks(make: Make) -> None:
    topology = make()
    spout = topology.spout("s")

    @topology.basic_bolt("split")
    def split(collector: Any, line: str) -> list[tuple[str, Tuple]]:
        """Splits."""
        words = line.split()
        return list(zip(words, collector.emit(targets=len(words)), strict=True))

    @topology.basic_bolt("count")
    def count(collector: Any, word: str) -> str:
        return word

    assert split.__doc__ == "Splits."
    [source] = spout.emit("m")
    words = split(source, "the cow jumped")
    assert words is not None
    assert [word for word, _ in words] == ["the", "cow", "jumped"]
    reported(spout, 0)
    assert [count(each, word) for word, each in words] == ["the", "cow", "jumped"]
    assert statuses(reported(spout)) == {b"m": "acked"}


def test_a_basic_bolt_fails_its_tuple_with_the_text_of_the_exception(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")

    def run(error: Exception) -> Callable[..., None]:
        def function(collector: Any) -> None:
            collector.emit(targets=2)
            raise error

        return bolt.basic(function, catch=KeyError)

    def reason() -> str:
        [outcome] = reported(spout)
        assert outcome.status == "failed"
        return outcome.reason

    run(FailedException("no such word"))(spout.emit("m")[0])
    assert reason() == "no such word"
    run(KeyError("cow"))(spout.emit("m")[0])
    assert reason() == "KeyError: 'cow'"
    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError())(spout.emit("m")[0])
    assert reason() == "ZeroDivisionError"
    run(FailedException("ü" * 5000))(spout.emit("m")[0])
    assert 900 < len(reason().encode()) <= 1024


def _fail(collector: Any) -> None:
    raise FailedException(f"not {collector.tuple}")


def test_processing_is_a_basic_bolt_as_a_block(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two], [three] = spout.emit("1"), spout.emit("2"), spout.emit("3")
    with bolt.processing(one) as collector:
        [child] = collector.emit(also=[two])
        collector.reset_timeout()
        assert collector.tuple is one
    assert child.anchors == (*one.anchors, *two.anchors)
    bolt.ack(child)
    bolt.basic(_fail)(two)
    with pytest.raises(KeyboardInterrupt), bolt.processing(three):
        raise KeyboardInterrupt
    assert statuses(reported(spout, 2)) == {b"1": "acked", b"2": "failed"}
    with pytest.raises(TupleError):
        collector.emit()
    bolt.ack(three)
    assert statuses(reported(spout)) == {b"3": "acked"}


def test_what_does_its_work_after_it_returned_is_no_basic_bolt(make: Make) -> None:
    def generator(collector: Any) -> Iterator[int]:
        yield 1

    async def coroutine(collector: Any) -> None: ...

    for function in (generator, coroutine):
        with pytest.raises(ValidationError, match="plain function"):
            make().bolt("b").basic(function)
