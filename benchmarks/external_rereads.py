"""Rows of an external stream that are read again: two hours and two months later all of them are untracked.

    uv run python -m benchmarks.external_rereads [--rows 1000000]

The clock of the store is moved (libfaketime). Each time a new process reads all rows, in batches of 500. The
program ends with an error where a row is tracked, a key is made, or a living record is touched.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.streams.staging.external.rows.stamps import Seal
from benchmarks.external_segments import STREAM, SUBSCRIPTION, Sender
from benchmarks.servers import client
from tests.helpers.servers.clocks import ShiftedClock

BATCH, SEGMENT = 500, 1_000
MOVES = {"two hours": 2 * 3600.0, "two months": 61 * 86400.0}


def stamps(sender: Sender, rows: int) -> list[bytes]:
    """Sends and acks so many rows; returns their stamps."""
    external = sender.external
    seal = Seal(sender.ledger.config.name, STREAM, external.stamp_keys, external.number)
    texts = list[bytes]()
    for first in range(0, rows, 20 * SEGMENT):
        anchors = sender.trees(min(20 * SEGMENT, rows - first))
        sent = sender.send([anchors[at : at + SEGMENT] for at in range(0, len(anchors), SEGMENT)])
        for segment in sent:
            trees, head = np.array(segment.anchors), seal.head(segment.token, segment.begun)
            texts += seal.write_many(head, np.arange(len(trees)), trees)
        sender.receive(sent, lambda one: range(len(one.anchors)))
    return texts


def read_again(url: str, name: str, texts: list[bytes]) -> float:
    """Reads rows as a process that begins; returns its seconds. Raises RuntimeError."""
    begun, tracked = time.perf_counter(), 0
    with Topology(url, name, linger=None) as topology:
        items = topology.incoming(STREAM, subscription=SUBSCRIPTION)
        for first in range(0, len(texts), BATCH):
            rows = items.read(texts[first : first + BATCH])
            tracked += sum(row.tracked for row in rows)
            items.ack(rows)
            if first % (20 * BATCH) == 0:
                topology.flush()
        topology.flush()
        counted = items.counted
    if tracked or counted != {"rows": len(texts), "over": len(texts)}:
        raise RuntimeError(f"expected {len(texts):,} rows, all over: {tracked:,} are tracked of {counted}")
    return time.perf_counter() - begun


def staged(raw: Any) -> int:
    """Counts the hashes of segments in the store."""
    return sum(1 for _ in raw.scan_iter("*staged:*", count=1000))


def main() -> None:
    """Runs it once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    count = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as directory:
        clock = ShiftedClock(Path(directory) / "clock")
        with EmbeddedServer(directory=Path(directory) / "store", binary=clock.binary) as server:
            sender = Sender.begin(server.url, "rereads")
            begun = time.perf_counter()
            texts = stamps(sender, count)
            print(f"{count:,} rows are sent and acked in {time.perf_counter() - begun:.0f} s", flush=True)
            with client(server.url) as raw:
                for name, seconds in MOVES.items():
                    clock.step(server, seconds)
                    sender.now = raw.time()[0]
                    sender.send([sender.trees(SEGMENT)])  # a living segment
                    before, counts = staged(raw), sender.ledger.counters()
                    taken = read_again(server.url, "rereads", texts)
                    if (staged(raw), sender.ledger.counters()) != (before, counts):
                        raise RuntimeError("expected the same segments and counts as before")
                    print(
                        f"read again {name} later: {count:,} rows, all untracked, {taken:.0f} s", flush=True
                    )


if __name__ == "__main__":
    main()
