"""The asyncio twin: the same answers, the same care."""

import asyncio
import gc
import pickle
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, suppress

import pytest
import redis
from redis.asyncio import Connection

from acker.embedded import EmbeddedServer
from acker.errors import (
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    TopologyConfigError,
    UnknownTopology,
)
from acker.inspect.trees import pages
from acker.ledger import async_ledger, ids
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.calls.calls import Failed, Ticked
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.counts import counters
from acker.ledger.tick.async_ticker import AsyncTicker
from acker.ledger.trees import trees
from acker.ledger.trees.trees import Tree
from acker.store.async_client import AsyncStore
from acker.store.client import CONNECTIONS, Store
from acker.store.operation import Request, command
from tests.helpers.faults.proxy import Proxy, proxied, refusing, silent
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "twin", ackers=2, message_timeout=60.0)


@pytest.fixture
async def store(url: str) -> AsyncIterator[AsyncStore]:
    async with AsyncStore(url) as opened:
        yield opened


@pytest.fixture
async def twin(store: AsyncStore, ledger: Ledger) -> AsyncLedger:
    return await async_ledger.open_ledger(store, "twin", create=False)


async def tree(twin: AsyncLedger, anchor: int) -> Tree | None:
    return await twin.run(trees.tree(twin.core, anchor))


def track(ledger: Ledger, count: int = 10) -> list[int]:
    anchors = ids.new_anchors(count)
    ledger.track(anchors, ids.new_ids(count), [f"m{index}" for index in range(count)], spout="s")
    return [int(anchor) for anchor in anchors]


async def test_operations_are_those_of_the_ledger(ledger: Ledger, twin: AsyncLedger) -> None:
    anchors = track(ledger)
    assert twin.config == ledger.config
    assert await twin.send(twin.core.fail(ids.as_ids(anchors[:3]), b"by hand")) == Failed(failed=3)
    assert await twin.run(counters(twin.core)) == ledger.counters()
    first = await twin.run(pages.trees(twin.core, limit=4))
    rest = await twin.run(pages.trees(twin.core, limit=4, cursor=first.cursor))
    assert [shown.anchor for shown in first.trees + rest.trees] == anchors[3:]


async def test_topologies_are_opened_and_compared(store: AsyncStore) -> None:
    assert await async_ledger.names(store) == []
    with pytest.raises(UnknownTopology):
        await async_ledger.open_ledger(store, "new", create=False)
    await async_ledger.open_ledger(store, "new", ackers=3)
    with pytest.raises(TopologyConfigError):
        await async_ledger.open_ledger(store, "new", ackers=4)
    assert await async_ledger.names(store) == ["new"]


async def test_lost_scripts_are_loaded_again(ledger: Ledger, twin: AsyncLedger, raw: "redis.Redis") -> None:
    anchors = track(ledger)
    raw.script_flush()
    assert await twin.send(twin.core.fail(ids.as_ids(anchors[:1]), b"")) == Failed(failed=1)
    raw.script_flush()
    assert await tree(twin, anchors[0]) is not None


async def test_many_calls_share_one_pool(ledger: Ledger, twin: AsyncLedger, raw: "redis.Redis") -> None:
    anchors = track(ledger, 500)
    before = {client["id"] for client in raw.client_list()}  # other tests may have left theirs open
    found = await asyncio.gather(*(tree(twin, anchor) for anchor in anchors))
    assert [one.anchor for one in found if one] == anchors
    assert len({client["id"] for client in raw.client_list()} - before) <= CONNECTIONS


async def test_a_cancelled_call_leaves_no_reply_to_the_next_one(ledger: Ledger, twin: AsyncLedger) -> None:
    anchors = track(ledger, 100)
    for turn in range(50):
        calls = [asyncio.ensure_future(tree(twin, anchor)) for anchor in anchors[:20]]
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        for anchor, found in zip(anchors, done, strict=False):
            if not isinstance(found, BaseException):
                assert found is not None
                assert found.anchor == anchor


@pytest.mark.one_server
@pytest.mark.parametrize("away", [refusing, silent])
async def test_a_cancelled_call_ends_at_any_turn_though_its_server_is_away(
    url: str, away: Callable[[Proxy], "AbstractContextManager[threading.Event]"]
) -> None:
    with proxied(url) as proxy, away(proxy):
        for turns in range(40):
            store = AsyncStore(proxy.url, timeout=60.0)
            call = asyncio.create_task(store.send([command("GET", b"key")]))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            ended, _ = await asyncio.wait([call], timeout=10.0)
            assert ended, turns
            await store.aclose()


async def test_a_call_is_cancelled_whichever_of_its_turns_it_was_cancelled_at(store: AsyncStore) -> None:
    call = asyncio.create_task(store.send([command("GET", b"key")]))
    turns = 0
    while not call.done():
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled(), turns
        turns += 1
        call = asyncio.create_task(store.send([command("GET", b"key")]))
        for _ in range(turns):
            await asyncio.sleep(0)
    assert await call == [None]


@pytest.mark.one_server
async def test_a_call_cancelled_while_a_connection_opens_leaves_no_reply_to_the_next_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[asyncio.Task[object]]()
    send = Connection._send_packed_command

    async def cancel_behind_select(self: Connection, words: list[bytes]) -> None:
        await send(self, words)
        if calls and b"SELECT" in b"".join(words):
            calls.pop().cancel()

    monkeypatch.setattr(Connection, "_send_packed_command", cancel_behind_select)
    with proxied(url) as proxy:
        proxy.passed = lambda _, request: time.sleep(0.2 if b"SELECT" in request else 0)
        async with AsyncStore(proxy.url.removesuffix("/0") + "/1") as store:
            first = asyncio.create_task(store.send([Request(b"list", ["BLPOP", b"list", 60])]))
            with redis.Redis.from_url(url) as raw:
                await asyncio.to_thread(wait_until, lambda: raw.info("clients")["blocked_clients"])
                calls.append(call := asyncio.create_task(store.send([command("GET", b"key")])))
                await asyncio.wait([call])
                assert call.cancelled()
                assert await store.send([command("STRLEN", b"key"), command("GET", b"key")]) == [0, None]
                raw.select(1)
                raw.lpush("list", "end")
            assert await first == [[b"list", b"end"]]


