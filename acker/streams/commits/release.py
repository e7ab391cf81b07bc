"""Gives back the segments that a reader has taken. No commit of the reader is committed after that.

A commit binds its readers before it is committed (lua/streams/log/bind_reader.lua). A bound segment stays
until the end of its commit is clear: a committed one is finished, so that it acks its segments; any other is
dropped.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a slot is the random number
of a subscription.
"""

from acker.errors import AckerError, CommitOrderError
from acker.ledger.calls.core import Core
from acker.store.operation import Operation
from acker.streams.commits import commit, holding
from acker.streams.commits.contents import Commit
from acker.streams.log import fencing, subscriptions
from acker.streams.log.fencing import Fence

_ATTEMPTS = 10


def give_back(core: Core, stream: str, slot: int, reader: str, died: str = "") -> Operation[int]:
    """Takes a reader's unacked segments back, for the others of its subscription; returns their number.

    Use it for a query that has been given up together with its checkpoint. If its reader goes on
    nevertheless, its commits end with ReaderFenced.

    Args:
        core: The ledger.
        stream: The stream.
        slot: The slot of the subscription.
        reader: The reader.
        died: See `fencing.take_back`.

    Raises:
        AckerError: The reader commits again and again. Also raises the errors of `commit.finish`.
    """
    back, ended, dropped = 0, list[Fence](), list[Commit]()
    for _ in range(_ATTEMPTS):
        more, bound = yield from fencing.take_back(core, stream, slot, reader, ended=ended, died=died)
        back += more
        if not bound:
            last = yield from subscriptions.given_back(core, stream, slot, reader)
            for work in dropped:
                if any(fence.reader == reader and fence.start < last for fence in work.ranges()):
                    yield from holding.discard(core, work)  # it can no longer be committed
            return back
        ended = bound
        for fence in bound:
            given_up = yield from _end(core, fence)
            dropped += [given_up] if given_up else []
    raise AckerError(f"reader {reader} of stream {stream!r} commits again and again: stop its query first")


def _end(core: Core, fence: Fence) -> Operation[Commit | None]:
    try:
        return (yield from commit.end(core, fence.writer, fence.number, fence.attempt))
    except CommitOrderError:
        return None  # it was done long ago, and is forgotten
