"""Rows of streams with a linger are sent without a flush of the program, with the rows made of them."""

import asyncio
import gc
import multiprocessing
import subprocess
import sys
import weakref
from typing import Any

import pytest

from acker import Topology
from acker.collectors.external import lingering
from acker.collectors.external.event_loop.async_topology import AsyncTopology
from acker.errors import TupleError, ValidationError
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source
from tests.helpers.servers.servers import wait_until


def test_rows_are_sent_after_the_shortest_linger_without_a_flush(make: Make) -> None:
    made, step, last = make(), make(), make()
    items = step.incoming("items", subscription="count", linger=60.0)
    words = step.outgoing("words", linger=0.01)
    sink = last.incoming("words", subscription="sink", linger=0.01)
    headers = source(made, 3)
    made.flush()
    rows = items.extract_many(headers)
    texts = [words.stamp(row) for row in rows]
    items.ack(rows[:2])
    items.fail(rows[2], "no such word")
    sink.ack(sink.read(texts))
    wait_until(lambda: made.counters()["acked"] == 2)
    assert made.counters()["failed"] == 1


def test_a_spouts_rows_are_sent_after_their_linger(make: Make) -> None:
    made, step = make(linger=0.01), make()
    items = step.incoming("items", subscription="count")
    spout, out = made.spout("s"), made.outgoing("items", linger=0.01)
    items.ack(items.read([out.stamp(spout.emit("m")[0])]))
    step.flush()
    wait_until(lambda: made.counters()["acked"] == 1)


def test_nothing_is_sent_while_a_row_is_in_work(make: Make) -> None:
    """Its ack and the rows that are made of it belong to one commit: a shard may be set back between two."""
    made, step = make(), make()
    items = step.incoming("items", subscription="count", linger=0.01)
    words = step.outgoing("words")
    made.incoming("words", subscription="sink")
    headers = source(made, 2)
    made.flush()
    exchange: Any = step._exchange
    done, at_work = items.extract_many(headers)
    words.stamp(done)
    items.ack(done)
    words.stamp(at_work)
    wait_until(lambda: exchange.due)
    assert made.counters()["late"] == made.counters()["acked"] == 0
    assert (exchange.rows, exchange._pending) == (4, [])
    items.ack(at_work)
    assert (exchange.rows, exchange.due) == (0, False), "the ack gives all of them to the flush"
    wait_until(lambda: not exchange.waits)


def test_a_row_that_is_long_in_work_is_named_in_the_log_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lingering, "LONG", 0.01)
    made, step = make(), make()
    items = step.incoming("items", subscription="count", linger=0.01)
    headers = source(made, 2)
    made.flush()
    items.ack(items.extract(headers[0]))
    left = items.extract(headers[1], "items/3@1204")
    wait_until(lambda: "items/3@1204" in caplog.text)
    exchange: Any = step._exchange
    exchange.flush(lingered=True)
    items.ack(left)
    wait_until(lambda: made.counters()["acked"] == 2)
    assert caplog.text.count("items/3@1204") == 1


