"""Times of every page of the service with 10 million trees in flight.

    uv run python -m benchmarks.api [--trees 10000000] [--slab 1024] [--singles 200000] [--json]

Trees lie in slabs of `slab`, `singles` more are tracked alone; 10,000 of these have failed, and the history
is full. Tells the percentiles of each request's time in milliseconds, asked for one after the other,
and how much processor time of client, service and store it took: what is left of it on an idle machine.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import redis
import uvicorn

from acker.embedded import EmbeddedServer
from acker.inspect.topology import history
from acker.inspect.topology.history import SECONDS, STEPS, WINDOWS
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys
from acker.store.client import Store
from api.main import create_app, freeze
from api.settings.settings import Settings
from benchmarks.options import Number

FAILED = 10_000
PATH = "/api/v1/topologies/busy"


def fill(ledger: Ledger, trees: int, slab: int, singles: int) -> dict[str, int]:
    """Tracks the trees, and fails some; returns an anchor of each kind."""
    ledger.register_spout("idle")
    kept, failing = {}, []
    for size, count in ((slab, trees // slab), (1, singles), (1, FAILED)):
        names = [b"record %d of a file" % index for index in range(size)]
        batch = 500 if size > 1 else 10_000
        for first in range(0, count, batch):
            some = [
                NewSlab(ids.new_anchors(size), ids.new_ids(size), names)
                for _ in range(min(batch, count - first))
            ]
            ledger.track_slabs(some, spout="lines")
            kept[f"tree in a slab of {size}"] = int(some[0].anchors[0])
            failing = [int(part.anchors[0]) for part in some]
    for first in range(0, len(failing), 100):
        ledger.fail(failing[first : first + 100], f"reason {first}")
    kept["failed tree"] = failing[-1]
    return kept


def fill_history(url: str, ledger: Ledger) -> None:
    """Fills the history with readings that differ in their latencies, of 60 buckets: 20 ms to 4 s."""
    raw: Any
    with redis.Redis.from_url(url) as raw:
        raw.delete(keys.turn("busy"))
        raw.hset(ledger.core.shards[0].latency, mapping=dict.fromkeys(range(36, 96), 10))
        ledger.run(history.record(ledger.core))
        for window in WINDOWS:
            stream, step = keys.history("busy", STEPS[window]), STEPS[window]
            [(last, fields)] = raw.xrevrange(stream, count=1)
            at = int(last.split(b"-")[0])
            reading = fields[b"reading"]
            head = reading[: history.HEAD.size + reading[1]]
            counts = np.frombuffer(reading, "<u8", reading[1], len(head))
            raw.delete(stream)
            pipe = raw.pipeline()
            for number in range(SECONDS[window] // step, -1, -1):
                changed = head + (counts * (10_000 - number)).tobytes()
                pipe.xadd(stream, {"reading": changed}, id=f"{at - number * step * 1000}-0")
            pipe.execute()


@contextmanager
def serving(url: str) -> Iterator[str]:
    """A service in a thread of its own."""
    app = create_app(Settings(url=url, ticker=False, history=False))  # type: ignore[arg-type]
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    freeze()  # as `acker serve` does
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def measure(client: httpx.Client, raw: Any, path: str, requests: int) -> dict[str, float]:
    """Percentiles of a request's time, and the time of processors it took; pages follow their cursors."""
    busy = processors(raw)
    taken = []
    cursor = None
    for _ in range(requests):
        more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        start = time.perf_counter()
        answer = client.get(path, params=httpx.URL(path).params.merge(more))
        taken.append((time.perf_counter() - start) * 1000)
        assert answer.status_code in (200, 404), answer.text
        cursor = answer.json().get("cursor") if "json" in answer.headers["content-type"] else None
    found = {f"p{part}": float(np.percentile(taken, part)) for part in (50, 99)}
    return found | {"longest": max(taken), "processors": (processors(raw) - busy) * 1000 / requests}


def processors(raw: Any) -> float:
    """Seconds of processor time that client, service and store have taken so far."""
    facts = raw.info("cpu")
    return time.process_time() + float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])


def main() -> None:
    """Fills a store, asks for every page, and prints what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=Number(), default=10_000_000)
    parser.add_argument("--slab", type=Number(most=ids.SLAB_TREES), default=1024)
    parser.add_argument("--singles", type=Number(least=0), default=200_000)
    parser.add_argument("--requests", type=Number(), default=100)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with EmbeddedServer(append_only=False) as store:
        ledger = open_ledger(Store(store.url), "busy", message_timeout=7 * 86400.0)
        anchors = fill(ledger, asked.trees, asked.slab, asked.singles)
        fill_history(store.url, ledger)
        paths = {
            "topologies": "/api/v1/topologies",
            "topology": PATH,
            **{f"stats {window}": f"{PATH}/stats?window={window}" for window in WINDOWS},
            "stats all, finest": f"{PATH}/stats?window=all&step=600",
            "trees": f"{PATH}/trees",
            "trees, 1,000": f"{PATH}/trees?limit=1000",
            "trees of a spout without any": f"{PATH}/trees?spout=idle",
            "trees older than any": f"{PATH}/trees?older_than=1000000",
            "trees by a message id that none has": f"{PATH}/trees?message_id=nobody",
            **{name: f"{PATH}/trees/{anchor}" for name, anchor in anchors.items()},
            "unknown tree": f"{PATH}/trees/{ids.new_id()}",
            "outcomes": f"{PATH}/outcomes",
            "outcomes, 1,000": f"{PATH}/outcomes?limit=1000",
            "outcomes of a kind without any": f"{PATH}/outcomes?status=expired",
            "outcomes for a reason that none has": f"{PATH}/outcomes?reason=nobody",
            "dead letters": f"{PATH}/dead-letters",
            "metrics": "/metrics",
        }
        found = {}
        raw = redis.Redis.from_url(store.url)
        with raw, serving(store.url) as address, httpx.Client(base_url=address, timeout=60) as client:
            for name, path in paths.items():
                measure(client, raw, path, 3)
                found[name] = measure(client, raw, path, asked.requests)
                if not asked.json:
                    row = "  ".join(f"{part} {value:6.1f}" for part, value in found[name].items())
                    print(f"{name:36}  {row}", flush=True)
        if asked.json:
            print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
