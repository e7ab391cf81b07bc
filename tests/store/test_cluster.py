"""A cluster whose slots move, whose masters die and hang: the client recovers, nothing is applied twice."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from redis.crc import key_slot

from acker.errors import StoreMisconfigured, StoreUnavailable
from acker.ledger import ids
from acker.ledger.calls.calls import Submission, Updated
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes import counts
from acker.ledger.tick.ticker import Ticker
from acker.store import keys
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import command
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.servers.clusters import Cluster
from tests.helpers.servers.servers import KINDS, binary, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE = 90.0
"""Seconds: on a loaded machine a replica takes its time to take over."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of this test alone, whose replicas take over."""
    with Cluster(tmp_path / "cluster", binary=binary("valkey")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("still")
    with Cluster(path, binary=binary("valkey"), replicas=False, patient=True) as cluster:
        yield cluster


@pytest.fixture
def still(shared: Cluster) -> Cluster:
    """An empty cluster of masters only, whose slots lie where tests have put them."""
    for number in range(3):
        shared.call(number, "FLUSHALL")
    return shared


def clock_of(ledger: Ledger, shard: int) -> bytes:
    return ledger.core.shards[shard].clock


def trees_in(ledger: Ledger, shard: int, count: int = 2) -> Trees:
    """Trees of a slab that lies in one shard."""
    while True:
        trees = Trees(count)
        if ids.shard_of(ids.slab_of(int(trees.anchors[0])), ledger.config.ackers) == shard:
            return trees


def on(cluster: Cluster, ledger: Ledger, *masters: int) -> list[int]:
    """The shards that lie on some servers."""
    shards = range(ledger.config.ackers)
    return [shard for shard in shards if cluster.owner(clock_of(ledger, shard)) in masters]


def move(cluster: Cluster, key: bytes, target: int) -> None:
    """Moves the slot of a key."""
    slot, source = key_slot(key), cluster.owner(key)
    cluster.begin_move(slot, source, target)
    cluster.end_move(slot, source, target)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Traffic:
    """Threads that track slabs and complete them, over all shards, until `stop`."""

    def __init__(self, ledger: Ledger, threads: int = 3) -> None:
        self.ledger = ledger
        self.done: list[Trees] = []
        self.errors: list[Exception] = []
        self._over = threading.Event()
        ledger.register_spout("s")
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                trees = Trees(3).track(self.ledger)
                child = ids.new_id()
                emitted = int(trees.values[0]) ^ child
                self.ledger.update(trees.anchors, [emitted, *trees.values[1:].tolist()])
                self.ledger.update(trees.anchors[:1], [child])
                self.done.append(trees)
        except Exception as error:  # noqa: BLE001 - reported by `stop`
            self.errors.append(error)

    def more(self, count: int = 10) -> None:
        """Waits until so many more slabs are done."""
        wanted = len(self.done) + count
        wait_until(lambda: len(self.done) >= wanted or self.errors, timeout=PATIENCE)

    def stop(self) -> list[Trees]:
        """The slabs that were done."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not self.errors
        return self.done


def test_a_topology_spreads_over_all_masters(still: Cluster) -> None:
    ledger = opened(still.url, ackers=12, timeout=60)
    assert all(on(still, ledger, master) for master in range(3))
    trees = [trees_in(ledger, shard).track(ledger) for shard in range(12)]
    for one in trees:
        one.complete(ledger)
    assert all(still.call(master, "DBSIZE") > 0 for master in range(3))
    assert len(reported(ledger, *trees)) == 24


def test_any_node_that_is_named_is_enough_though_others_are_gone(still: Cluster) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{still.servers[2].port}"
    ledger = opened(url, ackers=6, timeout=60)
    Trees(2).track(ledger).complete(ledger)
    counted(ledger, tracked=2, acked=2)


def test_a_node_of_a_cluster_is_not_taken_for_a_server_of_its_own(still: Cluster) -> None:
    with pytest.raises(StoreMisconfigured, match="redis\\+cluster"):
        opened(still.servers[0].url)


def test_a_server_of_its_own_is_not_taken_for_a_cluster(valkey_url: str) -> None:
    with pytest.raises(StoreMisconfigured, match="is no cluster"):
        opened(valkey_url.replace("redis:", "redis+cluster:"))


def test_a_slot_that_has_moved_is_found_where_it_is(still: Cluster) -> None:
    ledger = opened(still.url, ackers=1, timeout=60)
    trees = Trees(3).track(ledger)
    for target in (1, 2, 0, 1):
        for key in (clock_of(ledger, 0), keys.config("tested"), keys.TOPOLOGIES):
            if still.owner(key) != target:
                move(still, key, target)
        trees.complete(ledger, 0)
        ledger.register_spout(f"spout-{target}")
        Trees(1).track(ledger)
    assert len(reported(ledger, trees)) == 1
    counters = ledger.counters()
    assert (counters["tracked"], counters["acked"], counters["late"]) == (7, 1, 3)


async def test_the_asyncio_twin_finds_what_has_moved_too(still: Cluster) -> None:
    async with AsyncStore(still.url, timeout=60) as store:
        key = b"acker:{moving}:turn"
        await store.send([command("SET", key, "1")])
        for target in (1, 2, 0):
            if await asyncio.to_thread(still.owner, key) != target:
                await asyncio.to_thread(move, still, key, target)
            replies = await store.send([command("INCR", key), command("TTL", key)])
            assert replies[1] == -1
        assert await store.send([command("GET", key)]) == [b"4"]
        await store.send([command("DEL", key)])


async def test_what_has_moved_ahead_of_its_slot_is_asked_for_where_it_is(still: Cluster) -> None:
    key, slot = b"acker:{moving}:turn", key_slot(b"acker:{moving}:turn")
    source = still.owner(key)
    target = (source + 1) % 3
    store = Store(still.url, timeout=60)
    store.send([command("SET", key, "1")])
    still.begin_move(slot, source, target)
    assert still.move_keys(slot, source, target, 10) == 1
    assert store.send([command("INCR", key), command("GET", key)])[0] == 2
    async with AsyncStore(still.url, timeout=60) as twin:
        assert (await twin.send([command("INCR", key)])) == [3]
    ledger = opened(still.url, "moving", timeout=60)
    assert open_ledger(Store(still.url, timeout=60), "moving").config == ledger.config
    still.end_move(slot, source, target)
    assert store.send([command("GET", key)]) == [b"3"]
    store.send([command("DEL", key)])


def test_a_shard_that_is_half_moved_is_left_alone_until_it_has_moved(still: Cluster) -> None:
    ledger = opened(still.url, ackers=1, timeout=60)
    hasty = Ledger(Store(still.url, timeout=0.4), ledger.core)
    slot, source = key_slot(clock_of(ledger, 0)), still.owner(clock_of(ledger, 0))
    target = (source + 1) % 3
    trees = Trees(9).track(ledger)
    Trees(2).complete(ledger, 0)
    many = int(still.call(source, "CLUSTER", "COUNTKEYSINSLOT", slot))
    still.begin_move(slot, source, target)
    calls: list[Submission[Updated]] = []
    for count in (0, 1, many // 2, many):
        still.move_keys(slot, source, target, count)
        trees_now = trees.anchors[len(calls) : len(calls) + 1], trees.values[len(calls) : len(calls) + 1]
        calls.append(ledger.core.update(*trees_now))
        with pytest.raises(StoreUnavailable):
            hasty.send(calls[-1])
    still.end_move(slot, source, target)
    assert ledger.counters()["acked"] == 0
    for call in calls * 2:
        ledger.send(call)
    trees.complete(ledger, 4, 5, 6, 7, 8)
    assert len(reported(ledger, trees)) == 9
    assert ledger.counters()["late"] == 0


@pytest.mark.parametrize("program", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.slow)])
def test_slots_move_while_traffic_flows_and_nothing_is_lost_or_doubled(tmp_path: Path, program: str) -> None:
    with Cluster(tmp_path, binary=binary(program), replicas=False, patient=True) as cluster:
        ledger = opened(cluster.url, ackers=6, timeout=PATIENCE)
        traffic = Traffic(ledger)
        places = [clock_of(ledger, shard) for shard in range(6)] + [keys.config("tested")]
        for key in places:
            traffic.more(5)
            slot, source = key_slot(key), cluster.owner(key)
            target = (source + 1) % 3
            cluster.begin_move(slot, source, target)
            for _ in range(3):
                cluster.move_keys(slot, source, target, 2)
                if key != places[-1]:
                    ledger.run(counts.counters(ledger.core))
            cluster.end_move(slot, source, target)
        traffic.more(5)
        assert_each_is_acked_once(ledger, traffic.stop())


@pytest.mark.parametrize("program", KINDS[:1])  # Valkey 9 and later
def test_slots_moved_by_a_server_take_all_with_them(tmp_path: Path, program: str) -> None:
    with Cluster(tmp_path, binary=binary(program), replicas=False, patient=True) as cluster:
        ledger = opened(cluster.url, ackers=6, timeout=PATIENCE)
        traffic = Traffic(ledger)
        keys_moved = [clock_of(ledger, shard) for shard in range(6)] + [keys.config("tested")]
        for source in (0, 1, 2, 0):
            traffic.more(5)
            slots = [key_slot(key) for key in keys_moved if cluster.owner(key) == source]
            cluster.migrate(slots, source, (source + 1) % 3)
            ledger.run(counts.counters(ledger.core))
        traffic.more(5)
        assert {cluster.owner(key) for key in keys_moved} == {1}
        assert_each_is_acked_once(ledger, traffic.stop())


def assert_each_is_acked_once(ledger: Ledger, done: list[Trees]) -> None:
    trees = 3 * len(done)
    outcomes = reported(ledger, *done)
    assert set(outcomes.values()) == {1}
    assert {status for _, status, _ in outcomes} == {"acked"}
    assert len(outcomes) == trees
    counters = ledger.counters()
    assert (counters["tracked"], counters["acked"], counters["late"]) == (trees, trees, 0)
    assert confirm_all(ledger) == trees


def test_a_master_that_is_killed_is_followed_by_its_replica(cluster: Cluster) -> None:
    ledger = opened(cluster.url, ackers=6, timeout=PATIENCE)
    traffic = Traffic(ledger)
    traffic.more()
    victim = cluster.owner(clock_of(ledger, 0))
    cluster.servers[victim].kill()
    # The replica has the shard when a call for it is answered again, which needs no help of ours.
    after = [trees_in(ledger, shard).track(ledger) for shard in range(6)]
    traffic.more()
    done = traffic.stop()
    for trees in after:
        trees.complete(ledger)
    assert cluster.owner(clock_of(ledger, 0)) == victim + 3
    outcomes = reported(ledger, *done, *after)
    # What the master had not sent its replica yet is lost with it; a tree is acked once, if it is known.
    assert set(outcomes.values()) == {1}
    assert all(outcomes[int(anchor), "acked", ""] == 1 for trees in after for anchor in trees.anchors)
    for trees in done[-3:]:
        trees.complete(ledger)  # late, and changes nothing
    for _ in range(3):
        ledger.tick(force=True)
    every = reported(ledger, *done, *after)
    assert max(every.values()) == 1
    assert max(np.unique([anchor for anchor, _, _ in every], return_counts=True)[1]) == 1


async def test_the_asyncio_twin_follows_the_replica_too(cluster: Cluster) -> None:
    async with AsyncStore(cluster.url, timeout=PATIENCE) as store:
        key = b"acker:{killed}:turn"
        await store.send([command("SET", key, "1")])
        victim = await asyncio.to_thread(cluster.owner, key)
        await asyncio.to_thread(cluster.call, victim, "WAIT", 1, 60_000)
        await asyncio.to_thread(cluster.servers[victim].kill)
        await store.send([command("SET", key, "2"), command("EXISTS", keys.TOPOLOGIES)])
        assert await store.send([command("GET", key)]) == [b"2"]
        assert await asyncio.to_thread(cluster.owner, key) == victim + 3
        await store.send([command("DEL", key)])


def test_a_master_that_hangs_is_an_error_in_bounded_time_and_the_others_work(still: Cluster) -> None:
    ledger = opened(still.url, ackers=12, timeout=60)
    hasty = Ledger(Store(still.url, timeout=3.0), ledger.core)
    trees = [trees_in(ledger, shard).track(hasty) for shard in range(12)]
    submission = ledger.core.update(
        np.concatenate([one.anchors for one in trees]), np.concatenate([one.values for one in trees])
    )
    hung = still.owner(clock_of(ledger, 0))
    others = on(still, ledger, *({0, 1, 2} - {hung}))
    with frozen(still.servers[hung].pid):
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            hasty.send(submission)
        assert time.monotonic() - started < 40
        places = [ledger.core.shards[shard].counters for shard in others]
        # The others were asked side by side with it.
        assert set(hasty.store.send([command("HGET", place, "acked") for place in places])) == {b"2"}
        lone = trees_in(ledger, others[0]).track(hasty)
        lone.complete(hasty)
    ledger.send(submission)
    assert len(reported(ledger, lone, *trees)) == 26
    counters = ledger.counters()
    assert (counters["acked"], counters["late"]) == (26, 0)


def test_a_topology_on_a_master_that_hangs_keeps_no_other_from_its_ticks(still: Cluster) -> None:
    def places(name: str) -> set[int]:
        return {still.owner(key) for key in (keys.config(name), keys.Shard(name, 0, 1).clock)}

    stuck = next(name for name in (f"a{n}" for n in range(1000)) if places(name) == {0})
    good = next(name for name in (f"b{n}" for n in range(1000)) if not places(name) & {0})
    store = Store(still.url, timeout=60)
    for name in (stuck, good):
        ledger = opened(still.url, name, timeout=60)
        ledger.tick()  # its clock begins
        store.send([command("HSET", clock_of(ledger, 0), "measured", "0 0 0 10000000")])
    ticker = Ticker(Store(still.url, timeout=1.0), [stuck, good])
    with frozen(still.servers[0].pid):

        def ticked() -> bool:
            with suppress(StoreUnavailable):  # of the master that hangs: the ticker's loop goes on, too
                time.sleep(ticker.step())
            return store.send([command("HGET", clock_of(ledger, 0), "rotations")]) == [b"1"]

        wait_until(ticked, timeout=PATIENCE)


@pytest.mark.slow
def test_a_master_that_hangs_for_long_is_replaced_and_comes_back_as_a_replica(cluster: Cluster) -> None:
    ledger = opened(cluster.url, ackers=3, timeout=40)
    shard = 0
    victim = cluster.owner(clock_of(ledger, shard))
    trees = [trees_in(ledger, shard).track(ledger) for _ in range(4)]
    wait_until(lambda: cluster.call(victim, "WAIT", 1, 1000) == 1, timeout=PATIENCE)
    trees[0].complete(ledger)
    with frozen(cluster.servers[victim].pid):
        trees[1].complete(ledger)
        trees[2].complete(ledger)
    wait_until(lambda: cluster.call(victim, "ROLE")[0] == b"slave", timeout=PATIENCE)
    trees[3].complete(ledger)
    assert cluster.owner(clock_of(ledger, shard)) == victim + 3
    outcomes = reported(ledger, *trees)
    assert set(outcomes.values()) == {1}
    assert all(outcomes[int(anchor), "acked", ""] for one in trees[1:] for anchor in one.anchors)
