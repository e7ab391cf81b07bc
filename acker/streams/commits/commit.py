"""Commits: what tasks staged takes effect, once for each writer and number, however often a batch is run.

A commit is first stored as a whole. From then on whoever comes with the same writer and number finishes what
is stored. plan.py has its steps in their order, and record.py the states it goes through; run.py says how the
steps go to the store. What is staged is applied before the inputs are acked, so no tree looks complete in
between. No tree of a commit expires while it is under way (under_way.py).
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
from acker.streams.commits.known import Ready
from acker.streams.commits.origins import Origin
from acker.streams.commits.plan import Plan, Refused, Turned
from acker.streams.commits.publishing import RowsLost
from acker.streams.commits.run import Forgotten, Found, InCluster, Run
from acker.streams.log.subscriptions import HOLD_TTL
from acker.streams.sources import tracking
from acker.streams.staging.late import Late

_log = logging.getLogger(__name__)
_GONE_ON = (Forgotten, Found, InCluster, Lack, RowsLost)


def commit(
    core: Core,
    writer: str,
    number: int,
    what: Commit,
    on_late: Callable[[Late], object] | None = None,
    ready: Ready | None = None,
) -> Operation[bool]:
    """Carries `what` out, or finishes what is stored for that writer and number; returns if it was `what`.

    What the caller staged and is not used is discarded. Raises StagingExpired where it is gone, and
    ReaderFenced where segments of an input were given back: nothing has changed then. CommitOrderError, also
    where what is stored is of another batch. Where there is no room for roots, SpoutPendingFull and
    TrackRejected: the same again goes on from there; ValidationError where there never can be. on_late: is
    called with those of its acks that came too late, if any. ready: what the caller has at hand; where a
    condition of it does not hold, nothing is committed, and it returns False.
    """
    tracking.check_room(core, what.roots())
    own, ready = what.dump(), Ready() if ready is None else ready
    known = None
    going = Run(core, writer, number, own)
    plan = Plan(going, what, ready)
    # What says no in one chunk does not hold back another one before the commit is stored.
    fits = not ready.conditions or going.fits(
        [*ready.conditions, record.beginning(core, writer, number, own)]
    )
    small = fits and chunks.small(ready.staging)
    if not ready.sent and going.one_server and small and plan.known.at_hand():
        try:
            yield from plan.look()
            if plan.known.of_others:  # nothing can be made of them: the record says why
                raise Forgotten
            yield from plan.begin()
            yield from plan.carry_out()
        except Refused:
            ready.refused = True
            return False
        except Turned:
            known = yield from record.known(core, writer, number)
        except InCluster:
            pass
        except _GONE_ON:
            ready.sent = True
        else:
            yield from plan.leave(on_late)
            return True
        finally:
            ready.sent = ready.sent or bool(going.state)
    if not ready.sent and (ready.staging or ready.conditions):
        # Where the commit is stored, all that it needs was staged with it. To stage that again would be to
        # emit again what was acked meanwhile.
        if known is None:
            known = yield from record.known(core, writer, number)
        if not known and not (yield from _prepare(core, what, ready)):
            return False
    ready.sent = True
    mine = yield from _carry_out(core, writer, number, own, what.origin, ready, on_late)
    if not mine:
        yield from holding.discard(core, what)
    return mine


def _prepare(core: Core, what: Commit, ready: Ready) -> Operation[bool]:
    """Stages what a commit needs, before it begins; False where it may not, and nothing of that is left."""
    if ready.staging:
        yield list(ready.staging)
    if ready.conditions and not all((yield list(ready.conditions))):
        yield from holding.discard(core, what)
        ready.refused = True
        return False
    return True


def finish(core: Core, writer: str, number: int, origin: Origin | None = None) -> Operation[bool]:
    """Finishes a commit that is stored; returns whether there is one.

    origin: of the batch at hand. CommitOrderError where what is stored is of another one.
    """
    mine = yield from _carry_out(core, writer, number, "", origin, Ready())
    return not mine


def next_number(core: Core, writer: str) -> Operation[int]:
    """The number of a writer's next commit, where nobody gives it one; finishes the last one."""
    # All that is known of them, for a round trip less: it is short where they are done.
    [stored] = yield [command("HGETALL", keys.commits(core.config.name, writer))]
    fields = pairs(stored)
    if b"last" not in fields:
        return 0
    number = whole(fields[b"last"], f"the last commit of writer {writer!r}")
    if fields.get(b"%d:state" % number) != b"done":
        yield from finish(core, writer, number)
    return number + 1


