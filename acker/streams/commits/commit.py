"""Commits: what tasks staged takes effect, once for each writer and number, however often a batch is run.

A commit is first stored as a whole. From then on whoever comes with the same writer and number finishes what
is stored, in the same order: hold (nothing may run out of time any more), apply the vectors, fail what is to
fail, record effects, publish, ack the inputs. Each step knows by the state of the keys what of it is done.
What is staged is applied before the inputs are acked, so no tree looks complete in between.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import redis

from acker.errors import AckerError, CommitOrderError
from acker.ledger import traces
from acker.ledger.core import Core
from acker.store import keys, records
from acker.store.operation import Operation, abreast, command
from acker.store.replies import pairs, whole
from acker.streams import lua, retention, segments, taking_back
from acker.streams.commits import (
    at_once,
    effects,
    holding,
    inputs,
    late,
    publishing,
    results,
    skipped,
    staging,
    traced,
    tracking,
    vectors,
)
from acker.streams.commits.at_once import Ended, Ready
from acker.streams.commits.contents import Commit
from acker.streams.commits.inputs import Acked
from acker.streams.commits.late import Late
from acker.streams.commits.origins import Origin
from acker.streams.commits.staging import FAILED
from acker.streams.commits.vectors import Made
from acker.streams.segments import ANCHORS, Segment
from acker.streams.spouts import kept
from acker.streams.subscriptions import HOLD_TTL, Range

RECORD_TTL = HOLD_TTL - 86400
"""Seconds for which a writer's last commits are remembered."""
SHARED = "spout."
"""How writers begin that several processes share: they ask for the number of their next commit."""
_KEPT_SHARED = 16
"""Commits of such a writer that are known when they are done: who was stopped while others went on learns how
its own ended."""
_STORED = "stored"
_LOST = 1 << 40
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
        known_for = RECORD_TTL, _kept(writer)
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
            new = not (yield from known(core, writer, number))
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


def _kept(writer: str) -> int:
    """How many commits of a writer are known when they are done."""
    return _KEPT_SHARED if writer.startswith(SHARED) else 1


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
        state, text = yield from _begin(core, writer, number, "")
        if state in ("held", "tracked"):
            yield from _carry_out(core, writer, number, "", None)
        elif state.startswith(_STORED) and _attempt(state) == attempt:
            if not (yield from _advance(core, writer, number, text, state, "")):
                continue
            return Commit.load(text)
        return None


def known(core: Core, writer: str, number: int) -> Operation[bool]:
    """Whether a commit of that writer and number is stored."""
    state, _ = yield from _begin(core, writer, number, "")
    return bool(state)


def is_done(core: Core, writer: str, number: int) -> Operation[bool]:
    """Whether a commit of a writer is done, and the store knows of it."""
    [state] = yield [command("HGET", keys.commits(core.config.name, writer), f"{number}:state")]
    return bool(state == b"done")


def forget(core: Core, writer: str) -> Operation[None]:
    """Forgets the commits of a writer whose name nobody has any more, when the last of them is done.

    A store that does not answer now is left to forget them by their time to live.
    """
    try:
        yield [command("UNLINK", keys.commits(core.config.name, writer))]
    except AckerError as error:
        _log.warning("the commits of writer %s stay for %d s: %s", writer, RECORD_TTL, error)


def _carry_out(
    core: Core,
    writer: str,
    number: int,
    own: str,
    origin: Origin | None,
    on_late: Callable[[Late], object] | None = None,
) -> Operation[bool]:
    """Returns whether `own` was carried out; where it is empty, whether there is nothing to carry out."""
    taken: dict[Range, list[Segment]] = {}
    set_back = False
    while True:
        state, text = yield from _begin(core, writer, number, own)
        if not state:
            return True
        if state == "done":
            digest, _, of = text.partition(" ")
            mine = digest == hashlib.sha1(own.encode()).hexdigest()
            if not mine:
                _check_origin(writer, number, _parsed_origin(of), origin)
            return mine
        what = Commit.load(text)
        if text != own:
            _check_origin(writer, number, what.origin, origin)
        if state.startswith(_STORED):
            lack = yield from holding.hold(core, what, writer, number, _attempt(state), taken)
            to = "" if lack else "held" if what.roots() else "tracked"
            if not (yield from _advance(core, writer, number, text, state, to)):
                continue
            if lack:
                yield from holding.discard(core, what)
                if text == own:
                    raise lack
                continue
            state = to
        if state == "held":
            # What settles must never wait for room: only what it settles makes room.
            yield from tracking.track(core, what.roots(), replays=what.settled is not None)
            if not (yield from _advance(core, writer, number, text, "held", "tracked")):
                continue
        emitted = [place for _, segment in what.segments() for place in vectors.keys_of(core, segment)]
        made = Made.of(writer, number, text, Counter(shard for _, shard in emitted), what.by)
        new = [(stream, segment, segment.slots[0]) for stream, segment in what.segments() if segment.slots]
        events = yield from traced.look(core, "emitted", new, what.by)
        applied = yield from vectors.apply(core, emitted, "1", made, ours=True)
        yield from traces.note(core, events)
        yield from _fail(core, what, made)
        yield from _record_effects(core, what)
        published = yield from publishing.publish(core, what.segments(), made)
        if published is not None:
            made = published
        elif not set_back:
            set_back = True
            yield from _hold_again(core, writer, number, text, what)
            continue
        else:
            made.needed.update({shard.number: _LOST for shard in core.shards})
        yield from results.give(core, what.results())
        streams = list(dict.fromkeys(stream for stream, _ in what.segments()))
        # Segments over a stream's limits concern no input.
        acked, *_ = yield from abreast(
            [_consume(core, what, made, taken), *(_retain(core, stream) for stream in streams)]
        )
        for tracked in what.roots():
            yield from inputs.end_roots(core, tracked, what.failed, made)
        gates = [place for one in what.gates for place in vectors.keys_of(core, one)]
        for _, shard in gates:
            made.needed[shard] += 0
        yield from vectors.apply(core, gates, "2", made, ours=True)
        if what.settled is not None:
            yield from kept.settle(core, what.settled)
        if what.failed is None:
            came_late = yield from late.note(core, acked, applied.unknown)
            if came_late is not None and on_late is not None:
                on_late(came_late)
        # Only now: whoever finishes this in between finds by them that nothing of it was lost.
        spent = [staging.failing(core, token)[0] for token in what.failures()]
        yield from inputs.unlink(core, [*spent, *skipped.keys_of(core, what.ranges())])
        of = what.origin.text() if what.origin else ""
        yield [
            *taking_back.releasing(core, what.ranges(), writer, number),
            lua.advance_commit(core.config, writer, number, text, "tracked", "done", of),
            *(command("UNLINK", made.key(core, shard)) for shard in made.needed),
        ]
        return text == own


