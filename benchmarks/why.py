"""The cost of finding a tree, and of reasons for expired trees, over segments that nobody has acked.

    uv run python -m benchmarks.why [--segments 1000] [--slabs 128] [--rounds 5] [--json]

One server, four shards. Each segment has one row of a tree in each of so many slabs of 1,024. The figures are
medians over the rounds, in milliseconds: on the wall, and of the server's commands alone. Asked of `why` over
1,000 segments are 50 and 5; of the longest command of a tick with reasons, 10.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import redis

from acker.embedded import EmbeddedServer
from acker.inspect.locate.expiry_reasons import explain
from acker.inspect.locate.why import why
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick import tick
from acker.store.client import Store
from acker.streams import StreamWriter
from benchmarks.options import Number

TREES = 1_024


def fill(ledger: Ledger, segments: int, slabs: int) -> int:
    """Publishes segments with a row of one tree of each slab; returns the anchor of a tree that is in all."""
    writer = StreamWriter(ledger, "lines")
    anchors = [ids.new_anchors(TREES) for _ in range(slabs)]
    chosen = np.array([own[0] for own in anchors])
    batches = [writer.batch(pa.table({"line": pa.nulls(slabs, pa.string())})) for _ in range(segments)]
    values = [ids.new_ids(TREES) for _ in range(slabs)]
    for place in range(slabs):
        values[place][0] = 0
    for batch in batches:
        for place, value in enumerate(batch.ids()):
            values[place][0] ^= value
    names = [b"%d" % number for number in range(TREES)]
    ledger.track_slabs([NewSlab(*pair, names) for pair in zip(anchors, values, strict=True)], spout="s")
    for batch in batches:
        writer.publish(batch, chosen)
    return int(chosen[0])


def measured(raw: Any, action: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Milliseconds of an action: on the wall, and of the server's commands."""
    walls, servers = [], []
    for _ in range(rounds):
        raw.config_resetstat()
        begun = time.perf_counter()
        action()
        walls.append((time.perf_counter() - begun) * 1000)
        used = raw.info("commandstats").items()
        servers.append(sum(one["usec"] for name, one in used if "config" not in name and "info" not in name))
    return statistics.median(walls), statistics.median(servers) / 1000


def run(segments: int, slabs: int, rounds: int) -> dict[str, float]:
    """The figures."""
    with EmbeddedServer(append_only=False) as server, redis.Redis.from_url(server.url) as raw:
        ledger = open_ledger(Store(server.url, timeout=60), "bench", ackers=4, slab_limit=TREES)
        anchor = fill(ledger, segments, slabs)
        answer = ledger.run(why(ledger.core, anchor))
        if not answer.complete:
            raise SystemExit(f"expected all places, got {answer}")
        wall, used = measured(raw, lambda: ledger.run(why(ledger.core, anchor)), rounds)
        for _ in range(2):
            ledger.tick(force=True)
        ledger.run(tick.rotate(ledger.core, force=True))
        look, looked = measured(raw, lambda: ledger.run(explain(ledger.core)), rounds)
        reasons = ledger.run(explain(ledger.core))
        raw.config_set("slowlog-log-slower-than", 0)
        raw.config_set("slowlog-max-len", 100_000)
        raw.slowlog_reset()
        expired = ledger.run(tick.drain(ledger.core, None, reasons)).expired
        slowest = max(one["duration"] for one in raw.slowlog_get(100_000)) / 1000
    return {
        "segments": segments,
        "why": wall,
        "why_server": used,
        "explain": look,
        "explain_server": looked,
        "expired": expired,
        "longest_command": slowest,
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--segments", type=Number(), default=1_000)
    parser.add_argument("--slabs", type=Number(), default=128)
    parser.add_argument("--rounds", type=Number(), default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.segments, asked.slabs, asked.rounds)
    if asked.json:
        print(json.dumps(found))
        return
    wall, used = found["why"], found["why_server"]
    print(f"why, {asked.segments:,} segments: {wall:.1f} ms, {used:.1f} ms of the server")
    print(
        f"why {found['expired']:,} trees expire: {found['explain']:.1f} ms, {found['explain_server']:.1f} ms"
    )
    print(f"longest command of the drain: {found['longest_command']:.1f} ms")


if __name__ == "__main__":
    main()
