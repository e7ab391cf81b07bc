"""External streams on an event loop: nothing blocks it, and a call may be cancelled at any of its awaits."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import pytest

from acker import AckerError, AsyncTopology, StoreUnavailable, TupleError
from acker.embedded import EmbeddedServer
from acker.store.operation import Reply, Request
from acker.streams.staging.external import commit as commits
from tests.helpers.builders.collectors import Make, reported, statuses
from tests.helpers.builders.external import source, work


class Cancelling:
    """Cancels the task that sends its `number`-th flight: before the flight, or when the server has it."""

    def __init__(self, topology: AsyncTopology, number: int, late: bool) -> None:
        self.left, self._late = number, late
        self._send: Callable[[Sequence[Request]], Coroutine[Any, Any, list[Reply]]] = topology._store.send
        topology._store.send = self.send  # type: ignore[method-assign]

    async def send(self, requests: Sequence[Request]) -> list[Reply]:
        self.left -= 1
        replies = await self._send(requests) if self._late or self.left else []
        if not self.left:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return replies


async def until_done(call: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> Any:
    """The result of a call that is repeated where it was cancelled."""
    while True:
        try:
            return await call(*given)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()


async def test_a_thread_computes_what_a_flush_sends(
    make: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, at_work, carry_out = make(), set[int](), commits.carry_out

    def noting(*given: Any) -> Any:
        at_work.add(threading.get_ident())
        return (yield from carry_out(*given))

    monkeypatch.setattr(commits, "carry_out", noting)
    async with AsyncTopology(url, "t") as step:
        items = await step.incoming("items", subscription="count")
        headers = source(made, 3)
        await asyncio.to_thread(made.flush)
        at_work.clear()
        items.ack(await items.extract_many(headers))
        await step.flush()
    assert made.counters()["acked"] == 3
    assert at_work
    assert threading.get_ident() not in at_work


@pytest.mark.parametrize("late", [False, True])
async def test_a_record_is_acked_once_wherever_a_call_was_cancelled(make: Make, url: str, late: bool) -> None:
    number, cancelled = 0, True
    while cancelled:
        number += 1
        name = f"t{number}"
        made, last = make(name), make(name)
        last.incoming("words", subscription="count")
        async with AsyncTopology(url, name) as step:
            items = await step.incoming("items", subscription="split")
            words = await step.outgoing("words")
            headers = source(made, 3)
            made.flush()
            cancelling = Cancelling(step, number, late)
            rows = await until_done(items.extract_many, headers)
            texts = words.stamps(rows)
            items.ack(rows[:2])
            items.fail(rows[2], "no word")
            await until_done(step.flush)
            assert made.counters()["acked"] == 0
            counting = last.incoming("words", subscription="count")
            counting.ack(counting.read(texts[:1]))
            last.flush()
            assert made.counters()["acked"] == 0, "its segment has other rows"
            counting.ack(counting.read(texts))
            last.flush()
            counters = made.counters()
            assert [counters["acked"], counters["failed"]] == [2, 1]
            cancelled = cancelling.left <= 0
    assert number > 4


async def test_a_loop_sends_rows_of_tuples_and_receives_them(make: Make, url: str) -> None:
    made = make()
    spout, bolt = made.spout("s"), made.bolt("b")
    async with AsyncTopology(url, "t") as topology:
        items = await topology.incoming("items", subscription="count")
        out = await topology.outgoing("items")
        taken = [spout.emit(f"m{number}")[0] for number in range(3)]
        headers = [out.inject({"n": b"1"}, one) for one in taken]
        with pytest.raises(TupleError, match="taken over by an external stream"):
            bolt.ack(taken[0])
        await asyncio.gather(*(topology.flush() for _ in range(3)))
        rows = await asyncio.gather(*(items.extract(one, where="here") for one in headers))
        with pytest.raises(TupleError, match="3 rows are neither acked nor failed: 'here', 'here', 'here'"):
            await topology.flush()
        items.ack(rows)
        await topology.flush()
        assert items.counted == {"rows": 3}
    assert set(statuses(reported(spout, 3)).values()) == {"acked"}


async def test_a_delivery_that_fails_on_the_loop_fails_its_record_alone(make: Make, url: str) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    spout = made.spout("s")
    async with AsyncTopology(url, "t") as topology:
        out = await topology.outgoing("items")
        headers = [out.inject([], spout.emit(f"m{number}")[0]) for number in range(4)]
        futures = [asyncio.get_running_loop().create_future() for _ in headers]
        for future, one in zip(futures, headers, strict=True):
            future.add_done_callback(out.reports(one))
        futures[0].set_result("delivered")
        futures[1].set_exception(OSError("no broker"))
        futures[2].cancel()
        futures[3].set_result("delivered")
        await topology.flush()  # the callbacks were not called yet
    work(step, [headers[0], headers[3]])
    step.flush()
    found = {one.message_id: (one.status, one.reason) for one in reported(spout, 4)}
    assert found[b"m1"] == ("failed", "a row of items was not delivered: OSError('no broker')")
    assert found[b"m2"] == ("failed", "a row of items was not delivered: 'cancelled'")
    assert found[b"m0"] == found[b"m3"] == ("acked", "")


async def test_the_loop_goes_on_while_the_store_is_away(make: Make, away: EmbeddedServer) -> None:
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    async with AsyncTopology(away.url, "t", timeout=1.0) as topology:
        items = await topology.incoming("items", subscription="count")
        items.ack(await items.extract_many([None] * 3))
        away.stop()
        task = asyncio.create_task(turning())
        with pytest.raises(StoreUnavailable):
            await topology.flush()
        task.cancel()
        assert turns > 5
        away.start()
        for _ in range(30):  # on a busy machine one may take longer than the timeout
            with suppress(StoreUnavailable):
                await topology.flush()
                break
        else:
            pytest.fail("the store is back, and no flush has reached it")


def test_another_event_loop_is_an_error_and_so_is_a_closed_topology(url: str) -> None:
    topology = AsyncTopology(url, "t")

    async def first() -> None:
        await topology.incoming("items", subscription="count")
        await topology._store.aclose()

    asyncio.run(first())
    with pytest.raises(AckerError, match="'t' belongs to another event loop: make an AsyncTopology for each"):
        asyncio.run(topology.flush())

    async def closed() -> None:
        async with AsyncTopology(url, "t") as inner:
            pass
        with pytest.raises(AckerError, match="'t' is closed"):
            await inner.flush()

    asyncio.run(closed())


async def test_a_topology_that_is_off_tracks_nothing_and_asks_no_store() -> None:
    async with AsyncTopology("redis://127.0.0.1:1", "t", enabled=False) as topology:
        items = await topology.incoming("items", subscription="count")
        words = await topology.outgoing("words")
        row = await items.extract([("acker-stamp", b"a1-junk"), ("a", b"1")])
        assert words.inject([("acker-stamp", b"a1-junk"), ("a", b"1")], row) == [("a", b"1")]
        items.ack(row)
        await topology.flush()
        assert items.counted == {"rows": 1}
