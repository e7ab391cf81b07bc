"""Commits: what tasks staged takes effect, once for each writer and number, however often a batch is run.

A commit is first stored as a whole. From then on whoever comes with the same writer and number finishes what
is stored, in the same order: hold (nothing may run out of time any more), apply the vectors, fail what is to
fail, record effects, publish, ack the inputs. Each step knows by the state of the keys what of it is done.
What is staged is applied before the inputs are acked, so no tree looks complete in between. No tree of a
commit expires while it is under way (under_way.py).
"""

import hashlib
import logging
from collections.abc import Callable
from typing import Any

from acker.errors import AckerError, CommitOrderError, StagingExpired
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, abreast, command
from acker.store.replies import pairs, whole
from acker.streams.commits import at_once, holding, record, under_way
from acker.streams.commits.at_once import Ended, Ready
from acker.streams.commits.contents import Commit
from acker.streams.commits.origins import Origin
from acker.streams.commits.phases import Phases
from acker.streams.commits.trail import Forgotten, Trail
from acker.streams.sources import tracking
from acker.streams.staging import late
from acker.streams.staging.late import Late
from acker.streams.upkeep import retention

_log = logging.getLogger(__name__)


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
    own = what.dump()
    if ready is not None and not ready.sent:
        known_for = record.RECORD_TTL, record.kept(writer)
        ended = yield from at_once.carry_out(core, writer, number, what, own, ready, *known_for)
        if ended.state == "done":
            yield from _leave(core, what, ended, ready, on_late)
            return True
        if ended.state == "refused":
            ready.refused = True
            return False
        # Where the commit is stored, all that it needs was staged with it. To stage that again would be to
        # emit again what was acked meanwhile.
        new = ended.state == "unasked"
        if ended.state == "unknown":
            new = not (yield from record.known(core, writer, number))
        if new and not (yield from _prepare(core, what, ready)):
            return False
        ready.sent = True
    mine = yield from _carry_out(core, writer, number, own, what.origin, on_late)
    if not mine:
        yield from holding.discard(core, what)
    elif ready is not None and ready.later is not None:
        ready.later += ready.afterwards
    elif ready is not None:
        yield from abreast(ready.afterwards)
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


def _leave(
    core: Core, what: Commit, ended: Ended, ready: Ready, on_late: Callable[[Late], object] | None
) -> Operation[None]:
    """Does the rest of a commit that was carried out at once: no input waits for that."""
    left: list[Operation[Any]] = [
        late.note(core, ended.acked, ended.emitted.unknown),
        at_once.end_late(core, ended.late),
        *(retention.retain(core, stream) for stream in dict.fromkeys(one for one, _ in what.segments())),
        *ready.afterwards,
    ]
    if ready.later is not None:
        ready.later += left
        return
    came_late, *_ = yield from abreast(left)
    if came_late is not None and on_late is not None:
        on_late(came_late)


def finish(core: Core, writer: str, number: int, origin: Origin | None = None) -> Operation[bool]:
    """Finishes a commit that is stored; returns whether there is one.

    origin: of the batch at hand. CommitOrderError where what is stored is of another one.
    """
    mine = yield from _carry_out(core, writer, number, "", origin)
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
        if state in ("held", "tracked"):
            yield from _carry_out(core, writer, number, "", None)
        elif state.startswith(record.STORED) and record.attempt_of(state) == attempt:
            if not (yield from record.advance(core, writer, number, text, state, "")):
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
    on_late: Callable[[Late], object] | None = None,
) -> Operation[bool]:
    """Returns whether `own` was carried out; where it is empty, whether there is nothing to carry out.

    A store that loses it on the way, with what was staged for it, cannot be told of it again: it was final,
    and others may have seen of it what is lost now.
    """
    final = mine = False
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
            return mine
        what, mine = Commit.load(text), text == own
        if not mine:
            _check_origin(writer, number, what.origin, origin)
            yield under_way.begun(core, writer, number, text)
        trail = Trail(core, writer, number)
        phases = Phases(core, writer, number, text, what, trail, on_late)
        try:
            if state.startswith(record.STORED):
                lack = yield from trail.follow(phases.hold(state))
                if lack is not None:
                    if not (yield from phases.drop(state)) or not mine:
                        continue
                    if final and isinstance(lack, StagingExpired):
                        _log.error("%s: the store has lost commit %d of %s", core.config.name, number, writer)
                        return mine
                    raise lack
            made = yield from trail.follow(phases.run(state))
        except Forgotten:
            continue
        finally:
            final = final or phases.final
        if made is not None and (yield from phases.end(made)):
            return mine


def _check_origin(writer: str, number: int, stored: Origin | None, planned: Origin | None) -> None:
    """Raises CommitOrderError where a batch is not the one that has the commit of its number."""
    if stored is not None and planned is not None and stored.contradicts(planned):
        raise CommitOrderError(
            f"batch {number} of query {writer} is of {planned.shown()}, but the store has a commit of that "
            f"number, of {stored.shown()}: {record.OLD_CHECKPOINT}"
        )