def end(core: Core, writer: str, number: int, attempt: str) -> Operation[Commit | None]:
    """Ends an attempt of a commit: finishes it where it is final, drops it where it is only stored.

    Returns what was dropped: it can be stored again, so what it has staged is there.
    """
    while True:
        state, text = yield from record.begin(core, writer, number, "")
        phase = record.phase_of(state)
        if phase in ("held", "tracked"):
            yield from _carry_out(core, writer, number, "", None, Ready())
        elif phase == "stored" and record.attempt_of(state) == attempt:
            if not (yield from record.drop(core, writer, number, state)):
                continue
            return Commit.load(text)
        return None


def forget(core: Core, writer: str) -> Operation[None]:
    """Forgets the commits of a writer whose name nobody has any more, when the last of them is done.

    A store that does not answer now is left to forget them by their time to live.
    """
    try:
        yield [command("UNLINK", keys.commits(core.config.name, writer))]
    except AckerError as error:
        _log.warning("the commits of writer %s stay for %d s: %s", writer, record.RECORD_TTL, error)


def _carry_out(
    core: Core,
    writer: str,
    number: int,
    own: str,
    origin: Origin | None,
    ready: Ready,
    on_late: Callable[[Late], object] | None = None,
) -> Operation[bool]:
    """Returns whether `own` was carried out; where it is empty, whether there is nothing to carry out.

    A store that loses it on the way, with what was staged for it, cannot be told of it again: it was final,
    and others may have seen of it what is lost now. ready: what is to be done when it is.
    """
    after = Ready(afterwards=ready.afterwards, later=ready.later)
    final = mine = False
    lost = 0
    while True:
        try:
            first = under_way.begun(core, writer, number, own) if own else ()
            state, text = yield from record.begin(core, writer, number, own, first)
        except CommitOrderError:
            if final:  # others have ended it, and have gone on so far that it is forgotten
                return mine
            raise
        if not state:
            return True
        if state == "done":
            if own:
                yield [under_way.forgetting(core, writer, number)]
            digest, _, of = text.partition(" ")
            mine = digest == hashlib.sha1(own.encode()).hexdigest()
            if not mine:
                _check_origin(writer, number, Origin.load(of) if of else None, origin)
            elif after.later is not None:
                after.later += after.afterwards
            else:
                yield from abreast(after.afterwards)
            return mine
        what, mine = Commit.load(text), text == own
        if not mine:
            _check_origin(writer, number, what.origin, origin)
            yield under_way.begun(core, writer, number, text)
        going = Run(core, writer, number, text, state)
        going.registered = True
        plan = Plan(going, what, after if mine else Ready(), lost=lost > 1)
        try:
            yield from plan.look()
            yield from plan.carry_out()
        except (Forgotten, InCluster):
            continue
        except Lack as lack:
            if not (yield from record.drop(core, writer, number, going.state)):
                continue
            yield from holding.discard(core, what)
            yield [under_way.forgetting(core, writer, number)]
            if not mine:
                continue
            if final and isinstance(lack.error, StagingExpired):
                _log.error("%s: the store has lost commit %d of %s", core.config.name, number, writer)
                return mine
            raise lack.error from None
        except RowsLost:
            lost += 1
            yield [request for request, _ in publishing.holding(core, what.segments(), HOLD_TTL)]
            continue
        finally:
            final = final or going.final
        yield from plan.leave(on_late)
        return mine


def _check_origin(writer: str, number: int, stored: Origin | None, planned: Origin | None) -> None:
    """Raises CommitOrderError where a batch is not the one that has the commit of its number."""
    if stored is not None and planned is not None and stored.contradicts(planned):
        raise CommitOrderError(
            f"batch {number} of query {writer} is of {planned.shown()}, but the store has a commit of that "
            f"number, of {stored.shown()}: {record.OLD_CHECKPOINT}"
        )
