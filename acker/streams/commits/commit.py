"""Commits: staged work takes effect once for each writer and number, however often a batch is run.

A commit is first stored as a whole. From then on any process that calls with the same writer and number
finishes the stored commit. plan.py has its steps in their order, record.py its states, and run.py sends the
steps to the store. Staged work is applied before the inputs are acked, so no tree looks complete in between.
No tree of a commit expires while the commit is under way (under_way.py).

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece; roots are rows of a spout that were staged together, and get a tree each; staged rows are
stored, but nobody sees them before a commit.
"""

import hashlib
import logging
from collections.abc import Callable

from acker.errors import AckerError, CommitOrderError, StagingExpired
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, abreast, command
from acker.store.replies import pairs, whole
from acker.streams.commits import chunks, holding, publishing, record, under_way
from acker.streams.commits.contents import Commit
from acker.streams.commits.holding import Lack
from acker.streams.commits.known import AtHand
from acker.streams.commits.origins import Origin
from acker.streams.commits.plan import Plan, Refused, Turned
from acker.streams.commits.publishing import RowsLost
from acker.streams.commits.run import Forgotten, Found, InCluster, Run
from acker.streams.log.subscriptions import HOLD_TTL
from acker.streams.sources import tracking
from acker.streams.staging.external.rows.sending import NeedsLook
from acker.streams.staging.late import Late

_log = logging.getLogger(__name__)
_GONE_ON = (Forgotten, Found, InCluster, Lack, NeedsLook, RowsLost)


def commit(
    core: Core,
    writer: str,
    number: int,
    work: Commit,
    on_late: Callable[[Late], object] | None = None,
    at_hand: AtHand | None = None,
) -> Operation[bool]:
    """Carries out a commit, or finishes the one that is stored for the writer and number.

    Staged data that is not used is discarded.

    Args:
        core: The ledger.
        writer: The writer of the commit, such as a query.
        number: The commit's number, such as a batch's.
        work: The commit.
        on_late: Called with the commit's late acks, if there are any.
        at_hand: Data that the caller already has. If one of its conditions does not hold, nothing is
            committed.

    Returns:
        True if `work` was carried out; False if another commit was finished, or a condition did not hold.

    Raises:
        StagingExpired: Staged data is gone; nothing has changed.
        ReaderFenced: Segments of an input were given back; nothing has changed.
        CommitOrderError: A later commit is stored, or the stored commit belongs to another batch.
        SpoutPendingFull, TrackRejected: There is no room for roots. The same call goes on later.
        ValidationError: There can never be room for the roots.
    """
    tracking.check_room(core, work.roots())
    text, at_hand = work.dump(), AtHand() if at_hand is None else at_hand
    stored = None
    going = Run(core, writer, number, text)
    plan = Plan(going, work, at_hand)
    # A condition that fails in one chunk does not hold back another chunk before the commit is stored.
    fits = not at_hand.conditions or going.fits(
        [*at_hand.conditions, record.begin_request(core, writer, number, text)]
    )
    small = fits and chunks.small(at_hand.staging)
    if not at_hand.sent and going.one_server and small and plan.known.is_sufficient():
        try:
            yield from plan.look()
            if plan.known.of_others:  # they cannot be used: the record says why
                raise Forgotten
            yield from plan.begin()
            yield from plan.carry_out()
        except Refused:
            at_hand.refused = True
            return False
        except Turned:
            stored = yield from record.is_stored(core, writer, number)
        except InCluster:
            pass
        except _GONE_ON:
            at_hand.sent = True
            if at_hand.given is not None and at_hand.staging:
                yield list(at_hand.staging)  # receipts, which the stored commit may lack: they emit nothing
        else:
            yield from plan.leave(on_late)
            return True
        finally:
            at_hand.sent = at_hand.sent or bool(going.state)
    if not at_hand.sent and (at_hand.staging or at_hand.conditions):
        # If the commit is stored, its data was staged with it. To stage the data again would emit tuples
        # again that were acked meanwhile.
        if stored is None:
            stored = yield from record.is_stored(core, writer, number)
        if not stored and not (yield from _prepare(core, work, at_hand)):
            return False
    at_hand.sent = True
    mine = yield from _carry_out(core, writer, number, text, work.origin, at_hand, on_late)
    if not mine:
        yield from holding.discard(core, work)
    return mine


def _prepare(core: Core, work: Commit, at_hand: AtHand) -> Operation[bool]:
    """Stages the data of a commit before it begins; False, with nothing left, if a condition fails."""
    if at_hand.staging:
        yield list(at_hand.staging)
    if at_hand.conditions and not all((yield list(at_hand.conditions))):
        yield from holding.discard(core, work)
        at_hand.refused = True
        return False
    return True


def finish(core: Core, writer: str, number: int, origin: Origin | None = None) -> Operation[bool]:
    """Finishes a stored commit; returns True if there is one.

    Raises CommitOrderError if the stored commit does not have the origin of the batch at hand.
    """
    mine = yield from _carry_out(core, writer, number, "", origin, AtHand())
    return not mine


