"""Leases: a worker says every few seconds that it lives; what a dead one has taken goes to the others.

A worker that was taken for dead learns of it before it begins anything. What it had begun may have been begun
anew by then. Whoever ends first wins: it takes its segments back from those who work on them, where none of
their tuples is acked, and none is in a commit. So a worker that died costs a repeat, and one that was only
paused, as by a step that holds the interpreter of its process, does no harm.
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
from acker.streams.log.subscriptions import HOLD_TTL, Range, Taken
from acker.streams.reader import payload_of
from acker.streams.staging import acks
from acker.workers import poison, scripts

LEASE = 10.0
"""Seconds after which a worker that does not say that it lives is taken for dead."""
MOST_LEASE = 60.0
"""The same, where its signs of life come late (`Renewals`)."""
_LATE = 3
"""Seconds by which a second of lateness makes a lease longer."""
_ROUNDS = 50
_LOOKED = 2_000
"""Segments that are looked at of what was given back of late, and of what another worker has."""
BEGUN = "!"
"""Before the reader of a worker: the field of what it has begun, beside that of its own time."""
UNCOMMITTED = "?"
"""The same, of why that was not committed."""
_NOTES = BEGUN.encode(), UNCOMMITTED.encode()


class Living(NamedTuple):
    """A worker that counts as alive: its subscription, and its reader there."""

    stream: str
    slot: int
    reader: str


class Renewals:
    """The signs of life of the workers of a line: when they are due, and for how long they hold.

    A process whose signs of life come late, as one that waits long for the store, or for the interpreter,
    gets longer leases, up to a minute: else others take what it works on, and lose the same time with it.
    """

    def __init__(self) -> None:
        self._late = deque[float](maxlen=_ROUNDS)
        self._last = 0.0

    @property
    def lease(self) -> float:
        """Seconds for which a sign of life holds."""
        return min(max(LEASE, MOST_LEASE), LEASE + _LATE * max(self._late, default=0.0))

    @staticmethod
    def period(core: Core) -> float:
        """Seconds between two signs of life: the rows of a worker that misses three wait (`downtime`)."""
        return min(LEASE / 4, heartbeats.period(core))

    def renew(self, ledger: Ledger, workers: Sequence[Living]) -> None:
        """Says that workers live, in one flight. A worker that was taken for dead learns that by itself."""
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
    """Notes by the store's clock until when a worker counts as alive, and what it begins.

    new: its first. lease: seconds (`LEASE`). Raises ReaderFenced where it was taken for dead meanwhile, or is
    not known any more.
    """
    lease = LEASE if lease is None else lease
    [alive] = yield [_lease(core, Living(stream, slot, reader), lease, new=new, begun=begun)]
    if not alive:
        raise ReaderFenced(
            f"worker {reader} of stream {stream!r} did not say for {lease:g} s that it lives, or the store "
            "was set back: others have what it had taken. It begins anew"
        )


def _lease(core: Core, one: Living, lease: float, *, new: bool = False, begun: str = "") -> Request:
    workers = keys.Stream(core.config.name, one.stream).workers(one.slot)
    return scripts.lease(workers, one.reader, round(lease * 1000), HOLD_TTL, new, begun)


def done(core: Core, stream: str, slot: int, reader: str) -> Operation[None]:
    """Notes that a worker has nothing begun."""
    yield [command("HDEL", keys.Stream(core.config.name, stream).workers(slot), f"{BEGUN}{reader}")]


def note_uncommitted(
    core: Core, stream: str, slot: int, reader: str, begun: str, reason: str
) -> Operation[None]:
    """Notes why what a worker has begun was not committed, for whoever ends its lease.

    It can be noted where the store has no memory, too. begun: as of `beat`. reason: is cut to 1 KiB.
    """
    workers = keys.Stream(core.config.name, stream).workers(slot)
    yield [
        scripts.note_uncommitted(workers, reader, begun, bounded_reason(reason).encode("utf-8", "replace"))
    ]


def alive(core: Core, stream: str, slot: int) -> Operation[int]:
    """How many workers of a subscription count as alive."""
    workers = keys.Stream(core.config.name, stream).workers(slot)
    [known, instant] = yield [command("HGETALL", workers), Request(workers, ["TIME"])]
    found = [Lease.parse(text) for field, text in pairs(known).items() if not field.startswith(_NOTES)]
    return sum(one is not None and one.until >= milliseconds(instant) for one in found)


def recover(ledger: Ledger, stream: str, slot: int, step: str) -> Operation[int]:
    """Gives back what workers have taken whose time is over; returns how many segments.

    What one has begun, where it noted that, is not worked on again: its commit is finished where there is
    one, else its trees fail.
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
    """Gives back what a worker has taken and not committed, and forgets it; returns how many segments.

    died: as of `acker.streams.log.fencing.take_back`.
    """
    back = yield from release.give_back(core, stream, slot, reader, died)
    workers = keys.Stream(core.config.name, stream).workers(slot)
    yield [command("HDEL", workers, reader, f"{BEGUN}{reader}", f"{UNCOMMITTED}{reader}")]
    yield from commits.forget(core, reader)
    return back