def test_a_row_that_is_given_up_lets_the_others_go(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count", linger=0.01)
    headers = source(made, 2)
    made.flush()
    exchange: Any = step._exchange
    done, left = items.extract_many(headers)
    items.ack(done)
    wait_until(lambda: exchange.due)
    exchange.give_up(left)
    wait_until(lambda: made.counters()["acked"] == 1)


def test_a_tuple_is_stamped_once_because_a_flush_may_ack_it_at_any_time(make: Make) -> None:
    made = make()
    made.incoming("items", subscription="count")
    spout, bolt, out = made.spout("s"), made.bolt("b"), made.outgoing("items", linger=60.0)
    [tracked] = spout.emit("m")
    out.stamp(tracked)
    with pytest.raises(TupleError, match="taken over by an external stream"):
        out.stamp(tracked)
    bolt.fail(tracked, "it is open again")


def test_a_topology_that_is_closed_sends_rows_that_linger(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count", linger=60.0)
    headers = source(made, 1)
    made.flush()
    items.ack(items.extract_many(headers))
    step.close()
    assert made.counters()["acked"] == 1


def test_rows_linger_until_they_are_sent_though_nobody_holds_their_topology(make: Make, url: str) -> None:
    made = make()
    made.incoming("words", subscription="sink")
    made.incoming("items", subscription="count")
    headers = source(made, 1)
    made.flush()

    def work() -> tuple[Any, str | None]:
        """Works on a row, and holds nothing of the step then but a row's text."""
        step = Topology(url, "t", linger=15.0)
        items = step.incoming("items", subscription="count", linger=0.5)
        text = step.outgoing("words").stamp(row := items.extract(headers[0]))
        items.ack(row)
        return weakref.ref(step._exchange), text

    exchange, text = work()
    gc.collect()
    sink = made.incoming("words", subscription="sink")
    sink.ack(sink.read([text]))
    made.flush()
    wait_until(lambda: made.counters()["acked"] == 1)
    wait_until(lambda: gc.collect() >= 0 and exchange() is None)


def test_a_stream_that_is_opened_while_rows_linger_does_not_drop_them(make: Make, url: str) -> None:
    made = make()
    made.incoming("items", subscription="count")
    headers = source(made, 1)
    made.flush()

    def work() -> None:
        step = Topology(url, "t", linger=15.0)
        items = step.incoming("items", subscription="count", linger=0.5)
        items.ack(items.extract_many(headers))
        step.outgoing("words", linger=0.5)

    work()
    gc.collect()
    wait_until(lambda: made.counters()["acked"] == 1)


def test_rows_that_wait_for_a_forgotten_row_keep_nothing_for_ever(
    make: Make, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lingering, "LONG", 0.05)
    made = make()
    made.incoming("items", subscription="count")
    headers = source(made, 2)
    made.flush()

    def work() -> Any:
        """Works on one of two rows."""
        step = Topology(url, "t", linger=15.0)
        items = step.incoming("items", subscription="count", linger=0.01)
        items.ack(items.extract_many(headers)[0])
        return weakref.ref(step._exchange)

    exchange = work()
    wait_until(lambda: gc.collect() >= 0 and exchange() is None)
    assert "rows are neither acked nor failed: position" in caplog.text


ENDING = """
import sys
from acker import Topology
made = Topology(sys.argv[1], "t", linger=15.0)
items = made.incoming("items", subscription="count", linger=60.0)
spout, out = made.spout("s"), made.outgoing("items", linger=60.0)
items.ack(items.read([out.stamp(spout.emit("m")[0])]))
"""


def test_a_process_that_ends_sends_rows_that_linger(make: Make, url: str) -> None:
    subprocess.run([sys.executable, "-c", ENDING, url], check=True, timeout=120)
    assert make().counters()["acked"] == 1


kept: list[Topology] = []
"""Topologies of a child process, which it has until its end."""


def ack_and_end(url: str, headers: Any) -> None:
    kept.append(Topology(url, "t", linger=15.0))
    items = kept[0].incoming("items", subscription="count", linger=60.0)
    items.ack(items.extract_many(headers))


def test_a_child_of_multiprocessing_sends_them_too(make: Make, url: str) -> None:
    made = make()
    made.incoming("items", subscription="count")
    headers = source(made, 1)
    made.flush()
    child = multiprocessing.get_context("fork").Process(target=ack_and_end, args=(url, headers))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert made.counters()["acked"] == 1


def test_a_store_that_is_away_gets_the_rows_when_it_is_back(make: Make, raw: Any) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count", linger=0.01)
    headers = source(made, 1)
    made.flush()
    rows = items.extract_many(headers)
    raw.execute_command("CLIENT", "KILL", "TYPE", "normal")
    items.ack(rows)
    wait_until(lambda: made.counters()["acked"] == 1)


@pytest.mark.parametrize("linger", [0, 0.001, 60.5, True, "1"])
def test_a_linger_has_a_range(make: Make, linger: Any) -> None:
    made = make()
    with pytest.raises(ValidationError, match=r"linger: expected float from 0.01 to 60"):
        made.incoming("items", subscription="count", linger=linger)
    with pytest.raises(ValidationError, match=r"linger: expected float from 0.01 to 60"):
        made.outgoing("items", linger=linger)


async def test_on_an_event_loop_a_task_sends_rows_after_their_linger(make: Make, url: str) -> None:
    made = make()
    async with AsyncTopology(url, made.name) as topology:
        items = await topology.incoming("items", subscription="count", linger=0.01)
        headers = source(made, 2)
        await asyncio.to_thread(made.flush)
        first, last = await items.extract_many(headers)
        items.ack(first)
        items.ack(last)
        await asyncio.to_thread(wait_until, lambda: made.counters()["acked"] == 2)


async def test_the_task_outlives_an_error_that_is_not_of_acker(make: Make, url: str) -> None:
    made = make()
    async with AsyncTopology(url, made.name) as topology:
        items = await topology.incoming("items", subscription="count", linger=0.01)
        headers = source(made, 1)
        await asyncio.to_thread(made.flush)
        exchange: Any = topology._exchange
        send = exchange.send

        async def fail() -> None:
            exchange.send = send
            raise MemoryError

        exchange.send = fail
        items.ack(await items.extract_many(headers))
        await asyncio.to_thread(wait_until, lambda: made.counters()["acked"] == 1 or exchange.task.done())
        assert made.counters()["acked"] == 1


async def test_the_task_ends_with_its_topology_when_its_rows_are_sent(make: Make, url: str) -> None:
    made = make()
    made.incoming("items", subscription="count")
    headers = source(made, 2)
    await asyncio.to_thread(made.flush)

    async def work() -> Any:
        """Works on rows, and holds nothing of the topology then but its task and its connections."""
        topology = AsyncTopology(url, made.name)
        items = await topology.incoming("items", subscription="count", linger=0.5)
        items.ack(await items.extract_many(headers))
        assert topology._exchange is not None
        return topology._store, topology._exchange.task

    store, task = await work()
    gc.collect()
    await asyncio.to_thread(wait_until, lambda: gc.collect() >= 0 and task.done())
    assert made.counters()["acked"] == 2
    await store.aclose()
