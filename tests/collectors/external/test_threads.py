"""Threads, forked children and signal handlers: what they may share, and what is an error."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from acker import AckerError, AsyncTopology, TupleError
from acker.collectors.external.exchange import Exchange
from acker.collectors.external.receiving import Receiver
from acker.streams.staging.external.rows.stamps import Stamp
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source

THREADS, ROWS = 4, 200


def in_a_child(work: Callable[[], str]) -> str:
    """The text of a function that runs in a forked child, which must not fail there."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(writing, work().encode())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    return os.read(reading, 10_000).decode()


def test_threads_extract_stamp_and_ack_while_others_flush(make: Make) -> None:
    made, step, last = make(ackers=2), make(ackers=2), make(ackers=2)
    items, words = step.incoming("items", subscription="split"), step.outgoing("words", segment_rows=1)
    counting = last.incoming("words", subscription="count")
    headers = source(made, ROWS, rows=1)
    made.flush()
    sent, refused, working = list[tuple[int, Any]](), list[str](), threading.Event()

    def work(thread: int) -> None:
        for number in range(thread, ROWS, THREADS):
            row = items.extract(headers[number])
            sent.append((number, words.inject([], row)))
            items.fail(row, "bad") if number % 10 == 0 else items.ack(row)

    def flush() -> None:
        while not working.is_set():
            try:
                step.flush()
            except TupleError as error:
                refused.append(str(error))

    with ThreadPoolExecutor(THREADS + 2) as pool:
        flushing = [pool.submit(flush) for _ in range(2)]
        for done in [pool.submit(work, number) for number in range(THREADS)]:
            done.result()
        working.set()
        for done in flushing:
            done.result()
    step.flush()
    assert all("rows are neither acked nor failed" in error for error in refused)
    failed = ROWS // 10
    assert [made.counters()[name] for name in ("acked", "failed")] == [0, failed], "no word is counted yet"
    counting.ack(counting.extract_many([one for number, one in sent if number != 7]))
    last.flush()
    assert made.counters()["acked"] == ROWS - failed - 1
    counting.ack(counting.extract_many([one for number, one in sent if number == 7]))
    last.flush()
    assert made.counters()["acked"] == ROWS - failed


def test_a_row_is_ended_by_one_thread_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, ROWS)
    made.flush()
    rows = items.extract_many(headers)
    check, barrier = Receiver._check, threading.Barrier(THREADS)

    def checked(self: Receiver, row: Any, doing: str) -> None:
        check(self, row, doing)
        time.sleep(0)  # another thread runs

    monkeypatch.setattr(Receiver, "_check", checked)

    def end(thread: int) -> int:
        barrier.wait(30)
        won = 0
        for row in rows:
            with contextlib.suppress(TupleError):
                items.ack(row) if thread % 2 else items.fail(row, f"{thread}")
                won += 1
        return won

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(end, range(THREADS))) == len(rows)
    step.flush()
    counters = made.counters()
    assert counters["acked"] + counters["failed"] == ROWS


def test_a_forked_child_cannot_end_or_stamp_a_row_of_its_parent(make: Make) -> None:
    made, step, last = make(), make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words")
    counting = last.incoming("words", subscription="count")
    headers = source(made, 1)
    made.flush()
    row = items.extract(headers[0], where="items/0@1")
    child = os.fork()
    if not child:
        status = 1
        try:
            calls: list[Callable[[], object]] = [
                lambda: items.ack(row),
                lambda: items.fail(row),
                lambda: words.stamp(row),
            ]
            for call in calls:
                with pytest.raises(
                    TupleError, match="'items/0@1' was extracted before this process was forked"
                ):
                    call()
            step.flush()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert made.counters()["acked"] == 0
    text = words.stamp(row)
    items.ack(row)
    step.flush()
    assert made.counters()["acked"] == 0
    counting.ack(counting.read([text]))
    last.flush()
    assert made.counters()["acked"] == 1


async def test_a_forked_child_of_an_event_loop_cannot_use_rows_and_segments_of_its_parent(
    make: Make, url: str
) -> None:
    made, last = make(), make()
    counting = last.incoming("words", subscription="count")
    async with AsyncTopology(url, "t") as step:
        items = await step.incoming("items", subscription="split")
        words = await step.outgoing("words")
        headers, tuple_ = source(made, 2), made.spout("s").emit("m2")[0]
        made.flush()
        rows = [await items.extract(one, where=f"items/0@{place}") for place, one in enumerate(headers)]
        texts = [words.stamp(rows[0])]

        def inherited() -> str:
            calls: list[Callable[[], object]] = [
                lambda: items.ack(rows[1]),
                lambda: items.fail(rows[1]),
                lambda: words.stamp(rows[1]),
                lambda: words.stamps(rows[1:]),
            ]
            for call in calls:
                with pytest.raises(TupleError, match="'items/0@1' was extracted before this process"):
                    call()
            return words.stamp(tuple_) or ""

        stamps = counting._seal.read_many([texts[0], in_a_child(inherited)])  # type: ignore[union-attr]
        assert len({one.token for one in stamps if isinstance(one, Stamp)}) == 2, (
            "a segment is of one process"
        )
        texts.append(words.stamp(rows[1]))
        items.ack(rows)
        await step.flush()
        assert made.counters()["acked"] == 0
    counting.ack(counting.read(texts))
    last.flush()
    assert made.counters()["acked"] == 2


def test_a_signal_handler_in_the_middle_of_a_call_gets_an_error(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    headers = source(made, 2)
    made.flush()
    row = items.extract(headers[0])
    calls: tuple[Callable[[], object], ...] = (
        step.flush,
        lambda: items.extract(headers[1]),
        lambda: items.ack(row),
        lambda: items.fail(row),
        lambda: words.stamp(row),
    )
    freeze, raised = Exchange._freeze, list[str]()

    def handler(self: Exchange) -> None:
        for call in calls:
            with pytest.raises(AckerError, match="a signal handler has called") as error:
                call()
            raised.append(str(error.value))
        freeze(self)

    items.ack(row)
    monkeypatch.setattr(Exchange, "_freeze", handler)
    step.flush()
    assert len(raised) == len(calls)
    monkeypatch.undo()
    items.ack(items.extract(headers[1]))
    step.flush()
    assert made.counters()["acked"] == 2