def take_over(
    core: Core, one: Living, found: Sequence[Taken], name: str, version: str, lease: float
) -> Operation[Living | None]:
    """Makes a worker whose lease has ended have what it has worked on again; returns it under its new reader.

    None where its lease has not ended, or others have what it worked on in a commit, or have acked it. found:
    what it worked on; it is the first that the new reader has, in the same order. name, version: of the
    subscription, as for a claim. lease: seconds of the new one.
    """
    own = keys.Stream(core.config.name, one.stream)
    tokens = [piece.segment.token for piece in found]
    [known, back] = yield [
        command("HGETALL", own.workers(one.slot)),
        command("XREVRANGE", own.returned(one.slot), "+", "-", "COUNT", _LOOKED),
    ]
    workers = {name.decode("utf-8", "replace"): Lease.parse(text) for name, text in pairs(known).items()}
    others = [reader for reader, of in workers.items() if of is not None]
    if one.reader in others or segments.UNREAD in (piece.segment for piece in found):
        return None
    pages = yield [
        command("XRANGE", own.taken(one.slot, reader), "-", "+", "COUNT", _LOOKED) for reader in others
    ]
    held = dict[str, tuple[int, str]]()
    for place, page in enumerate([back, *pages]):
        for number, fields in page:
            held[fields[1].decode()] = place, number.decode()
    if not all(piece.entry in held for piece in found):
        return None
    holding = sorted({held[piece.entry][0] for piece in found} - {0})
    places = [
        (holding.index(place) + 1 if place else 0, number, piece.entry)
        for piece in found
        for place, number in [held[piece.entry]]
    ]
    new = one._replace(reader=segments.new_token())
    # Before it has anything: who has taken and is not known to live would keep that for ever.
    yield from beat(core, *new, new=True, lease=lease)
    readers = [others[place - 1] for place in holding]
    words = one.slot, new.reader, HOLD_TTL, name, version, readers, tokens, places
    [done] = yield [scripts.take_over(own, *words)]
    if not done:
        yield from end(core, *new)
        return None
    yield from end(core, *one)  # what is left of it
    return new


def end_set_back(core: Core, stream: str, slot: int, reader: str, at: int, cause: Cause) -> Operation[None]:
    """Ends a worker that had acked what it took up to number `at`, as the store does not know any more.

    What of that is not acked fails: nobody works on it a second time, for nodes of a cluster may have kept
    what came of it, and a new attempt has trees of its own. What it has not worked on is given back.
    """
    yield from commits.next_number(core, reader)  # finishes what the store has the middle of
    what = Range(stream, slot, reader, 0, at)
    yield from acks.consume(core, what, cause.text())
    yield from subscriptions.forget(core, what)
    yield from end(core, stream, slot, reader)


def _end_begun(
    ledger: Ledger, stream: str, slot: int, reader: str, begun: bytes, cause: Cause
) -> Operation[None]:
    """Finishes what a worker whose lease has ended had begun, or fails its trees: nobody begins it again."""
    core = ledger.core
    start, last, number = (whole(word, f"what worker {reader} has begun") for word in begun.split(b" "))
    try:
        if (yield from commits.finish(core, reader, number)):
            return
    except CommitOrderError:
        pass  # a store that was set back has forgotten it since, with what it had made
    what = Range(stream, slot, reader, start, last)
    while found := (yield from subscriptions.taken(core, what)):
        for one in found:  # a segment at a time: they may be large
            [payload] = yield from payload_of(ledger, stream, [one.segment])
            if payload is not None:
                rows = yield from acks.rows(core, stream, one.segment, slot, payload)
                anchors = [np.unique(segments.edges(batch.column(ANCHORS))[0]) for batch in rows]
                for part in anchors:
                    yield from idempotence.submit(core, core.fail(part[part != 0], cause.encode()).calls)
        what = Range(stream, slot, reader, found[-1].number, last)
