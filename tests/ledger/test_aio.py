"""The asyncio twin: the same answers, the same care."""

import asyncio
import gc
import pickle
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import redis

from acker.embedded import EmbeddedServer
from acker.errors import (
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    TopologyConfigError,
    UnknownTopology,
    ValidationError,
)
from acker.inspect import async_ledger
from acker.inspect.async_ledger import AsyncLedger
from acker.inspect.topology.totals import totals
from acker.inspect.trees import pages
from acker.ledger import ids
from acker.ledger.calls.calls import Failed, Ticked
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.tick import tick
from acker.ledger.tick.async_ticker import AsyncTicker
from acker.ledger.trees import trees
from acker.store.async_client import AsyncStore
from acker.store.client import CONNECTIONS, Store
from acker.store.operation import command
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


def track(ledger: Ledger, count: int = 10) -> list[int]:
    anchors = ids.new_anchors(count)
    ledger.track(anchors, ids.new_ids(count), [f"m{index}" for index in range(count)], spout="s")
    return [int(anchor) for anchor in anchors]


async def test_reads_are_those_of_the_ledger(ledger: Ledger, twin: AsyncLedger) -> None:
    anchors = track(ledger)
    ledger.fail(anchors[:2])
    ledger.update(anchors[2:3], [ledger.run(trees.tree(ledger.core, anchors[2])).value])  # type: ignore[union-attr]
    assert twin.config == ledger.config
    assert await twin.counters() == ledger.counters()
    assert await twin.latency(0.5) == ledger.latency(0.5) != [None]
    own, other = await twin.tree(anchors[5]), ledger.run(trees.tree(ledger.core, anchors[5]))
    assert own is not None
    assert other is not None
    assert (own.anchor, own.value, own.message_id) == (other.anchor, other.value, other.message_id)
    assert await twin.tree(anchors[0] + 100) is None
    first = await twin.trees(limit=4, bucket="nursery", spout="s", state="pending")
    rest = await twin.trees(limit=4, bucket="nursery", spout="s", state="pending", cursor=first.cursor)
    assert [tree.anchor for tree in first.trees + rest.trees] == anchors[3:]
    assert [tree.anchor for tree in (await twin.find("m7")).trees] == [anchors[7]]
    assert (await twin.totals()).buckets == ledger.run(totals(ledger.core)).buckets


async def test_an_operator_can_fail_reset_and_tick(ledger: Ledger, twin: AsyncLedger) -> None:
    anchors = track(ledger)
    assert await twin.fail(anchors[:3], "by hand") == Failed(failed=3)
    assert await twin.fail(anchors[:1]) == Failed(late=1)
    await twin.run(tick.rotate(twin.core, force=True))
    assert await twin.reset_timeout(anchors) == 1
    assert await twin.tick() == Ticked()
    for _ in range(3):
        await twin.run(tick.rotate(twin.core, force=True))
    assert await twin.drain(most=100) == Ticked(expired=7)
    assert await twin.tick(force=True) == Ticked(rotated=2)
    with pytest.raises(ValidationError):
        await twin.fail(anchors, "x" * 2000)


async def test_without_tracking_nothing_is_sent(store: AsyncStore) -> None:
    twin = await async_ledger.open_ledger(store, "untracked", ackers=0)
    assert await twin.fail([1, 2]) == Failed()
    assert await twin.reset_timeout([1]) == 0
    assert await twin.tick() == Ticked()
    assert await twin.trees() == pages.TreesPage((), None)


async def test_topologies_are_opened_and_compared(store: AsyncStore) -> None:
    assert await async_ledger.topologies(store) == []
    with pytest.raises(UnknownTopology):
        await async_ledger.open_ledger(store, "new", create=False)
    await async_ledger.open_ledger(store, "new", ackers=3)
    with pytest.raises(TopologyConfigError):
        await async_ledger.open_ledger(store, "new", ackers=4)
    assert await async_ledger.topologies(store) == ["new"]


