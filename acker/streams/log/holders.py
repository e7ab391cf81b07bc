"""Holders of segments: each task that reads segments notes its query and batch.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from acker.ledger.calls.core import Core
from acker.ledger.fields import Whole
from acker.ledger.steps.step_registry import Step
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import Codec, Count, readable
from acker.store.replies import milliseconds, pairs
from acker.streams.log.heartbeats import Lease
from acker.streams.log.subscriptions import HOLD_TTL, Range

_PAGE = 1_000
_PAGES = 50
_NOTED: Codec[tuple[str, int, int, int]] = Codec(tuple[str, int, Count, Count], "a note of a reader", 1 << 16)


@dataclass(frozen=True, slots=True)
class Holder:
    """A reader that has taken segments of a subscription and not acked them.

    step, application, query_name: as the step that the query runs has said. Several bolts of a query are
    joined by a comma.
    """

    reader: Annotated[str, "Its name in the subscription."]
    number: Annotated[Whole, "Of the segment, or of the oldest, among all that it took."]
    query: Annotated[str, "Id of its streaming query, or its batch job; empty until it reads."] = ""
    batch: Annotated[int | None, "Number of the batch; null where that is not known."] = None
    step: Annotated[str, "Empty before the first batch of the query is done."] = ""
    application: str = ""
    query_name: str = ""
    alive: Annotated[bool | None, "Of a worker of a line; null for any other reader."] = None

    def text(self) -> Annotated[str, "The reader, for people."]:
        """The reader, for people."""
        job, named, run = self.query.partition(":")
        if named:
            return f"job {job}, run {run}"
        if self.alive is not None:
            gone = "which gives no sign of life: others get it" if not self.alive else "which is alive"
            return f"worker {self.reader}, {gone}"
        name = self.step or (f"query {self.query_name or self.query}" if self.query else "")
        if not name:
            return f"reader {self.reader}, none of whose tasks has begun to read"
        within = [f"application {self.application}"] if self.application else []
        if self.step and self.query:
            within.append(f"query {self.query_name or self.query}")
        within += [f"batch {self.batch}"] if self.batch is not None else []
        return f"{name} ({', '.join(within)})" if within else name


def note_request(core: Core, read: Range, query: str, batch: int) -> Request:
    """The request that notes the batch for which a range is read. The note of the last batch remains."""
    key = keys.Stream(core.config.name, read.stream).holder(read.slot, read.reader)
    return command("SET", key, _NOTED.dump((query, batch, read.start, read.end)), "EX", HOLD_TTL)


def find(
    core: Core, stream: str, slot: int, entries: Collection[str], at_work: Iterable[Step]
) -> Operation[dict[str, Holder]]:
    """The readers of a subscription that have taken some entries, by entry.

    Looks at 50,000 taken segments at most. An entry that is not found was taken by no reader, or by one of
    very many.
    """
    stream_keys, left, holders = keys.Stream(core.config.name, stream), set(entries), dict[str, Holder]()
    [names] = yield [command("HGETALL", stream_keys.readers(slot))]
    pages = 0
    for reader in sorted(name.decode("utf-8", "replace") for name in pairs(names)):
        start, numbers = "-", dict[str, int]()
        while left and pages < _PAGES:
            pages += 1
            [page] = yield [
                command("XRANGE", stream_keys.delivered(slot, reader), start, "+", "COUNT", _PAGE)
            ]
            for number, values in page:
                entry = pairs(values).get(b"entry", b"").decode("utf-8", "replace")
                if entry in left:
                    left.discard(entry)
                    numbers[entry] = int(number.split(b"-")[0])
            if len(page) < _PAGE:
                break
            start = f"({page[-1][0].decode()}"
        if numbers:
            describe_taker = yield from taker(core, Range(stream, slot, reader, 0, 0), at_work)
            holders |= {entry: describe_taker(number) for entry, number in numbers.items()}
    return holders


def taker(core: Core, read: Range, at_work: Iterable[Step]) -> Operation[Callable[[int], Holder]]:
    """Describes the reader of a range, for each number of a segment that it took."""
    stream_keys = keys.Stream(core.config.name, read.stream)
    [noted, until, instant] = yield [
        command("GET", stream_keys.holder(read.slot, read.reader)),
        command("HGET", stream_keys.workers(read.slot), read.reader),
        Request(stream_keys.entries, ["TIME"]),
    ]
    lease = Lease.parse(until)
    alive = None if until is None else lease is not None and lease.until >= milliseconds(instant)
    known = list(at_work)
    return lambda number: replace(describe(read.stream, read.reader, number, noted, known), alive=alive)


def describe(stream: str, reader: str, number: int, noted: bytes | None, at_work: Iterable[Step]) -> Holder:
    """Describes a reader by the notes of its tasks, and by the reports of steps."""
    if noted is None:
        return Holder(reader, number)
    parsed = readable(_NOTED.load, noted, f"reader {reader} of stream {stream}")
    if parsed is None:
        return Holder(reader, number)
    query, batch, start, end = parsed
    mine = [step for step in at_work if step.query_id == query]
    mine = [step for step in mine if stream in step.reads] or mine
    return Holder(
        reader,
        number,
        query,
        batch if start < number <= end else None,
        ", ".join(sorted({step.name for step in mine})),
        next((step.application for step in mine if step.application), ""),
        next((step.query for step in mine if step.query), ""),
    )
