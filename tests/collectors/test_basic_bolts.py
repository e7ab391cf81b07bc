"""Basic bolts: they anchor, ack and fail by themselves."""

import asyncio
import contextlib
import io
import multiprocessing.pool
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from acker import (
    FailedException,
    Tuple,
    TupleError,
    ValidationError,
)
from tests.helpers.builders.collectors import Make, reported, statuses

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
    [first], [second], [third] = spout.emit("1"), spout.emit("2"), spout.emit("3")
    with bolt.processing(first) as collector:
        [child] = collector.emit(also=[second])
        collector.reset_timeout()
        assert collector.tuple is first
    assert child.anchors == (*first.anchors, *second.anchors)
    bolt.ack(child)
    bolt.basic(_fail)(second)
    with pytest.raises(KeyboardInterrupt), bolt.processing(third):
        raise KeyboardInterrupt
    assert statuses(reported(spout, 2)) == {b"1": "acked", b"2": "failed"}
    with pytest.raises(TupleError):
        collector.emit()
    bolt.ack(third)
    assert statuses(reported(spout)) == {b"3": "acked"}


class Unspeakable(Exception):
    """An exception whose text raises anything."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error


class Untouchable(Exception):
    """Not even its class can be asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


class Text(str):
    """Text of a class of its own, which nobody can work on."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise RuntimeError

    def encode(self, *_: Any, **__: Any) -> bytes:
        raise RuntimeError

    def __format__(self, _: str) -> str:
        raise RuntimeError


class Speaking(FailedException):
    def __str__(self) -> str:
        return Text("no such word")


def _panic(error: Exception) -> None:
    raise error


def test_an_exception_whose_text_cannot_be_had_fails_its_tuple_all_the_same(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    raised: list[Exception] = [Unspeakable(RuntimeError()), Unspeakable(SystemExit(3))]
    raised += [
        Unspeakable(Unspeakable(KeyError())),
        type("Text", (Unspeakable,), {"__module__": 3})(KeyError()),
    ]
    for error in raised:
        with pytest.raises(type(error)), bolt.processing(spout.emit("m")[0]):
            raise error
        assert [(one.status, one.reason) for one in reported(spout)] == [("failed", type(error).__name__)]
    with contextlib.suppress(SystemExit, Untouchable), bolt.processing(spout.emit("m")[0]):
        _panic(Untouchable())
    assert [one.reason for one in reported(spout)] == ["Untouchable"]
    with bolt.processing(spout.emit("m")[0]):
        _panic(Speaking())
    assert [one.reason for one in reported(spout)] == ["no such word"]
    [left] = spout.emit("left")
    with pytest.raises(KeyboardInterrupt), bolt.processing(left):
        _panic(Unspeakable(KeyboardInterrupt()))  # Ctrl-C came just then
    reported(spout, 0)
    bolt.fail(left, Text("read"))
    assert [one.reason for one in reported(spout)] == ["read"]


def test_a_value_that_cannot_be_shown_is_refused_with_a_word(make: Make) -> None:
    class Bytes(bytes):
        def __len__(self) -> int:
            raise RuntimeError

    class Hidden:
        def __repr__(self) -> str:
            raise SystemExit

    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    for made in (
        lambda: spout.emit(Hidden()),  # type: ignore[arg-type]
        lambda: spout.emit("m", Hidden()),  # type: ignore[arg-type]
        lambda: topology.bolt(Hidden()),  # type: ignore[arg-type]
        lambda: bolt.fail(spout.emit(None)[0], Hidden()),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValidationError, match="Hidden that cannot be shown: SystemExit"):
            made()
    bolt.ack(spout.emit(Text("text"))[0])
    bolt.ack(spout.emit(Bytes(b"bytes"))[0])
    assert statuses(reported(spout, 2)) == {b"text": "acked", b"bytes": "acked"}


def test_a_tuple_fails_for_good_where_its_function_has_left_its_work_undone(make: Make) -> None:
    topology, waiting, stop = make(), Future[int](), threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    spout, bolt = topology.spout("s"), topology.bolt("b")

    async def fetch(collector: Any) -> None: ...

    def piecemeal(collector: Any) -> Iterator[int]:
        yield 1

    async def streamed(collector: Any) -> AsyncIterator[int]:
        yield 1

    class Fetch:
        async def __call__(self, collector: Any) -> None: ...

    class Sent:
        """A future, like the one that a producer of Kafka returns."""

        succeeded = failed = add_errback = lambda self: False

    class Polled:
        """A long operation of a cloud's library."""

        done = result = add_done_callback = lambda self: False

    class Cursor:
        """A cursor of a database, whose statement has run."""

        fetchone = __iter__ = lambda self: self

        def __next__(self) -> int:
            return 1

    with multiprocessing.pool.ThreadPool(1) as pool:
        undone: dict[str, Callable[[Any], object]] = {
            "coroutine": lambda _: fetch(None),
            "coroutine ": Fetch(),
            "generator": lambda _: piecemeal(None),
            "async_generator": lambda _: streamed(None),
            "Future": lambda _: waiting,
            "Future ": lambda _: [1, {"a": 1}, waiting],
            "Sent": lambda _: Sent(),
            "Polled": lambda _: Polled(),
            "Thread": lambda _: {"thread": thread},
            "map": lambda _: map(print, [1]),
            "ApplyResult": lambda _: pool.apply_async(stop.wait),
            "coroutine  ": lambda collector: [fetch(collector), fetch(collector)],
        }
        for kind, function in undone.items():
            assert bolt.basic(function)(spout.emit("m")[0]) is None
            [outcome] = reported(spout)
            assert (outcome.status, outcome.retry) == ("failed", False)
            assert f"got one that returned a {kind.strip()}: its work is not done" in outcome.reason
        stop.set()
    waiting.set_exception(KeyError("late"))
    with pytest.raises(KeyError):
        bolt.basic(undone["Future"])(spout.emit("m")[0])
    assert reported(spout)[0].reason == "KeyError: 'late'"
    loop = asyncio.new_event_loop()
    at_once = loop.create_future()
    at_once.set_result(1)
    loop.close()
    done: list[Callable[[Any], object]] = [
        lambda _: at_once,
        lambda _: Cursor(),
        lambda _: {"a": [1]},
        lambda _: io.StringIO("a"),
    ]
    for function in done:
        assert bolt.basic(function)(spout.emit("m")[0]) is not None
    assert [one.status for one in reported(spout, 4)] == ["acked"] * 4


def test_what_does_its_work_after_it_returned_is_no_basic_bolt(make: Make) -> None:
    def generator(collector: Any) -> Iterator[int]:
        yield 1

    async def coroutine(collector: Any) -> None: ...

    for function in (generator, coroutine):
        with pytest.raises(ValidationError, match="plain function"):
            make().bolt("b").basic(function)
