"""Giving back what a reader took: no commit of it becomes final after that, and none is cut short by it.

A commit binds its readers before it is final (lua/streams/log/bind_reader.lua). A bound segment stays until
it is clear what becomes of the commit: one that is final is finished, so that it acks its segments; any other
is dropped.
"""

from acker.errors import AckerError, CommitOrderError
from acker.ledger.calls.core import Core
from acker.store.operation import Operation
from acker.streams.commits import commit, holding
from acker.streams.commits.contents import Commit
from acker.streams.log import fencing, subscriptions
from acker.streams.log.fencing import Bound

_ATTEMPTS = 10


def give_back(core: Core, stream: str, slot: int, reader: str, died: str = "") -> Operation[int]:
    """Takes from a reader what it did not ack, for the others of its subscription; returns how many segments.

    For a query that has been given up together with its checkpoint. What its reader goes on with all the same
    is not committed: ReaderFenced. died: as of `fencing.take_back`. Raises what `commits.finish` does.
    """
    back, ended, dropped = 0, list[Bound](), list[Commit]()
    for _ in range(_ATTEMPTS):
        more, bound = yield from fencing.take_back(core, stream, slot, reader, ended=ended, died=died)
        back += more
        if not bound:
            last = yield from subscriptions.given_back(core, stream, slot, reader)
            for what in dropped:
                if any(one.reader == reader and one.start < last for one in what.ranges()):
                    yield from holding.discard(core, what)  # it cannot become final any more
            return back
        ended = bound
        for one in bound:
            given_up = yield from _end(core, one)
            dropped += [given_up] if given_up else []
    raise AckerError(f"reader {reader} of stream {stream!r} commits again and again: stop its query first")


def _end(core: Core, one: Bound) -> Operation[Commit | None]:
    try:
        return (yield from commit.end(core, one.writer, one.number, one.attempt))
    except CommitOrderError:
        return None  # it was done long ago, and is forgotten
