"""Leases: a worker renews its lease every few seconds; the claims of a dead worker go to the others.

A worker that counted as dead learns of it before it begins any work. By then, others may have begun its work
anew. The first to end wins: it takes its segments back from the others, if none of their tuples is acked, and
none is in a commit. So a dead worker costs a repeat, and a worker that was only paused, as by a step that
holds the interpreter of its process, does no harm.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from acker.errors import CommitOrderError, ReaderFenced
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.settings.config import bounded_reason
from acker.ledger.slabs.causes import Cause
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds, pairs, whole
from acker.streams.commits import commit as commits
from acker.streams.commits import release
from acker.streams.log import heartbeats, segments, subscriptions
from acker.streams.log.heartbeats import Lease
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import HOLD_TTL, Delivery, Range
from acker.streams.reader import payload_of
from acker.streams.staging import acks
from acker.workers import poison, scripts

LEASE = 10.0
"""Seconds after which a worker without a renewed lease counts as dead."""
MOST_LEASE = 60.0
"""The longest lease, of workers whose renewals come late (`Renewals`)."""
_LATE = 3
"""Seconds by which a second of lateness makes a lease longer."""
_ROUNDS = 50
_LOOKED = 2_000
"""Segments that are read of recently returned ones, and of another worker's."""
BEGUN = "!"
"""The prefix of a worker's reader, in the field of its begun work; the field without it has its lease."""
UNCOMMITTED = "?"
"""The prefix of a worker's reader, in the field with the reason of a failed commit."""
_NOTES = BEGUN.encode(), UNCOMMITTED.encode()


class Living(NamedTuple):
    """A living worker: its subscription, and its reader there."""

    stream: str
    slot: int
    reader: str


class Renewals:
    """The leases of the workers of a line: their renewal times and their lengths.

    A process whose renewals come late, because it waits long for the store or for the interpreter, gets
    longer leases, up to a minute. Otherwise others would take its work, and lose the same time with it.
    """

    def __init__(self) -> None:
        self._late = deque[float](maxlen=_ROUNDS)
        self._last = 0.0

    @property
    def lease(self) -> float:
        """The length of a lease in seconds."""
        return min(max(LEASE, MOST_LEASE), LEASE + _LATE * max(self._late, default=0.0))

    @staticmethod
    def period(core: Core) -> float:
        """Returns the seconds between two renewals: if a worker misses three, its rows wait (`downtime`)."""
        return min(LEASE / 4, heartbeats.period(core))

    def renew(self, ledger: Ledger, workers: Sequence[Living]) -> None:
        """Renews the leases of workers, in one flight. A worker that counted as dead notices by itself."""
        ledger.run(self._renew(ledger.core, workers))
        now = time.monotonic()
        if self._last:
            self._late.append(max(0.0, now - self._last - self.period(ledger.core)))
        self._last = now

    def _renew(self, core: Core, workers: Sequence[Living]) -> Operation[None]:
        if workers:
            yield [_lease(core, one, self.lease) for one in workers]


def beat(
    core: Core,
    stream: str,
    slot: int,
    reader: str,
    *,
    new: bool = False,
    begun: str = "",
    lease: float | None = None,
) -> Operation[None]:
    """Records, by the store's clock, the end of a worker's lease, and the work that it begins.

    new: True for its first lease. lease: seconds (`LEASE`). Raises ReaderFenced if the worker counted as dead
    meanwhile, or is unknown.
    """
    lease = LEASE if lease is None else lease
    [alive] = yield [_lease(core, Living(stream, slot, reader), lease, new=new, begun=begun)]
    if not alive:
        raise ReaderFenced(
            f"worker {reader} of stream {stream!r} did not renew its lease for {lease:g} s, or the store "
            "was rolled back: other workers have the rows that it had taken. The worker begins anew"
        )


def _lease(core: Core, living: Living, lease: float, *, new: bool = False, begun: str = "") -> Request:
    workers = keys.Stream(core.config.name, living.stream).workers(living.slot)
    return scripts.lease(workers, living.reader, round(lease * 1000), HOLD_TTL, new, begun)


def done(core: Core, stream: str, slot: int, reader: str) -> Operation[None]:
    """Records that a worker has no begun work."""
    yield [command("HDEL", keys.Stream(core.config.name, stream).workers(slot), f"{BEGUN}{reader}")]


def note_uncommitted(
    core: Core, stream: str, slot: int, reader: str, begun: str, reason: str
) -> Operation[None]:
    """Records, for the process that ends a worker's lease, why its begun work was not committed.

    This works even if the store has no memory left. begun: see `beat`. reason: cut to 1 KiB.
    """
    workers = keys.Stream(core.config.name, stream).workers(slot)
    yield [
        scripts.note_uncommitted(workers, reader, begun, bounded_reason(reason).encode("utf-8", "replace"))
    ]


def alive(core: Core, stream: str, slot: int) -> Operation[int]:
    """Returns the number of living workers of a subscription."""
    workers = keys.Stream(core.config.name, stream).workers(slot)
    [known, instant] = yield [command("HGETALL", workers), Request(workers, ["TIME"])]
    found = [Lease.parse(text) for field, text in pairs(known).items() if not field.startswith(_NOTES)]
    return sum(one is not None and one.until >= milliseconds(instant) for one in found)


