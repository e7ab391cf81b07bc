"""The bytes of the store for a record, for docs/store.md.

    uv run python -m benchmarks sizing [--sizing-rows 100000] [--sizing-bytes 200]
        [--sizing-ids 16] [--sizing-writes 10000,1000,100]

Each figure is the growth of a fresh server's memory, divided by the records. A record holds so many random
letters, which LZ4 makes no smaller, and an id of `ids` bytes. So many are written at a time:

    tree         a record in flight that only the ledger knows, as with the collectors
    kept row     a record of a DataFrame spout in flight, in the stream that it was written to: the store
                 keeps its row for replays
    kept id      the same with keep="ids": the store keeps its message id for replays
    pending row, pending id
                 the same behind the ack of that stream: further rows of the record, or an external stream,
                 keep it in flight
    stream row   a row that waits in a further stream
    dead letter  a record that was given up

All sizes of a write divide `rows`, which is at most 100,000: a spout has no more dead letters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.streams.reader import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts.settler import settle
from acker.streams.writer import StreamWriter
from benchmarks.clients import opened
from benchmarks.figures import Sample
from benchmarks.servers import memory, serving

TITLE = "bytes of the store for each record"
T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """Options: how many records, how large, and how many to a write."""

    rounds: int = 3
    rows: int = 100_000
    bytes: int = 200
    ids: int = 16
    writes: tuple[int, ...] = (10_000, 1_000, 100)

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= 100_000 or any(self.rows % write for write in self.writes):
            raise ValueError(
                f"rows: expected 1 to 100,000, and a multiple of {self.writes}, got {self.rows:,}"
            )


def samples(sizes: Sizes) -> Iterator[Sample]:
    """Measures each kind of record at each size of a write."""
    kinds: dict[str, Callable[[Ledger, Sizes, int], int]] = {
        "tree": _trees,
        "kept row": _kept,
        "kept id": partial(_kept, keeps=("id",)),
        "pending row": _pending,
        "pending id": partial(_pending, keeps=("id",)),
        "stream row": _streamed,
        "dead letter": _dead,
    }
    for _ in range(sizes.rounds):
        for write in sizes.writes:
            for kind, fill in kinds.items():
                with serving() as url:
                    ledger = opened(url, ackers=4)
                    before = memory(url)
                    filled = fill(ledger, sizes, write)
                    grown = (memory(url) - before) / filled
                yield Sample(f"{kind}, {write:,} to a write", grown, "bytes/record")


def _rows(sizes: Sizes, write: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(1)
    for first in range(0, sizes.rows, write):
        letters = random.integers(ord("A"), ord("Z"), (write, sizes.bytes), dtype=np.uint8)
        body = [one.tobytes().decode() for one in letters]
        yield pa.table({"id": [f"{first + place:0{sizes.ids}}" for place in range(write)], "body": body})


def _parts(names: Sequence[T], ledger: Ledger) -> Iterator[Sequence[T]]:
    """Slabs as acker makes them by itself."""
    limit = ledger.config.slab_trees
    return (names[first : first + limit] for first in range(0, len(names), limit))


def _trees(ledger: Ledger, sizes: Sizes, write: int) -> int:
    for first in range(0, sizes.rows, write):
        names = [f"{first + place:0{sizes.ids}}".encode() for place in range(write)]
        for own in _parts(names, ledger):
            ledger.track(ids.new_anchors(len(own)), ids.new_ids(len(own)), own, spout="records")
    return sizes.rows


def _spout(ledger: Ledger, attempts: int, keeps: Sequence[str] = ()) -> StreamSpout:
    options = SpoutOptions("records", "records", message_id="id", attempts=attempts)
    return StreamSpout(ledger, options, ids=keeps)


def _kept(ledger: Ledger, sizes: Sizes, write: int, keeps: Sequence[str] = ()) -> int:
    spout = _spout(ledger, 3, keeps)
    for table in _rows(sizes, write):
        spout.write(table)
    return sizes.rows


def _pending(ledger: Ledger, sizes: Sizes, write: int, keeps: Sequence[str] = ()) -> int:
    spout, reader = _spout(ledger, 3, keeps), StreamReader(ledger, "records")
    for table in _rows(sizes, write):
        for roots in spout.write(table):
            anchors = roots.anchors()
            ledger.update(anchors, ids.new_ids(len(anchors)))  # further rows of the records
    reader.ack_all()
    return sizes.rows


def _streamed(ledger: Ledger, sizes: Sizes, write: int) -> int:
    writer = StreamWriter(ledger, "further")
    for table in _rows(sizes, write):
        slabs = [ids.new_anchors(len(part)) for part in _parts(range(write), ledger)]
        writer.publish(writer.batch(table), np.concatenate(slabs))
    return sizes.rows


def _dead(ledger: Ledger, sizes: Sizes, write: int) -> int:
    spout, reader = _spout(ledger, 1), StreamReader(ledger, "records")
    for table in _rows(sizes, write):
        spout.write(table)
        for read in reader.tables():
            ledger.fail(read["_acker"].to_numpy(), "ValueError: no price for this record")
        reader.ack()
        settle(ledger)
    return sizes.rows
