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

import redis

from acker.errors import AckerError, CommitOrderError, StagingExpired
from acker.ledger import traces
from acker.ledger.core import Core
from acker.store import keys, records
from acker.store.operation import Operation, abreast, command
from acker.store.replies import pairs, whole
from acker.streams import lua, retention, segments, subscriptions, taking_back
from acker.streams.commits import (
    effects,
    inputs,
    late,
    publishing,
    results,
    roots,
    skipped,
    staging,
    traced,
    tracking,
    vectors,
)
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
_PARTS = 256
_STORED = "stored"
_LOST = 1 << 40
_log = logging.getLogger(__name__)


def commit(
    core: Core, writer: str, number: int, what: Commit, on_late: Callable[[Late], object] | None = None
) -> Operation[bool]:
    """Carries `what` out, or finishes what is stored for that writer and number; returns if it was `what`.

    What the caller staged and is not used is discarded. Raises StagingExpired where it is gone, and
    ReaderFenced where segments of an input were given back: nothing has changed then. CommitOrderError, also
    where what is stored is of another batch. Where there is no room for roots, SpoutPendingFull and
    TrackRejected: the same again goes on from there; ValidationError where there never can be. on_late: is
    called with those of its acks that came too late, if any.
    """
    tracking.check_room(core, what.roots())
    own = what.dump()
    mine = yield from _carry_out(core, writer, number, own, what.origin, on_late)
    if not mine:
        yield from discard(core, what)
    return mine


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
            lack = yield from _hold(core, what, writer, number, _attempt(state), taken)
            to = "" if lack else "held" if what.roots() else "tracked"
            if not (yield from _advance(core, writer, number, text, state, to)):
                continue
            if lack:
                yield from discard(core, what)
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
        name = hashlib.sha1(f"{writer} {number} {text}".encode()).hexdigest()
        made = Made(name, Counter(shard for _, shard in emitted), what.by)
        new = [(stream, segment, segment.slots[0]) for stream, segment in what.segments() if segment.slots]
        events = yield from traced.look(core, "emitted", new, what.by)
        applied = yield from vectors.apply(core, emitted, "1", made, ours=True)
        yield from traces.note(core, events)
        yield from _fail(core, what, made)
        yield from _record_effects(core, what)
        yield from _publish(core, what)
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
    kept = _KEPT_SHARED if writer.startswith(SHARED) else 1
    token = segments.new_token()
    [reply] = yield [lua.begin_commit(core.config, writer, number, own, RECORD_TTL, token, kept)]
    if isinstance(reply, redis.ResponseError):
        raise CommitOrderError(f"{str(reply).removeprefix('ACKER ')}: {_OLD_CHECKPOINT}")
    return reply[0].decode("utf-8", "replace"), reply[1].decode("utf-8", "replace")


def _advance(core: Core, writer: str, number: int, text: str, start: str, to: str) -> Operation[bool]:
    [reply] = yield [lua.advance_commit(core.config, writer, number, text, start, to, "")]
    return bool(reply)


def _hold(
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
    binding = taking_back.binding(core, ranges, writer, number, attempt)
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
    yield from inputs.unlink(core, spent)


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


def _publish(core: Core, what: Commit) -> Operation[None]:
    yield from publishing.publish(core, what.segments())


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
