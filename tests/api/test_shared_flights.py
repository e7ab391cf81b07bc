"""Operations of a service that share flights: fewer exchanges, and the answers and errors of each alone."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from acker.embedded import EmbeddedServer
from acker.errors import StoreError, StoreUnavailable
from acker.inspect.topology import history
from acker.ledger.client import open_ledger
from acker.store import keys
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import Operation, Reply, Request, command
from api.service.service import Service
from api.service.shared_flights import SharedFlights
from api.settings.settings import Settings
from api.streams.live import Live


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of requests of each flight."""
    send, flights = AsyncStore.send, list[int]()

    async def counting(store: AsyncStore, requests: Sequence[Request]) -> list[Reply]:
        flights.append(len(requests))
        return await send(store, requests)

    monkeypatch.setattr(AsyncStore, "send", counting)
    return flights


def doubled(name: str, times: int) -> Operation[list[Any]]:
    """An operation of several batches, each of two requests."""
    key, answers = keys.config(name), list[Any]()
    for number in range(times):
        _, answer = yield [command("HSET", key, "number", number), command("HGET", key, "number")]
        answers.append(answer)
    return answers


def sharing(url: str, work: Callable[[SharedFlights], Awaitable[None]], timeout: float = 10.0) -> None:
    async def run() -> None:
        async with SharedFlights(url, timeout=timeout) as store:
            await work(store)

    asyncio.run(run())


def test_operations_side_by_side_are_sent_as_one(url: str, sent: list[int]) -> None:
    async def work(store: SharedFlights) -> None:
        answers = await asyncio.gather(*(store.run(doubled(f"t{n}", 1 + n % 3)) for n in range(300)))
        assert answers == [[b"%d" % number for number in range(1 + n % 3)] for n in range(300)]
        assert (sum(sent), max(sent), len(sent) < 10) == (1_200, 512, True), sent
        await store.send([command("UNLINK", keys.config(f"t{n}")) for n in range(300)])

    sharing(url, work)


def test_operations_on_a_cluster_wait_for_no_others_server() -> None:
    assert not SharedFlights("redis+cluster://127.0.0.1").shares


def test_a_refusal_and_a_cancellation_are_of_their_own_operation_alone(url: str, raw: Any) -> None:
    raw.set(keys.config("bad"), "no hash", ex=600)

    async def work(store: SharedFlights) -> None:
        tasks = [asyncio.create_task(store.run(doubled(name, 2))) for name in ("a", "bad", "b", "gone")]
        await asyncio.sleep(0)
        tasks[3].cancel()
        a, bad, b, gone = await asyncio.gather(*tasks, return_exceptions=True)
        assert a == b == [b"0", b"1"]
        assert isinstance(bad, StoreError)
        assert isinstance(gone, asyncio.CancelledError)

    sharing(url, work)
    raw.delete(*(keys.config(name) for name in ("a", "bad", "b", "gone")))


def test_a_store_that_is_away_is_away_for_all(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server()
    url = server.url

    async def work(store: SharedFlights) -> None:
        assert await store.run(doubled("a", 1)) == [b"0"]
        server.stop()
        found = await asyncio.gather(*(store.run(doubled(name, 1)) for name in "abc"), return_exceptions=True)
        assert [type(one) for one in found] == [StoreUnavailable] * 3

    sharing(url, work, timeout=0.3)


def test_a_beat_reads_all_topologies_in_few_flights_and_a_damaged_one_alone(
    url: str, raw: Any, sent: list[int]
) -> None:
    names = [f"t{number:02}" for number in range(30)]
    for name in names:
        open_ledger(Store(url), name, ackers=2)
    damaged = open_ledger(Store(url), "damaged", ackers=1).core.shards[0].counters

    def written() -> list[int]:
        return [raw.xlen(keys.history(name, history.STEPS["10m"])) for name in names]

    async def run() -> None:
        async with Service(Settings(url=url, ticker=False)) as service:  # type: ignore[arg-type]
            live = Live(service)
            sent.clear()
            await live.beat()
            assert len(sent) < 31, "they are 31 times 4 and more, each alone"
            before, deadline = written(), time.monotonic() + 60
            assert min(before) > 0
            raw.set(damaged, "no hash", ex=600)
            while any(now == then for now, then in zip(written(), before, strict=True)):
                assert time.monotonic() < deadline
                await live.beat()

    asyncio.run(run())
    raw.delete(damaged)
