"""Commits that one server carries out at once: as one script, of all that commit.py does phase by phase.

Each phase asks the store, in the script, for what the one before has done (`@chained`, lua/store/chain.lua):
where it has not, the script ends there, and commit.py goes on from what is stored, as it does where somebody
has died. Between two phases nobody else has a turn, and a replica has what all of them did or nothing of it;
so whatever was checked holds to the end. What is staged is staged after the commit is stored, by the same
script: a copy that comes late finds the commit, and stages nothing again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.calls import scripts as ledger_lua
from acker.ledger.calls.calls import Call, Writer
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, chain
from acker.streams.commits import publishing, scripts
from acker.streams.commits.contents import Commit
from acker.streams.log import fencing, segments
from acker.streams.log import scripts as log_scripts
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import HOLD_TTL, RERUN_TTL, Range, Taken
from acker.streams.sources import roots, tracking
from acker.streams.staging import acks, results, vectors
from acker.streams.staging import scripts as staging_scripts
from acker.streams.staging.acks import Acked
from acker.streams.staging.vectors import NO_HEADS, Applied, Made

MOST = 128
"""Scripts that a server runs as one, at most."""
MOST_BYTES = 1 << 20
"""Bytes that they stage at most: nobody else has a turn meanwhile."""
MOST_ROWS = 50_000
_MOST_KEYS, _MOST_STAGED = 8_000, 256

State: TypeAlias = Literal["unasked", "unknown", "refused", "begun", "done"]


@dataclass(slots=True)
class Ready:
    """Things at hand to whoever commits: with these, a commit needs no question to the store.

    staging: requests that stage what it publishes, and that were not sent. conditions: scripts of a reply of
    1 where it may be carried out, and 0 where it may not; nothing is staged then. taken: what its inputs are;
    heads: what `acker.streams.staging.vectors.head` was answered of theirs; rows: of its roots, by token.
    afterwards: what is to be done when the commit is, side by side with what it leaves. later: gets all that,
    for the caller to do with its next question; None: it is done now. sent: staging and conditions were, so
    that the commit is stored, or all that it needs is staged. refused: by a condition; nothing is committed.
    """

    staging: Sequence[Request] = ()
    conditions: Sequence[Request] = ()
    taken: Mapping[Range, Sequence[Taken]] = field(default_factory=dict)
    heads: Mapping[bytes, Reply] = field(default_factory=lambda: NO_HEADS)
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    afterwards: Sequence[Operation[Any]] = ()
    later: list[Operation[Any]] | None = None
    sent: bool = False
    refused: bool = False


@dataclass(slots=True)
class Ended:
    """How far a commit has come.

    state: unasked, nothing was sent; unknown, nothing was done now, and may have been before; refused, by a
    condition, and nothing has changed; begun, it is stored, or another one is; done. late: segments that came
    too late to gather.
    """

    state: State
    acked: dict[Range, Acked] = field(default_factory=dict)
    emitted: Applied = field(default_factory=Applied)
    late: list[Segment] = field(default_factory=list)


_UNASKED = Ended("unasked")


def carry_out(
    core: Core, writer: str, number: int, what: Commit, text: str, ready: Ready, ttl: int, kept: int
) -> Operation[Ended]:
    """Carries a commit out, as far as one script can. text: it, as stored. ttl, kept: of `begin_commit`."""
    if not _plain(core, what, ready):
        return _UNASKED
    made, by = _Chain(), core.writers.take() if what.roots() else None
    if not _fill(core, writer, number, what, text, ready, ttl, kept, made, by):
        return _UNASKED
    [replies] = yield [chain(made.members)]
    if replies is None:
        return _UNASKED
    before = len(made.turn)
    if len(replies) <= before and replies[-1] != b"":
        return Ended("unknown")  # the shard has other spouts by now, which this may have brought itself
    if before < len(replies) <= before + len(ready.conditions):
        return Ended("refused")
    ready.sent = True
    if len(replies) < len(made.members) or replies[-1] != 1:
        return Ended("begun")
    ended = Ended("done")
    for call, declared in made.tracks:
        if call.tracks:
            core.note_tracked(call, declared)
    if by is not None:  # all its calls were answered; where not, nobody knows, and nobody uses it any more
        core.writers.give(by)
    ended.emitted = vectors.answered(core, made.of(replies, "emit"))
    for one, pieces in ready.taken.items():
        found = vectors.answered(core, made.of(replies, one))
        count = sum(map(int, made.of(replies, (one,))))
        rows = sum(piece.segment.rows for piece in pieces)
        oldest = int(pieces[0].entry.split("-")[0]) if pieces else 0
        ended.acked[one] = Acked(count, rows, found.late + found.unknown, oldest)
    for waiting, reply in zip(made.waiting, made.of(replies, "gather"), strict=True):
        ended.late += [one for one, said in zip(waiting, reply, strict=True) if said == b"0"]
    return ended


def _plain(core: Core, what: Commit, ready: Ready) -> bool:
    """Whether a commit has only what one script can do without a question in between."""
    ranges = what.ranges()
    if not _small(ready.staging):
        return False
    other = what.failures() or what.effects() or what.released()
    if other or what.settled is not None or what.failed is not None or core.config.traces:
        return False
    if any(one.refused or one.token not in ready.rows for one in what.roots()):
        return False
    known = all(one in ready.taken and not one.skipped and one.planned for one in ranges)
    # Of one reader: a commit of several has more to release than a script notes.
    return known and len(ranges) <= 1 and sum(one.rows for _, one in what.segments()) <= MOST_ROWS


@dataclass(slots=True)
class _Chain:
    """Scripts, and what each is for: "emit", "gather", a range that it acks, or (range,), which it notes."""

    members: list[Request] = field(default_factory=list)
    labels: list[object] = field(default_factory=list)
    waiting: list[list[Segment]] = field(default_factory=list)
    tracks: list[tuple[Call, bytes]] = field(default_factory=list)
    turn: list[Request] = field(default_factory=list)
    """Ends a copy that comes late. What tells others that a commit of roots is done is soon forgotten."""
    attempt: str = field(default_factory=segments.new_token)

    def add(self, requests: Sequence[Request], label: object = "") -> None:
        self.members += requests
        self.labels += [label] * len(requests)

    def of(self, replies: Sequence[Reply], label: object) -> list[Reply]:
        return [reply for reply, own in zip(replies, self.labels, strict=True) if own == label]

    @property
    def bounded(self) -> bool:
        """Whether it is small enough that others can wait for it."""
        return len(self.members) <= MOST and sum(len(one.keys) for one in self.members) <= _MOST_KEYS


def _small(staging: Sequence[Request]) -> bool:
    """Whether so much can be staged at once: of a commit's bytes it has nearly all."""
    size = 0
    for one in staging:
        size += sum([len(word) for word in one.args if type(word) is bytes or type(word) is str])
    return size <= MOST_BYTES