def _parsed_origin(text: str) -> Origin | None:
    if not text:
        return None
    with records.reading(text, "the origin of a commit") as stored:
        return Origin.load(stored)


_OLD_CHECKPOINT = (
    "the checkpoint is older than what the store knows. Start with a new checkpoint, and give what the "
    "reader has not acked back to its subscription"
)


def _attempt(state: str) -> str:
    """What tells a stored commit from one that is stored again; "" where an earlier version has stored it."""
    return state.removeprefix(_STORED).strip()


def _check_origin(writer: str, number: int, stored: Origin | None, planned: Origin | None) -> None:
    """Raises CommitOrderError where a batch is not the one that has the commit of its number."""
    if stored is not None and planned is not None and stored.contradicts(planned):
        raise CommitOrderError(
            f"batch {number} of query {writer} is of {planned.shown()}, but the store has a commit of that "
            f"number, of {stored.shown()}: {_OLD_CHECKPOINT}"
        )


def _begin(core: Core, writer: str, number: int, own: str) -> Operation[tuple[str, str]]:
    known_for = RECORD_TTL, segments.new_token(), _kept(writer)
    [reply] = yield [lua.begin_commit(core.config, writer, number, own, *known_for)]
    if isinstance(reply, redis.ResponseError):
        raise CommitOrderError(f"{str(reply).removeprefix('ACKER ')}: {_OLD_CHECKPOINT}")
    return reply[0].decode("utf-8", "replace"), reply[1].decode("utf-8", "replace")


def _advance(core: Core, writer: str, number: int, text: str, start: str, to: str) -> Operation[bool]:
    [reply] = yield [lua.advance_commit(core.config, writer, number, text, start, to, "")]
    return bool(reply)


def _hold_again(core: Core, writer: str, number: int, text: str, what: Commit) -> Operation[None]:
    """Holds rows that the store holds no more, where the commit itself was not lost with that."""
    state, stored = yield from _begin(core, writer, number, "")
    if state in ("held", "tracked") and stored == text:
        yield [request for request, _ in publishing.holding(core, what.segments(), HOLD_TTL)]


def _fail(core: Core, what: Commit, made: Made) -> Operation[None]:
    """Fails the trees that tasks staged to be failed."""
    for token in what.failures():
        failed = yield from staging.failures(core, token)
        place = staging.failing(core, token)
        if failed is None:  # it goes when all inputs are acked: where some are not, it was lost
            made.needed[place[1]] += _LOST
            continue
        anchors = segments.edges(failed.column(ANCHORS))[0]
        yield from inputs.fail_once(core, [place], anchors, failed.column(FAILED).to_pylist(), made)


def _record_effects(core: Core, what: Commit) -> Operation[None]:
    """Records the effects that tasks staged, but for those whose rows failed after that."""
    released: set[bytes] = set()
    for token in what.released():
        released.update((yield from effects.staged(core, token)))
    for token, horizon in what.effects():
        yield from effects.record(core, horizon, token, released)
    name = core.config.name
    yield from inputs.unlink(core, [keys.effects(name, token) for token, _ in what.effects()])
    # Released segments are dropped last: until then a commit that was cut can be finished.
    yield from inputs.unlink(core, [keys.effects(name, token) for token in what.released()])


def _consume(
    core: Core, what: Commit, made: Made, taken: Mapping[Range, list[Segment]]
) -> Operation[dict[Range, Acked]]:
    acked = {}
    for one in what.ranges():
        acked[one] = yield from inputs.consume(core, one, what.failed, made, taken.get(one, ()))
    return acked


def _retain(core: Core, stream: str) -> Operation[dict[Range, Acked]]:
    yield from retention.retain(core, stream)
    return {}
