"""The ledger's speed against raw pipelined HINCRBY, on one server and from one Python client.

    uv run python -m benchmarks.ledger [--rounds 5] [--url redis://...] [--json]

Each round starts a server (but with --url) and measures redis-benchmark's HINCRBY and every way of updating
trees, one after the other; the figures are medians over the rounds, the ratios medians of the rounds' own
ratios. Scattered are calls of 1,000 updates: one shard gets each as one call of the server's, four get four.
redis-benchmark or valkey-benchmark must be on PATH.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
import redis

from acker.embedded import EmbeddedServer
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.slabs.slabs import NewSlab
from acker.store.client import Store
from benchmarks.options import Number

TREES = 1_000_000
SMALL = 200_000
SCATTERED = 200
ASKED = {"slabs of 1,024": 10.0, "slabs of one": 0.4, "scattered": 0.25}


def hincrby(url: str) -> float:
    """Commands per second of redis-benchmark, 64 to a pipeline."""
    tool = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    if tool is None:
        raise SystemExit("redis-benchmark is not on PATH (Debian: redis-tools)")
    host, port = url.removeprefix("redis://").split("/")[0].split(":")
    command = [tool, "-h", host, "-p", port, "-P", "64", "-n", "1000000", "--csv", "HINCRBY", "h", "f", "1"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(out.strip().splitlines()[-1].split(",")[1].strip('"'))


def fresh(url: str, slab_limit: int, ackers: int = 4) -> Ledger:
    """A ledger on an emptied store."""
    redis.Redis.from_url(url).flushall()
    return open_ledger(
        Store(url, timeout=60), "bench", ackers=ackers, slab_limit=slab_limit, high_water_mark=100_000_000
    )


def new_slabs(trees: int, slab: int) -> list[NewSlab]:
    """Trees to be tracked, in slabs of `slab`."""
    values = ids.new_ids(trees)
    found = []
    for first in range(0, trees, slab):
        own = values[first : first + slab]
        found.append(NewSlab(ids.new_anchors(len(own)), own, [b""] * len(own)))
    return found


def track(ledger: Ledger, slabs: list[NewSlab]) -> tuple[Ids, Ids]:
    """Tracks slabs, some thousands to a call; returns the anchors and values of all trees."""
    per_call = max(1, 131_072 // len(slabs[0].anchors) // 8)
    for first in range(0, len(slabs), per_call):
        ledger.track_slabs(slabs[first : first + per_call], spout="bench")
    return np.concatenate([slab.anchors for slab in slabs]), np.concatenate([slab.values for slab in slabs])


def timed(work: Callable[[], object], amount: int) -> float:
    """The `amount` that `work` does in a second."""
    start = time.perf_counter()
    work()
    return amount / (time.perf_counter() - start)


def in_batches(ledger: Ledger, anchors: Ids, deltas: Ids, batch: int) -> None:
    """Updates in calls of `batch`, from four threads of the one client: one encodes while others wait."""
    starts = range(0, len(anchors), batch)
    with ThreadPoolExecutor(4) as pool:
        work = [
            pool.submit(ledger.update, anchors[at : at + batch], deltas[at : at + batch]) for at in starts
        ]
        for done in work:
            done.result()


def round_of(url: str) -> dict[str, float]:
    """One round: name -> rate per second (bytes for memory)."""
    found = {"HINCRBY": hincrby(url)}

    for name, shards in (("scattered", 1), ("scattered, 4 shards", 4)):
        ledger = fresh(url, TopologyConfig("bench").slab_limit, shards)
        anchors, _ = track(ledger, new_slabs(TREES, ledger.config.slab_trees))
        picked = np.random.default_rng(1).permutation(len(anchors))[: 1000 * SCATTERED]
        deltas = ids.new_ids(len(picked))
        found[name] = timed(partial(in_batches, ledger, anchors[picked], deltas, 1000), len(picked))
        assert ledger.counters()["late"] == 0

    ledger = fresh(url, 1024)
    info = redis.Redis.from_url(url).info
    before = info("memory")["used_memory"]
    slabs = new_slabs(TREES // 1024 * 1024, 1024)
    start = time.perf_counter()
    anchors, values = track(ledger, slabs)
    count = len(anchors)
    found["slabs of 1,024: track"] = count / (time.perf_counter() - start)
    ids_bytes = 2 * count  # the lengths of the message ids, which are empty here
    found["bytes per tree"] = (info("memory")["used_memory"] - before - ids_bytes) / count
    emitted = ids.new_ids(count)
    found["slabs of 1,024: emit"] = timed(lambda: in_batches(ledger, anchors, emitted, 131_072), count)
    found["slabs of 1,024: ack"] = timed(
        lambda: in_batches(ledger, anchors, emitted ^ values, 131_072), count
    )
    found["slabs of 1,024"] = 2 / (1 / found["slabs of 1,024: emit"] + 1 / found["slabs of 1,024: ack"])
    assert ledger.counters()["acked"] == count

    ledger = fresh(url, 1)
    slabs = new_slabs(SMALL, 1)
    start = time.perf_counter()
    anchors, values = track(ledger, slabs)
    found["slabs of one: track"] = SMALL / (time.perf_counter() - start)
    emitted = ids.new_ids(SMALL)
    found["slabs of one: emit"] = timed(lambda: in_batches(ledger, anchors, emitted, 16_384), SMALL)
    found["slabs of one: ack"] = timed(lambda: in_batches(ledger, anchors, emitted ^ values, 16_384), SMALL)
    found["slabs of one"] = 2 / (1 / found["slabs of one: emit"] + 1 / found["slabs of one: ack"])
    assert ledger.counters()["acked"] == SMALL
    return found


def main() -> None:
    """Runs the rounds and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=Number(), default=5)
    parser.add_argument("--url")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rounds = []
    for _ in range(asked.rounds):
        with ExitStack() as stack:
            url = asked.url or stack.enter_context(EmbeddedServer(append_only=False)).url
            rounds.append(round_of(url))
    table = {
        name: {
            "median": statistics.median(one[name] for one in rounds),
            "ratio": statistics.median(one[name] / one["HINCRBY"] for one in rounds),
        }
        for name in rounds[0]
    }
    if asked.json:
        print(json.dumps(table, indent=1))
        return
    for name, row in table.items():
        unit = "bytes" if name.startswith("bytes") else "/s"
        ratio = "" if unit == "bytes" else f"{row['ratio']:8.2f} x HINCRBY"
        wanted = f"  (asked: {ASKED[name]})" if name in ASKED else ""
        print(f"{name:28} {row['median']:14,.1f} {unit:6}{ratio}{wanted}")


if __name__ == "__main__":
    main()
