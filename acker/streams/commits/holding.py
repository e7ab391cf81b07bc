"""Holding: makes sure of a commit. Its data gets a long time to live, and its readers are bound to it.

A commit that lacks something is dropped instead.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; staged rows are stored, but
nobody sees them before a commit.
"""

from collections.abc import Sequence

from acker.errors import AckerError, StagingExpired
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, command
from acker.streams.commits import publishing, scripts
from acker.streams.commits.chunks import unless
from acker.streams.commits.contents import Commit
from acker.streams.commits.run import Run
from acker.streams.log import fencing, subscriptions
from acker.streams.log.subscriptions import HOLD_TTL, MOST_GIVEN, Range
from acker.streams.sources import roots
from acker.streams.staging import acks, results, skipped, staging, vectors
from acker.streams.staging import scripts as staging_scripts
from acker.streams.staging.external.rows import receipts, sending

_KEYS = 256


class Lack(Exception):
    """A commit lacks data that it needs. error: the error to raise for it."""

    def __init__(self, error: AckerError) -> None:
        super().__init__(str(error))
        self.error = error


def hold(run: Run, work: Commit) -> Operation[None]:
    """Binds the readers to the commit, and gives its data a long time to live: then it is committed.

    A key without a time to live does not get one, because another driver may have kept or published it
    meanwhile. The rows of a published segment have a time to live of their own.
    """
    core, ranges = run.core, work.ranges()

    def bound(replies: Sequence[Reply]) -> None:
        for item, reply in zip(ranges, replies, strict=False):
            if not reply:
                raise Lack(subscriptions.fenced(item.stream, item.reader))

    yield from run.do(
        fencing.bind_requests(core, ranges, run.writer, run.number, run.attempt), bound, stops=True
    )
    expired = Lack(
        StagingExpired(
            f"rows that were staged by {run.writer} for batch {run.number} ran out of time before its commit"
        )
    )
    rows = [request for request, _ in publishing.extend_requests(core, work.segments(), HOLD_TTL)]
    yield from run.do(rows, unless(lambda reply: 0 not in reply, expired), stops=True)
    staged = staged_keys(core, work)
    parts = [staged[first : first + _KEYS] for first in range(0, len(staged), _KEYS)]
    if not run.one_server:
        parts = [[key] for key in staged]
    held = [staging_scripts.extend_staged(part, HOLD_TTL) for part in parts]
    yield from run.do(held, unless(lambda reply: reply == 1, expired), stops=True)
    sent = [key for key, _ in sending.places(core, work.sent)]
    kept = sending.hold_requests(sent, together=run.one_server)
    yield from run.do(kept, unless(lambda reply: reply == 1, expired), stops=True)
    for item in ranges if work.delivered else ():
        yield from _check_delivered(run, item)


def _check_delivered(run: Run, read_range: Range) -> Operation[None]:
    """Raises Lack if a range no longer has the segments that its batch was planned with."""
    lack = Lack(subscriptions.fenced(read_range.stream, read_range.reader))
    if read_range.end - read_range.start <= MOST_GIVEN:
        key = keys.Stream(run.core.config.name, read_range.stream).delivered(
            read_range.slot, read_range.reader
        )
        asked = scripts.check_delivered(
            key, f"{read_range.start + 1}-0", f"{read_range.end}-0", read_range.planned
        )
        yield from run.do([asked], unless(lambda reply: reply == 1, lack))
        return
    members = yield from subscriptions.all_delivered(run.core, read_range)
    if subscriptions.digest(piece.segment for piece in members) != read_range.planned:
        raise lack


def _tokens(core: Core, work: Commit) -> list[bytes]:
    """Keys of staged failures, results and effects."""
    staged = [staging.failing_key(core, staged_id)[0] for staged_id in work.failures()]
    staged += receipts.keys_of(core, work.received)
    digests = [*(staged_id for staged_id, _ in work.effects()), *work.released()]
    staged += [results.staged_key(core, function, staged_id) for function, staged_id, _ in work.results()]
    return staged + [keys.effects(core.config.name, staged_id) for staged_id in digests]


def staged_keys(core: Core, work: Commit) -> list[bytes]:
    """The keys of a commit's data, except the rows of its segments."""
    staged = [*_tokens(core, work), *skipped.keys_of(core, work.ranges())]
    for _, segment in work.segments():
        staged += [key for key, _ in vectors.keys_of(core, segment)]
    for one in work.roots():
        staged += roots.staged_keys(core, one)
    return staged + [key for one in work.gates for key, _ in vectors.keys_of(core, one)]


def discard(core: Core, work: Commit) -> Operation[None]:
    """Deletes the staged data of a commit that was not carried out, and never will be.

    Rows that an unknown commit has kept or published nevertheless stay as they are.
    """
    calls = publishing.extend_requests(core, work.segments(), 0)
    replies = yield [request for request, _ in calls] if calls else []
    asked = [segment for _, members in calls for segment in members]
    published = {
        segment
        for segment, left in zip(asked, (item for reply in replies for item in reply), strict=True)
        if left < 0
    }
    spent = _tokens(core, work)
    for segment in asked:
        if segment not in published:
            spent += [key for key, _ in vectors.keys_of(core, segment)]
    for item in work.roots():
        rows, *noted = roots.staged_keys(core, item)
        [dropped] = yield [command("EXPIRE", rows, 0, "XX")]  # kept rows have no time to live
        if dropped:
            spent += noted
    spent += [key for item in work.gates for key, _ in vectors.keys_of(core, item)]
    yield from acks.unlink(core, spent)