async def test_lost_scripts_are_loaded_again(ledger: Ledger, twin: AsyncLedger, raw: "redis.Redis") -> None:
    anchors = track(ledger)
    raw.script_flush()
    assert await twin.fail(anchors[:1]) == Failed(failed=1)
    raw.script_flush()
    assert await twin.tree(anchors[0]) is not None


async def test_many_calls_side_by_side_share_a_bounded_pool(
    ledger: Ledger, twin: AsyncLedger, raw: "redis.Redis"
) -> None:
    anchors = track(ledger, 500)
    before = {client["id"] for client in raw.client_list()}  # other tests may have left theirs open
    found = await asyncio.gather(*(twin.tree(anchor) for anchor in anchors))
    assert [tree.anchor for tree in found if tree] == anchors
    assert len({client["id"] for client in raw.client_list()} - before) <= CONNECTIONS


async def test_a_cancelled_call_leaves_no_reply_to_the_next_one(ledger: Ledger, twin: AsyncLedger) -> None:
    anchors = track(ledger, 100)
    for turn in range(50):
        calls = [asyncio.ensure_future(twin.tree(anchor)) for anchor in anchors[:20]]
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        for anchor, tree in zip(anchors, done, strict=False):
            if not isinstance(tree, BaseException):
                assert tree is not None
                assert tree.anchor == anchor


async def test_a_refused_command_is_an_error_and_the_connection_stays_good(store: AsyncStore) -> None:
    with pytest.raises(StoreError):
        await store.send([command("HGET", b"key")])
    assert await store.send([command("GET", b"key")]) == [None]


async def test_a_store_that_is_away_is_reported_after_a_bounded_time() -> None:
    async with AsyncStore("redis://:secret@127.0.0.1:1/0", timeout=0.3) as store:
        with pytest.raises(StoreUnavailable) as reported:
            await async_ledger.topologies(store)
        assert "secret" not in f"{reported.value} {store!r}"


async def test_a_store_that_comes_back_is_used_again(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server()
    async with AsyncStore(server.url, timeout=0.3) as store:
        twin = await async_ledger.open_ledger(store, "kept", ackers=1)
        server.kill()
        with pytest.raises(StoreUnavailable):
            await twin.counters()
        server.restart()
        assert (await twin.counters())["tracked"] == 0


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
            await async_ledger.topologies(store)


def test_each_event_loop_has_its_own_connections(url: str, ledger: Ledger) -> None:
    store = AsyncStore(url)

    async def read() -> list[str]:
        try:
            return await async_ledger.topologies(store)
        finally:
            await store.aclose()

    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(read()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found.append(asyncio.run(read()))
    assert found == [["twin"]] * 5


async def test_a_store_pickles_without_its_connections(store: AsyncStore, ledger: Ledger) -> None:
    await async_ledger.topologies(store)
    async with pickle.loads(pickle.dumps(store)) as copy:
        assert (copy.url, copy.timeout, copy.cluster) == (store.url, store.timeout, store.cluster)
        assert await async_ledger.topologies(copy) == ["twin"]


async def test_closing_leaves_no_connection(url: str, ledger: Ledger, raw: "redis.Redis") -> None:
    before = len(raw.client_list())
    store = AsyncStore(url)
    await asyncio.gather(*(async_ledger.topologies(store) for _ in range(5)))
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
        assert await twin.fail(anchors, "early") == Failed()
        tree = await twin.tree(int(anchors[0]))
        assert tree is not None
        assert tree.failure == "early"
        assert len((await twin.trees()).trees) == 3
        assert (await twin.totals()).waiting == 1


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


async def test_a_ticker_waits_for_a_store_that_is_away() -> None:
    async with AsyncStore("redis://127.0.0.1:1/0", timeout=0.2) as store:
        assert 0 < await AsyncTicker(store).step() <= 5.0
