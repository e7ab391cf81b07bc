"""Streams without Spark, in few words: a spout, a bolt's steps, and commits that are cut."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.slabs.slabs import NewSlab
from acker.store.operation import Operation
from acker.streams import StreamReader, StreamWriter
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import DEFAULT, Delivery, Range
from acker.streams.reader import payload_of
from acker.streams.staging import acks, staging
from acker.streams.staging.staging import Staged, Staging
from tests.helpers.servers.servers import raw_client

T = TypeVar("T")


def track(ledger: Ledger, values: Ids, slab: int = 1000) -> Ids:
    """Tracks one tree for each value; returns the anchors."""
    anchors, slabs = [], []
    for at in range(0, len(values), slab):
        part = values[at : at + slab]
        anchors.append(ids.new_anchors(len(part)))
        slabs.append(NewSlab(anchors[-1], part, [b"%d" % n for n in range(at, at + len(part))]))
    assert set(ledger.track_slabs(slabs, spout="s")) == {"A"}
    return np.concatenate(anchors)


def emit(ledger: Ledger, number: int, stream: str = "lines", slab: int = 1000) -> Ids:
    """A spout: tracks and publishes that many rows as one segment."""
    writer = StreamWriter(ledger, stream)
    batch = writer.batch(pa.table({"line": [f"line {n}" for n in range(number)]}))
    anchors = track(ledger, batch.ids(), slab)
    writer.publish(batch, anchors)
    return anchors


def stage(ledger: Ledger, anchors: Ids | list[Any], stream: str = "words", **how: Any) -> Staged:
    """A task of a bolt: stages a row for each anchor (or list of them)."""
    kind = pa.list_(pa.int64()) if any(isinstance(anchor, list) for anchor in anchors) else pa.int64()
    rows = pa.table({"word": [f"w{n}" for n in range(len(anchors))], "_acker": pa.array(anchors, kind)})
    ledger.run(schemas.record(ledger.core, stream, rows.schema))
    return ledger.run(staging.stage(ledger.core, Staging(stream, **how), rows.to_batches()))


def take(ledger: Ledger, stream: str, name: str = DEFAULT, reader: str = "reader", **most: Any) -> Range:
    """A batch: what a reader of a subscription can take."""
    slot = ledger.run(subscriptions.subscribe(ledger.core, stream, name))
    at = ledger.run(subscriptions.last_delivered(ledger.core, stream, slot, reader))
    end = ledger.run(subscriptions.claim(ledger.core, stream, slot, reader, at, name=name, **most))
    return Range(stream, slot, reader, at, end)


def slot_of(ledger: Ledger, stream: str = "lines", name: str = DEFAULT) -> int:
    return ledger.run(subscriptions.find(ledger.core, stream, name))


def delivered(ledger: Ledger, batch: Range) -> list[Delivery]:
    return ledger.run(subscriptions.delivered(ledger.core, batch))


def ack(ledger: Ledger, batch: Range) -> int:
    return ledger.run(acks.consume(ledger.core, batch)).segments


def readable(ledger: Ledger, batch: Range) -> int:
    """The number of segments of a batch that can be read."""
    members: list[Segment] = [piece.segment for piece in delivered(ledger, batch)]
    return sum(one is not None for one in ledger.run(payload_of(ledger, batch.stream, members)))


def commit(ledger: Ledger, number: int, what: Commit) -> bool:
    return ledger.run(commits.commit(ledger.core, "writer", number, what))


def consume(ledger: Ledger, stream: str, name: str = DEFAULT) -> int:
    return StreamReader(ledger, stream, name).ack_all()


def rows(ledger: Ledger, stream: str) -> list[dict[str, object]]:
    return list(StreamReader(ledger, stream).rows())


def counters(ledger: Ledger) -> dict[str, int]:
    """The counters that are not zero."""
    return {name: value for name, value in ledger.counters().items() if value}


def kept(url: str, word: bytes) -> list[bytes]:
    """Keys with a word in them that have no time to live."""
    with raw_client(url) as client:
        return [key for key in client.scan_iter(b"*" + word + b"*") if client.ttl(key) == -1]


def run_cut(ledger: Ledger, operation: Operation[object], after: int) -> bool:
    """Runs an operation as a process does that ends after so many exchanges; returns whether it was cut."""
    replies = None
    for _ in range(after + 1):
        try:
            requests = operation.send(replies)  # type: ignore[arg-type]
        except StopIteration:
            return False
        replies = ledger.store.send(requests)
    return True


def after_each(ledger: Ledger, operation: Operation[object]) -> Iterator[None]:
    """Runs an operation, and yields after each of its exchanges."""
    replies = None
    with suppress(StopIteration):
        while True:
            replies = ledger.store.send(operation.send(replies))  # type: ignore[arg-type]
            yield


def interleave(ledger: Ledger, *operations: Operation[T]) -> list[T]:
    """Runs operations in turn, one exchange each."""
    results: dict[int, T] = {}
    replies: list[Any] = [None] * len(operations)
    while len(results) < len(operations):
        for number, operation in enumerate(operations):
            if number in results:
                continue
            try:
                requests = operation.send(replies[number])
                replies[number] = ledger.store.send(requests)
            except StopIteration as end:
                results[number] = end.value
    return [results[number] for number in range(len(operations))]


def record_requests(ledger: Ledger, action: Callable[[], T], sent: list[Any]) -> T:
    send = ledger.store.send

    def recording(requests: Any) -> Any:
        sent.extend(requests)
        return send(requests)

    ledger.store.send = recording  # type: ignore[method-assign]
    try:
        return action()
    finally:
        del ledger.store.send