def _fill(
    core: Core,
    writer: str,
    number: int,
    what: Commit,
    text: str,
    ready: Ready,
    ttl: int,
    kept: int,
    to: _Chain,
    by: Writer | None,
) -> bool:
    """Puts a commit's scripts together, in the order of commit.py; False where something is to be asked."""
    config, ranges, attempt = core.config, what.ranges(), to.attempt
    emitted = [place for _, one in what.segments() for place in vectors.keys_of(core, one)]
    gates = [place for one in what.gates for place in vectors.keys_of(core, one)]
    # Named as in commit.py: who goes on finds by it what was made.
    made = Made.of(writer, number, text, Counter(shard for _, shard in emitted), what.by)
    staged = [key for key, _ in (*emitted, *gates)]
    staged += [results.staged(core, function, token) for function, token, _ in what.results()]
    staged += [key for one in what.roots() for key in roots.staged_keys(core, one)]

    tracked = list[tuple[list[Request], list[Call]]]()
    if by is not None:
        turn = ledger_lua.take_turn(core.shards[what.roots()[0].shards(config.ackers, 1)[0]])
        turn.stamp = by.id, by.next(turn.shard)
        to.turn = [core.request(turn)]
        to.add(to.turn)
        for of in what.roots():
            found = tracking.known_calls(core, of, ready.rows[of.token], by)
            if found is None:
                return False
            tracked.append(found)
    # A number that was begun is taken, whatever comes of it: who looks for one meanwhile goes on after it. So
    # what is refused does not begin.
    to.add(ready.conditions)
    to.add([scripts.begin_commit(config, writer, number, text, ttl, attempt, kept)])
    to.add(ready.staging)
    # Held, as of `commit._hold`.
    to.add(fencing.binding(core, ranges, writer, number, attempt))
    to.add([request for request, _ in publishing.holding(core, what.segments(), HOLD_TTL)])
    if len(staged) > _MOST_STAGED:
        return False
    if staged:
        to.add([staging_scripts.hold_staged(staged, HOLD_TTL)])
    for one in ranges:
        key = keys.Stream(config.name, one.stream).taken(one.slot, one.reader)
        to.add([scripts.check_taken(key, f"{one.start + 1}-0", f"{one.end}-0", one.planned)])
    state = f"stored {attempt}"
    if by is not None:
        to.add([scripts.advance_commit(config, writer, number, text, state, "held", "")])
        state = "held"
        for kept_by, calls_of in tracked:
            to.add(kept_by)
            requests = [core.request(call) for call in calls_of]
            to.tracks += [
                (call, bytes(request.args[0]))  # type: ignore[arg-type]
                for call, request in zip(calls_of, requests, strict=True)
            ]
            to.add(requests)
    to.add([scripts.advance_commit(config, writer, number, text, state, "tracked", "")])

    calls = vectors.known_calls(core, emitted, "1", made)
    if calls is None:
        return False
    to.add([core.request(call) for call in calls], "emit")
    _publish(core, what.segments(), to)
    given = results.known_calls(core, what.results())
    if given is None:
        return False
    to.add(given)
    for one in ranges:
        pieces = ready.taken[one]
        places = [key for piece in pieces for key in vectors.keys_of(core, piece.segment, one.slot)]
        calls = vectors.known_calls(core, places, "2", made, ready.heads)
        if calls is None:
            return False
        to.add([core.request(call) for call in calls], one)
        own = keys.Stream(config.name, one.stream)
        noting = log_scripts.note_segments(config, own, one.slot, one.reader, False, RERUN_TTL, pieces)
        to.add([noting], (one,))
    ending = [place for one in what.roots() for place in roots.vector_keys(core, one)]
    for _, shard in (*ending, *gates):
        made.needed[shard] += 0
    calls = vectors.known_calls(core, ending, "2", made)
    if calls is None:
        return False
    to.add([core.request(call) for call in calls])
    calls = vectors.known_calls(core, gates, "2", made)
    if calls is None:
        return False
    to.add([core.request(call) for call in calls])
    to.add([_ending(core, writer, number, what, text, made)])
    return to.bounded


def _publish(core: Core, members: Sequence[tuple[str, Segment]], to: _Chain) -> None:
    found = publishing.divided(members)
    to.add([request for request, _ in publishing.looking(core, found.waiting)])
    to.add(publishing.gathering(core, found.waiting), "gather")
    to.waiting += [[one for _, _, one in placed] for _, placed in found.waiting]
    to.add(publishing.releasing(core, found.ending))
    name = core.config.name
    to.add([scripts.publish(core.config, keys.Stream(name, stream), plain) for stream, plain in found.plain])


def _ending(core: Core, writer: str, number: int, what: Commit, text: str, made: Made) -> Request:
    spent = [made.key(core, shard) for shard in made.needed]
    spent += [key for one in what.roots() for _, key, _ in roots.further(core, one)]
    of = what.origin.dump() if what.origin else ""
    return fencing.ending(core, what.ranges(), writer, number, text, of, "", spent)


def end_late(core: Core, late: Sequence[Segment]) -> Operation[None]:
    """Drops the vectors of segments that came too late to gather: their trees are over."""
    if late:
        yield from acks.unlink(core, [key for one in late for key, _ in vectors.keys_of(core, one)])
