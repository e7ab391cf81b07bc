"""Readers, writers and event streams at once, while the ledger is busy with jobs."""

import asyncio
import itertools
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis

from acker.inspect.topology import history
from acker.inspect.topology.history import Reading
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import CONNECTIONS, Store
from tests.helpers.builders.ledgers import Trees, confirm_all
from tests.helpers.faces import patient
from tests.helpers.faces.api import OPERATE, TOKENS, calling, serving
from tests.helpers.faces.serve import running
from tests.helpers.servers.durability import replica_of
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

PAGES = ("", "/stats", "/stats?window=all", "/trees?limit=50", "/trees?message_id=message%201", "/outcomes")
READERS, READS = 8, 5 * len(PAGES)
WRITERS, WRITES = 3, 20
STREAMS, SAMPLES = 40, 5


def job(ledger: Ledger, stop: threading.Event, done: Counter[str]) -> None:
    """A busy job: tracks, acks most, fails some, confirms."""
    for turn in itertools.count():
        if stop.is_set():
            return
        trees = Trees(512).track(ledger)
        ledger.fail(trees.anchors[:2], f"turn {turn}")
        trees.complete(ledger, *range(2, 500))
        done.update(tracked=512, failed=2, acked=498)
        if turn % 20 == 0:
            confirm_all(ledger)


class Load:
    """A load of the requests named above, however long they take; streams last until all are done."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.statuses: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        self.over = False

    async def run(self) -> list[list[str]]:
        """Makes it; returns the times of the samples that each stream reported."""
        watching = [asyncio.create_task(self.watch()) for _ in range(STREAMS)]
        reading = [self.read(number) for number in range(READERS)]
        await asyncio.gather(*reading, *(self.write() for _ in range(WRITERS)))
        self.over = True
        return await asyncio.gather(*watching)

    async def read(self, first: int) -> None:
        for page in itertools.islice(itertools.cycle(PAGES), first, first + READS):
            self.statuses[(await self.client.get(f"/topologies/busy{page}")).status_code] += 1

    async def write(self) -> None:
        for _ in range(WRITES):
            anchors = [str(ids.new_anchors(1)[0]) for _ in range(50)]
            messages: list[dict[str, str]] = [
                {"type": "track", "spout": "other", "anchor": anchor, "value": "5"} for anchor in anchors
            ] + [{"type": "ack", "anchor": anchor, "value": "5"} for anchor in anchors[1:]]
            key = {"Idempotency-Key": anchors[0]}
            answers = [
                await self.client.post("/topologies/busy/messages", json={"messages": messages}, headers=key)
                for _ in range(2)  # as a client that lost the first answer
            ]
            assert answers[0].json() == answers[1].json()
            failed = await self.client.post(f"/topologies/busy/trees/{anchors[0]}/fail", json={"reason": "x"})
            assert failed.json()["failed"] == 1
            self.statuses.update(answer.status_code for answer in [*answers, failed])
            self.done.update(tracked=50, acked=49, failed=1)

    async def watch(self) -> list[str]:
        times: list[str] = []
        last: dict[str, str] = {}
        while True:  # a stream that does not keep up is ended, and comes again
            async with self.client.stream("GET", "/topologies/busy/events", headers=last) as answer:
                self.statuses[answer.status_code] += 1
                async for line in answer.aiter_lines():
                    if line.startswith("id: "):
                        last = {"Last-Event-ID": line[4:]}
                    data = json.loads(line[6:]) if line.startswith("data: {") else {}
                    if {"at", "tracked"} <= data.keys():
                        times.append(data["at"])
                    if self.over and len(times) >= SAMPLES:
                        return times


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_busy_service_answers_all_and_counts_exactly(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url, timeout=120), "busy", ackers=2, message_timeout=3600.0)
    stop, done = threading.Event(), Counter[str]()
    worker = threading.Thread(target=job, args=(ledger, stop, done))
    headers = {"Authorization": f"Bearer {OPERATE}"}

    async def load(address: str) -> tuple[Load, list[list[str]]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=f"{address}/api/v1", headers=headers, limits=limits, timeout=120
        ) as client:
            made = Load(client)
            return made, await made.run()

    with running(
        "--url", valkey_url, ACKER_TOKENS=TOKENS, ACKER_WRITES_PER_SECOND="100000", ACKER_TIMEOUT="60"
    ) as service:
        worker.start()
        try:
            made, streams = asyncio.run(load(service.address))
        finally:
            stop.set()
            worker.join()
        assert made.statuses.keys() == {200}
        assert made.statuses[200] >= READERS * READS + WRITERS * WRITES * 3 + STREAMS
        assert all(times == sorted(set(times)) for times in streams)
        done.update(made.done)
        path = f"{service.address}/api/v1/topologies/busy"

        def totals() -> dict[str, int]:
            found: dict[str, int] = patient.get(f"{path}/stats", headers=headers).json()["totals"]
            return found

        wait_until(lambda: totals()["tracked"] == done["tracked"])
        counters = patient.get(path, headers=headers).json()["counters"]
        for name in ("tracked", "acked", "failed"):
            assert counters[name] == totals()[name] == done[name], name
        assert counters["expired"] == counters["late"] == counters["orphaned"] == 0
    confirm_all(ledger)
    confirm_all(ledger, "other")


def test_clients_that_wait_hold_up_neither_ticks_nor_history_nor_readiness(new_server: NewServer) -> None:
    server = new_server("valkey")
    replica = replica_of(new_server, server, "valkey")
    store = Store(server.url)
    slow = open_ledger(store, "slow", ackers=1, wait_replicas=1)
    words = open_ledger(store, "words", ackers=1, message_timeout=1.0)
    settings = {"tokens": TOKENS, "timeout": 60.0, "writes_per_second": 1000}
    with (
        redis.Redis.from_url(server.url) as raw,
        redis.Redis.from_url(replica.url) as second,
        serving(server.url, **settings) as address,  # type: ignore[arg-type]
        calling(address) as client,
        ThreadPoolExecutor(CONNECTIONS + 10) as threads,
    ):

        def track(anchor: int) -> int:
            message = {"type": "track", "spout": "s", "anchor": str(anchor), "value": "7"}
            return client.post("/topologies/slow/messages", json={"messages": [message]}).status_code

        def waiting() -> bool:
            """True while clients have all the connections that there are for them."""
            return bool(raw.info("clients")["blocked_clients"] >= CONNECTIONS)

        def progress() -> tuple[int, int]:
            [reading] = words.run(history.latest(words.core, 1)) or [Reading(0)]
            return reading.at, words.counters()["rotations"]

        second.replicaof("NO", "ONE")
        anchors = [int(ids.new_anchors(1)[0]) for _ in range(CONNECTIONS + 10)]
        tracks = [threads.submit(track, anchor) for anchor in anchors]
        wait_until(waiting)
        before = progress()
        assert patient.get(f"{address}/readyz").status_code == 200
        wait_until(lambda: all(now > then for now, then in zip(progress(), before, strict=True)))
        assert waiting(), "they went on while clients waited"
        second.replicaof("127.0.0.1", server.port)
        assert {each.result() for each in tracks} == {200}
    assert slow.counters()["tracked"] == CONNECTIONS + 10
