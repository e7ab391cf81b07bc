"""All that a commit needs is held: it lives long, and readers are bound to the commit; or it is dropped."""

from acker.errors import AckerError, StagingExpired
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, abreast, command
from acker.streams.commits import publishing
from acker.streams.commits.contents import Commit
from acker.streams.log import fencing, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import HOLD_TTL, Range
from acker.streams.sources import roots
from acker.streams.staging import acks, results, skipped, staging, vectors

_PARTS = 256


def hold(
    core: Core,
    what: Commit,
    writer: str,
    number: int,
    attempt: str,
    taken: dict[Range, list[Segment]],
) -> Operation[AckerError | None]:
    """Binds the readers of a commit to it, and gives all that it needs a long time to live.

    Returns why it cannot be carried out: a reader's segments were given back, or what it took is not there
    any more where that matters, or something is missing.
    Nothing that lives for ever is given a time to live: another driver may have kept or published it
    meanwhile. The rows of a segment that was published have a time of their own. taken: gets what inputs are
    found to be.
    """
    checks = [_held(core, what, writer, number, attempt)]
    checks += [_still_taken(core, one, taken) for one in what.ranges() if what.taken]
    lacks = yield from abreast(checks)
    return next((lack for lack in lacks if lack), None)


def _held(core: Core, what: Commit, writer: str, number: int, attempt: str) -> Operation[AckerError | None]:
    expired = StagingExpired(f"staged data of {writer} {number} ran out of time before its commit")
    ranges = what.ranges()
    binding = fencing.binding(core, ranges, writer, number, attempt)
    rows = [request for request, _ in publishing.holding(core, what.segments(), HOLD_TTL)]
    found = _staged_keys(core, what)
    for first in range(0, len(found) or bool(binding or rows), _PARTS):
        part = found[first : first + _PARTS]
        replies = yield [*binding, *rows, *(command("EXPIRE", key, HOLD_TTL, "XX") for key in part)]
        for one, bound in zip(ranges if binding else (), replies, strict=False):
            if not bound:
                return subscriptions.fenced(one.stream, one.reader)
        begun = len(binding) + len(rows)
        if any(0 in held for held in replies[len(binding) : begun]):
            return expired
        binding, rows = [], []
        # What got a new time to live is there. Of any other it is to be known whether it lives for ever.
        asked = [key for key, held in zip(part, replies[begun:], strict=True) if not held]
        if asked and not all((yield [command("EXISTS", key) for key in asked])):
            return expired
    return None


def _still_taken(core: Core, one: Range, taken: dict[Range, list[Segment]]) -> Operation[AckerError | None]:
    """Why a range is not what its batch was planned with, if it is not."""
    members = [piece.segment for piece in (yield from subscriptions.all_taken(core, one))]
    taken[one] = members
    if subscriptions.digest(members) != one.planned:
        return subscriptions.fenced(one.stream, one.reader)
    return None


def _tokens(core: Core, what: Commit) -> list[bytes]:
    """Keys of staged failures, results and effects."""
    found = [staging.failing(core, token)[0] for token in what.failures()]
    digests = [*(token for token, _ in what.effects()), *what.released()]
    found += [results.staged(core, function, token) for function, token, _ in what.results()]
    return found + [keys.effects(core.config.name, token) for token in digests]


def _staged_keys(core: Core, what: Commit) -> list[bytes]:
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
