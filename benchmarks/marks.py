"""The cost of marks, which note the step that acks: server time of updates with them and without.

    uv run python -m benchmarks.marks [--trees 1000000] [--rounds 5] [--json]

One server, one shard. In each round trees in slabs of 1,024, of 64 and of one are tracked, emitted to and
acked, and trees picked at random among all trees of slabs of 1,024 are emitted to and acked, 1,000 to a call
("scattered": each is alone in its slab); once without marks, and once with them, in turns. The figures are
ratios of the processor time of the server's main thread for emits and acks together, and bits of memory for
each tree and step: medians of the rounds. Asked are 1.03 for slabs of 1,024, 1.05 for scattered trees, and
one bit.
"""

import argparse
import json
import statistics
from typing import Any

import numpy as np
import redis

from acker.embedded import EmbeddedServer
from acker.ledger import ids
from acker.ledger.calls.marks import Mark
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.store.client import Store
from benchmarks.ledger import new_slabs, track
from benchmarks.options import Number
from benchmarks.servers import cpu_seconds

SIZES = (1_024, 64, 1)
_SCATTERED = 100_000
_BY = Mark(1, 17)


def spent(ledger: Ledger, anchors: Ids, deltas: Ids, batch: int, by: Mark | None) -> float:
    """Processor seconds of the server for updates in calls of `batch`."""
    before = cpu_seconds(ledger.store.url)
    for at in range(0, len(anchors), batch):
        part, own = anchors[at : at + batch], deltas[at : at + batch]
        ledger.submit(ledger.core.update(part, own, 0, by, 0 if by is None else len(part)).calls)
    return cpu_seconds(ledger.store.url) - before


def measure(raw: Any, url: str, slab: int, trees: int, scattered: int, marked: bool) -> tuple[float, float]:
    """Server time of emits and acks, and bytes of the marks."""
    raw.flushall()
    ledger = open_ledger(Store(url, timeout=60), "bench", ackers=1, slab_limit=slab)
    anchors, values = track(ledger, new_slabs(trees, slab))
    emitted = ids.new_ids(len(anchors))
    by = _BY if marked else None
    if scattered:
        picked = np.random.default_rng(1).permutation(len(anchors))[:scattered]
        anchors, deltas, batch = anchors[picked], emitted[picked], 1_000
        used = spent(ledger, anchors, deltas, batch, None) + spent(ledger, anchors, deltas, batch, by)
    else:
        batch = 131_072 if slab > 1 else 16_384
        used = spent(ledger, anchors, emitted, batch, None)
        used += spent(ledger, anchors, emitted ^ values, batch, by)
    size = sum(raw.memory_usage(key, samples=0) or 0 for key in ledger.core.shards[0].of_steps[1:])
    return used, size


def run(trees: int, rounds: int) -> dict[str, float]:
    """The figures."""
    found: dict[str, float] = {}
    with EmbeddedServer(append_only=False) as server, redis.Redis.from_url(server.url) as raw:
        cases = [(f"slabs of {size:,}", size, 0) for size in SIZES] + [("scattered", 1_024, _SCATTERED)]
        for name, slab, scattered in cases:
            count = trees // slab * slab if slab > 1 else trees // 5
            ratios, bits = [], []
            for number in range(rounds):
                turns = (True, False) if number % 2 else (False, True)
                took = {turn: measure(raw, server.url, slab, count, scattered, turn) for turn in turns}
                ratios.append(took[True][0] / took[False][0])
                bits.append(8 * took[True][1] / count)
            found[name] = statistics.median(ratios)
            found[f"{name}, bits"] = statistics.median(bits)
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trees", type=Number(least=max(SIZES)), default=1_000_000)
    parser.add_argument("--rounds", type=Number(), default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.trees, asked.rounds)
    if asked.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value:.2f}")


if __name__ == "__main__":
    main()