def recover(ledger: Ledger, stream: str, slot: int, step: str) -> Operation[int]:
    """Gives back the segments of dead workers; returns their number.

    Work that a worker has recorded as begun is not repeated: its commit is finished if there is one,
    otherwise its trees fail.
    """
    core, back = ledger.core, 0
    workers = keys.Stream(core.config.name, stream).workers(slot)
    [known, instant] = yield [command("HGETALL", workers), Request(workers, ["TIME"])]
    for field, text in pairs(known).items():
        reader, lease, now = field.decode("utf-8", "replace"), Lease.parse(text), milliseconds(instant)
        # One that counts as alive for longer than any worker does so by a clock that was set back since.
        if field.startswith(_NOTES) or (lease is not None and now <= lease.until <= now + lease.length):
            continue
        [(dead, *noted)] = yield [scripts.end_lease(workers, reader)]
        if dead:
            begun, why = noted
            at = poison.noted(begun)
            if begun and not at:
                cause = Cause(why.decode("utf-8", "replace") or f"worker died in {step}", step, retry=False)
                yield from _end_begun(ledger, stream, slot, reader, begun, cause)
            back += yield from end(core, stream, slot, reader, died=at or "-")
    return back


def end(core: Core, stream: str, slot: int, reader: str, *, died: str = "") -> Operation[int]:
    """Gives back a worker's uncommitted segments, and forgets the worker; returns their number.

    died: The record at which the worker died, as `acker.streams.log.fencing.take_back` takes it.
    """
    back = yield from release.give_back(core, stream, slot, reader, died)
    workers = keys.Stream(core.config.name, stream).workers(slot)
    yield [command("HDEL", workers, reader, f"{BEGUN}{reader}", f"{UNCOMMITTED}{reader}")]
    yield from commits.forget(core, reader)
    return back


def take_over(
    core: Core, living: Living, deliveries: Sequence[Delivery], name: str, version: str, lease: float
) -> Operation[Living | None]:
    """Gives a worker whose lease has ended its work again; returns it under its new reader.

    Returns None if its lease has not ended, or others have its work in a commit, or have acked it.
    deliveries: its work, which comes first for the new reader, in the same order. name, version: of the
    subscription, as for a claim. lease: seconds of the new lease.
    """
    stream = keys.Stream(core.config.name, living.stream)
    segment_ids = [piece.segment.id for piece in deliveries]
    [lease_end, back] = yield [
        command("HGETALL", stream.workers(living.slot)),
        command("XREVRANGE", stream.returned(living.slot), "+", "-", "COUNT", _LOOKED),
    ]
    workers = {name.decode("utf-8", "replace"): Lease.parse(text) for name, text in pairs(lease_end).items()}
    others = [reader for reader, of in workers.items() if of is not None]
    if living.reader in others or segments.UNREAD in (piece.segment for piece in deliveries):
        return None
    pages = yield [
        command("XRANGE", stream.delivered(living.slot, reader), "-", "+", "COUNT", _LOOKED)
        for reader in others
    ]
    held = dict[str, tuple[int, str]]()
    for place, page in enumerate([back, *pages]):
        for number, fields in page:
            held[fields[1].decode()] = place, number.decode()
    if not all(piece.entry in held for piece in deliveries):
        return None
    holding = sorted({held[piece.entry][0] for piece in deliveries} - {0})
    places = [
        (holding.index(place) + 1 if place else 0, number, piece.entry)
        for piece in deliveries
        for place, number in [held[piece.entry]]
    ]
    new = living._replace(reader=segments.new_hex_id())
    # Before it has anything: a reader with segments and without a lease would keep them for ever.
    yield from beat(core, *new, new=True, lease=lease)
    readers = [others[place - 1] for place in holding]
    words = living.slot, new.reader, HOLD_TTL, name, version, readers, segment_ids, places
    [done] = yield [scripts.take_over(stream, *words)]
    if not done:
        yield from end(core, *new)
        return None
    yield from end(core, *living)  # the rest of its segments
    return new


def end_set_back(core: Core, stream: str, slot: int, reader: str, at: int, cause: Cause) -> Operation[None]:
    """Ends a worker that had acked its segments up to number `at`, which the store no longer knows.

    The unacked ones among them fail: no worker repeats them, because nodes of a cluster may have kept their
    effects, and a new attempt has trees of its own. Segments that it has not worked on are given back.
    """
    yield from commits.next_number(core, reader)  # finishes a commit that the store has in part
    what = Range(stream, slot, reader, 0, at)
    yield from acks.consume(core, what, cause.text())
    yield from subscriptions.forget(core, what)
    yield from end(core, stream, slot, reader)


def _end_begun(
    ledger: Ledger, stream: str, slot: int, reader: str, begun: bytes, cause: Cause
) -> Operation[None]:
    """Finishes the begun work of a worker whose lease has ended, or fails its trees: it is not repeated."""
    core = ledger.core
    start, last, number = (whole(word, f"the begun work of worker {reader}") for word in begun.split(b" "))
    try:
        if (yield from commits.finish(core, reader, number)):
            return
    except CommitOrderError:
        pass  # a store that was rolled back has forgotten it since, with its effects
    claimed = Range(stream, slot, reader, start, last)
    while deliveries := (yield from subscriptions.delivered(core, claimed)):
        for delivery in deliveries:  # a segment at a time: they may be large
            [payload] = yield from payload_of(ledger, stream, [delivery.segment])
            if payload is not None:
                rows = yield from acks.rows(core, stream, delivery.segment, slot, payload)
                anchors = [np.unique(segments.edges(batch.column(ANCHORS))[0]) for batch in rows]
                for part in anchors:
                    yield from idempotence.submit(core, core.fail(part[part != 0], cause.encode()).calls)
        claimed = Range(stream, slot, reader, deliveries[-1].number, last)
