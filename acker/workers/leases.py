"""Leases: a worker says every few seconds that it lives; what a dead one has taken goes to the others.

A worker that was taken for dead learns of it before it begins anything, and nothing that it had begun is
committed any more. So one that died costs a repeat, and one that was only paused does no harm.
"""

import numpy as np

from acker.errors import ReaderFenced
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
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import HOLD_TTL, Range
from acker.streams.reader import payload_of
from acker.streams.staging import acks
from acker.workers import scripts

LEASE = 10.0
"""Seconds after which a worker that does not say that it lives is taken for dead."""
BEGUN = "!"
"""Before the reader of a worker: the field of what it has begun, beside that of its own time."""
UNCOMMITTED = "?"
"""The same, of why that was not committed."""
_NOTES = BEGUN.encode(), UNCOMMITTED.encode()


def beat(
    core: Core, stream: str, slot: int, reader: str, *, new: bool = False, begun: str = ""
) -> Operation[None]:
    """Notes by the store's clock until when a worker counts as alive, and what it begins.

    new: its first. Raises ReaderFenced where it was taken for dead meanwhile, or is not known any more.
    """
    workers = keys.Stream(core.config.name, stream).workers(slot)
    [alive] = yield [scripts.lease(workers, reader, round(LEASE * 1000), HOLD_TTL, new, begun)]
    if not alive:
        raise ReaderFenced(
            f"worker {reader} of stream {stream!r} did not say for {LEASE:g} s that it lives, or the store "
            "was set back: others have what it had taken. It begins anew"
        )


def renew_period(core: Core) -> float:
    """Seconds between two signs of life of a worker: the rows of one that misses three wait (`downtime`)."""
    return min(LEASE / 4, heartbeats.period(core))


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
    untils = [until for field, until in pairs(known).items() if not field.startswith(_NOTES)]
    return sum(_lives(until, milliseconds(instant)) for until in untils)


def _lives(until: bytes, now: int) -> bool:
    return until.isdigit() and int(until) >= now


def recover(ledger: Ledger, stream: str, slot: int, step: str) -> Operation[int]:
    """Gives back what workers have taken whose time is over; returns how many segments.

    What one has begun, where it noted that, is not worked on again: its commit is finished where there is
    one, else its trees fail.
    """
    core, back, lease = ledger.core, 0, max(0, round(LEASE * 1000))
    workers = keys.Stream(core.config.name, stream).workers(slot)
    [known, instant] = yield [command("HGETALL", workers), Request(workers, ["TIME"])]
    for field, until in pairs(known).items():
        reader = field.decode("utf-8", "replace")
        now = milliseconds(instant)
        # One that counts as alive for longer than any worker does so by a clock that was set back since.
        if field.startswith(_NOTES) or (_lives(until, now) and not _lives(until, now + lease + 1)):
            continue
        [(dead, *noted)] = yield [scripts.end_lease(workers, reader, lease)]
        if dead:
            begun, why = noted
            if begun:
                cause = Cause(why.decode("utf-8", "replace") or f"worker died in {step}", step, retry=False)
                yield from _end_begun(ledger, stream, slot, reader, begun, cause)
            back += yield from end(core, stream, slot, reader)
    return back


def end(core: Core, stream: str, slot: int, reader: str) -> Operation[int]:
    """Gives back what a worker has taken and not committed, and forgets it; returns how many segments."""
    back = yield from release.give_back(core, stream, slot, reader)
    workers = keys.Stream(core.config.name, stream).workers(slot)
    yield [command("HDEL", workers, reader, f"{BEGUN}{reader}", f"{UNCOMMITTED}{reader}")]
    yield from commits.forget(core, reader)
    return back


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
    if (yield from commits.finish(core, reader, number)):
        return
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
