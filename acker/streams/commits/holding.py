"""All that a commit needs is held: it lives long, and readers are bound to the commit; or it is dropped."""

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

_KEYS = 256


class Lack(Exception):
    """Something that the commit needs is not there. error: what is raised for it."""

    def __init__(self, error: AckerError) -> None:
        super().__init__(str(error))
        self.error = error


def hold(run: Run, what: Commit) -> Operation[None]:
    """Binds the readers to the commit, and gives all that it needs a long time to live: then it is final.

    Nothing that lives for ever is given a time to live: another driver may have kept or published it
    meanwhile. The rows of a segment that was published have a time of their own.
    """
    core, ranges = run.core, what.ranges()

    def bound(replies: Sequence[Reply]) -> None:
        for one, reply in zip(ranges, replies, strict=False):
            if not reply:
                raise Lack(subscriptions.fenced(one.stream, one.reader))

    yield from run.do(fencing.binding(core, ranges, run.writer, run.number, run.attempt), bound, stops=True)
    expired = Lack(
        StagingExpired(f"staged data of {run.writer} {run.number} ran out of time before its commit")
    )
    rows = [request for request, _ in publishing.holding(core, what.segments(), HOLD_TTL)]
    yield from run.do(rows, unless(lambda reply: 0 not in reply, expired), stops=True)
    staged = staged_keys(core, what)
    parts = [staged[first : first + _KEYS] for first in range(0, len(staged), _KEYS)]
    if not run.one_server:
        parts = [[key] for key in staged]
    held = [staging_scripts.hold_staged(part, HOLD_TTL) for part in parts]
    yield from run.do(held, unless(lambda reply: reply == 1, expired), stops=True)
    for one in ranges if what.taken else ():
        yield from _check_taken(run, one)


def _check_taken(run: Run, one: Range) -> Operation[None]:
    """Raises Lack where a range is not what its batch was planned with."""
    lack = Lack(subscriptions.fenced(one.stream, one.reader))
    if one.end - one.start <= MOST_GIVEN:
        key = keys.Stream(run.core.config.name, one.stream).taken(one.slot, one.reader)
        asked = scripts.check_taken(key, f"{one.start + 1}-0", f"{one.end}-0", one.planned)
        yield from run.do([asked], unless(lambda reply: reply == 1, lack))
        return
    found = yield from subscriptions.all_taken(run.core, one)
    if subscriptions.digest(piece.segment for piece in found) != one.planned:
        raise lack


def _tokens(core: Core, what: Commit) -> list[bytes]:
    """Keys of staged failures, results and effects."""
    found = [staging.failing(core, token)[0] for token in what.failures()]
    digests = [*(token for token, _ in what.effects()), *what.released()]
    found += [results.staged(core, function, token) for function, token, _ in what.results()]
    return found + [keys.effects(core.config.name, token) for token in digests]


def staged_keys(core: Core, what: Commit) -> list[bytes]:
    """All that a commit needs, but the rows of its segments."""
    found = [*_tokens(core, what), *skipped.keys_of(core, what.ranges())]
    for _, segment in what.segments():
        found += [key for key, _ in vectors.keys_of(core, segment)]
    for one in what.roots():
        found += roots.staged_keys(core, one)
    return found + [key for one in what.gates for key, _ in vectors.keys_of(core, one)]


def discard(core: Core, what: Commit) -> Operation[None]:
    """Deletes what was staged for a commit that is not carried out and never was.

    What was kept or published all the same, by a commit that nobody knows of any more, stays as it is.
    """
    calls = publishing.holding(core, what.segments(), 0)
    replies = yield [request for request, _ in calls] if calls else []
    asked = [segment for _, members in calls for segment in members]
    published = {
        segment
        for segment, left in zip(asked, (one for reply in replies for one in reply), strict=True)
        if left < 0
    }
    spent = _tokens(core, what)
    for segment in asked:
        if segment not in published:
            spent += [key for key, _ in vectors.keys_of(core, segment)]
    for one in what.roots():
        rows, *noted = roots.staged_keys(core, one)
        [dropped] = yield [command("EXPIRE", rows, 0, "XX")]  # but for rows that are kept
        if dropped:
            spent += noted
    spent += [key for one in what.gates for key, _ in vectors.keys_of(core, one)]
    yield from acks.unlink(core, spent)