def last(core: Core, writer: str) -> Operation[tuple[int, bool]]:
    """The number of a writer's last commit, -1 if it has none, and True if that commit is complete."""
    # The whole hash saves a round trip: it is short if all commits are complete.
    [stored] = yield [command("HGETALL", keys.commits(core.config.name, writer))]
    fields = pairs(stored)
    if b"last" not in fields:
        return -1, True
    number = whole(fields[b"last"], f"the last commit of writer {writer!r}")
    return number, fields.get(b"%d:state" % number) == b"complete"


def next_number(core: Core, writer: str) -> Operation[int]:
    """Finishes a writer's last commit, and returns the number of its next one."""
    number, done = yield from last(core, writer)
    if not done:
        yield from finish(core, writer, number)
    return number + 1


def end(core: Core, writer: str, number: int, attempt: str) -> Operation[Commit | None]:
    """Ends an attempt of a commit: finishes a committed one, drops one that is only prepared.

    Returns the dropped commit. It can be stored again, because its staged data is still there.
    """
    while True:
        state, text = yield from record.begin(core, writer, number, "")
        phase = record.phase_of(state)
        if phase in ("committed", "tracked"):
            yield from _carry_out(core, writer, number, "", None, AtHand())
        elif phase == "prepared" and record.attempt_of(state) == attempt:
            if not (yield from record.drop(core, writer, number, state)):
                continue
            return Commit.load(text)
        return None


def forget(core: Core, writer: str) -> Operation[None]:
    """Forgets the commits of a writer whose name is no longer used, when the last of them is done.

    If the store does not answer, their time to live ends them.
    """
    try:
        yield [command("UNLINK", keys.commits(core.config.name, writer))]
    except AckerError as error:
        _log.warning(
            "the store keeps the commits of writer %s for %d s more: %s", writer, record.RECORD_TTL, error
        )


def _carry_out(
    core: Core,
    writer: str,
    number: int,
    own_text: str,
    origin: Origin | None,
    at_hand: AtHand,
    on_late: Callable[[Late], object] | None = None,
) -> Operation[bool]:
    """Carries out a commit; returns True if its text is `own_text`, or, if that is empty, if there is none.

    If a store loses a commit in state committed together with its staged data, the commit is not stored
    again, because others may have seen effects that are lost now. `at_hand` has the operations that follow
    the commit.
    """
    after = AtHand(afterwards=at_hand.afterwards, later=at_hand.later)
    committed = mine = False
    lost = 0
    while True:
        try:
            first = under_way.begun(core, writer, number, own_text) if own_text else ()
            state, text = yield from record.begin(core, writer, number, own_text, first)
        except CommitOrderError:
            if committed:  # others have ended it, and have gone on until it was forgotten
                return mine
            raise
        if not state:
            return True
        if state == "complete":
            if own_text:
                yield [under_way.forgetting(core, writer, number)]
            digest, _, of = text.partition(" ")
            mine = digest == hashlib.sha1(own_text.encode()).hexdigest()
            if not mine:
                _check_origin(writer, number, Origin.load(of) if of else None, origin)
            elif after.later is not None:
                after.later += after.afterwards
            else:
                yield from abreast(after.afterwards)
            return mine
        work, mine = Commit.load(text), text == own_text
        if not mine:
            _check_origin(writer, number, work.origin, origin)
            yield under_way.begun(core, writer, number, text)
        going = Run(core, writer, number, text, state)
        going.registered = True
        plan = Plan(going, work, after if mine else AtHand(), lost=lost > 1)
        try:
            yield from plan.look()
            yield from plan.carry_out()
        except (Forgotten, InCluster):
            continue
        except Lack as lack:
            if not (yield from record.drop(core, writer, number, going.state)):
                continue
            yield from holding.discard(core, work)
            yield [under_way.forgetting(core, writer, number)]
            if not mine:
                continue
            if committed and isinstance(lack.error, StagingExpired):
                _log.error("%s: the store has lost commit %d of %s", core.config.name, number, writer)
                return mine
            raise lack.error from None
        except RowsLost:
            lost += 1
            yield [request for request, _ in publishing.extend_requests(core, work.segments(), HOLD_TTL)]
            continue
        finally:
            committed = committed or going.committed
        yield from plan.leave(on_late)
        return mine


def _check_origin(writer: str, number: int, stored: Origin | None, planned: Origin | None) -> None:
    """Raises CommitOrderError if the commit stored under a batch's number belongs to another batch."""
    if stored is not None and planned is not None and stored.contradicts(planned):
        raise CommitOrderError(
            f"batch {number} of query {writer} is of {planned.text()}, but the store has a commit of that "
            f"number, of {stored.text()}: {record.OLD_CHECKPOINT}"
        )