async def test_a_refused_command_is_an_error_and_the_connection_stays_good(store: AsyncStore) -> None:
    with pytest.raises(StoreError):
        await store.send([command("HGET", b"key")])
    assert await store.send([command("GET", b"key")]) == [None]


async def test_a_store_that_is_away_is_reported_after_a_bounded_time() -> None:
    async with AsyncStore("redis://:secret@127.0.0.1:1/0", timeout=0.3) as store:
        with pytest.raises(StoreUnavailable) as reported:
            await async_ledger.names(store)
        assert "secret" not in f"{reported.value} {store!r}"


async def test_a_store_that_comes_back_is_used_again(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server()
    async with AsyncStore(server.url, timeout=0.3) as store:

        async def answer() -> int:
            """A busy machine may take longer than 0.3 s."""
            while True:
                with suppress(StoreUnavailable):
                    twin = await async_ledger.open_ledger(store, "kept", ackers=1)
                    return (await twin.run(counters(twin.core)))["tracked"]

        assert await answer() == 0
        server.kill()
        with pytest.raises(StoreUnavailable):
            await async_ledger.open_ledger(store, "kept", ackers=1)
        server.restart()
        assert await answer() == 0


async def test_a_resent_submission_counts_once(ledger: Ledger, twin: AsyncLedger, store: AsyncStore) -> None:
    anchors = track(ledger)
    submission = twin.core.fail(ids.as_ids(anchors[:4]), b"")
    assert await twin.send(submission) == Failed(failed=4)
    for call in submission.calls:
        call.reply = None
    assert await twin.send(submission) == Failed(failed=4)
    assert ledger.counters()["failed"] == 4


async def test_a_misconfigured_store_is_refused(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server(options={"maxmemory-policy": "allkeys-lru"})
    async with AsyncStore(server.url) as store:
        with pytest.raises(StoreMisconfigured):
            await async_ledger.names(store)


def test_each_event_loop_has_its_own_connections(url: str, ledger: Ledger) -> None:
    store = AsyncStore(url)

    async def read() -> list[str]:
        try:
            return await async_ledger.names(store)
        finally:
            await store.aclose()

    names: list[list[str]] = []
    threads = [threading.Thread(target=lambda: names.append(asyncio.run(read()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    names.append(asyncio.run(read()))
    assert names == [["twin"]] * 5


async def test_a_store_pickles_without_its_connections(store: AsyncStore, ledger: Ledger) -> None:
    await async_ledger.names(store)
    async with pickle.loads(pickle.dumps(store)) as copy:
        assert (copy.url, copy.timeout, copy.cluster) == (store.url, store.timeout, store.cluster)
        assert await async_ledger.names(copy) == ["twin"]


async def test_closing_leaves_no_connection(url: str, ledger: Ledger, raw: "redis.Redis") -> None:
    before = len(raw.client_list())
    store = AsyncStore(url)
    await asyncio.gather(*(async_ledger.names(store) for _ in range(5)))
    await store.aclose()
    await store.aclose()
    gc.collect()
    await asyncio.to_thread(wait_until, lambda: len(raw.client_list()) <= before)


async def test_one_node_of_a_cluster_is_enough_of_one(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server(options={"cluster-enabled": "yes"}, append_only=False)
    with redis.Redis.from_url(server.url) as raw:
        raw.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await asyncio.to_thread(
            wait_until, lambda: b"cluster_state:ok" in raw.execute_command("CLUSTER", "INFO")
        )
    async with AsyncStore(server.url, cluster=True) as store:
        twin = await async_ledger.open_ledger(store, "wide", ackers=4)
        anchors = ids.new_anchors(3)
        assert await twin.send(twin.core.fail(anchors, b"early")) == Failed()
        found = await tree(twin, int(anchors[0]))
        assert found is not None
        assert found.failure == "early"


async def test_the_ticker_runs_on_the_loop(url: str, store: AsyncStore) -> None:
    ledger = open_ledger(Store(url), "brief", ackers=1, message_timeout=1.0)
    track(ledger, 3)
    stop = asyncio.Event()
    ticked = asyncio.Event()

    def reported(name: str, done: Ticked) -> None:
        assert name == "brief"
        if done.expired:
            ticked.set()

    task = asyncio.create_task(AsyncTicker(store, on_tick=reported).run(stop))
    await asyncio.wait_for(ticked.wait(), 60)
    assert ledger.counters()["expired"] == 3
    stop.set()
    await asyncio.wait_for(task, 10)


async def test_a_ticker_can_be_cancelled(url: str, store: AsyncStore) -> None:
    open_ledger(Store(url), "slow", message_timeout=86_400.0)
    task = asyncio.create_task(AsyncTicker(store).run(asyncio.Event()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)


async def test_a_ticker_waits_for_a_store_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    stop = asyncio.Event()
    async with AsyncStore("redis://127.0.0.1:1/0", timeout=0.2) as store:
        task = asyncio.create_task(AsyncTicker(store).run(stop))
        await asyncio.to_thread(wait_until, lambda: "no ticks for now" in caplog.text)
        stop.set()
        await asyncio.wait_for(task, 1)
