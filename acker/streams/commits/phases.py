"""The phases of a commit, one after another: hold, track, emit, fail, record effects, publish, ack, end."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from acker.errors import AckerError
from acker.ledger.calls import traces
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, abreast, chain, command
from acker.streams.commits import holding, publishing, record, scripts, under_way
from acker.streams.commits.contents import Commit
from acker.streams.commits.trail import Trail
from acker.streams.log import fencing, segments
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import HOLD_TTL, Range
from acker.streams.sources import kept_rows, tracking
from acker.streams.staging import acks, effects, late, results, skipped, staging, traced, vectors
from acker.streams.staging.acks import Acked
from acker.streams.staging.late import Late
from acker.streams.staging.staging import FAILED
from acker.streams.staging.vectors import Applied, Made
from acker.streams.upkeep import retention

_LOST = 1 << 40
_MOST_SPENT = 4_000
"""Keys that one script drops, at most."""


@dataclass(slots=True)
class Phases:
    """The phases of a commit, as it is stored, in their order; each changes nothing where it was done."""

    core: Core
    writer: str
    number: int
    text: str
    what: Commit
    trail: Trail
    on_late: Callable[[Late], object] | None
    final: bool = False
    """Whether it was final at any time: from then on it takes effect."""
    _taken: dict[Range, list[Segment]] = field(default_factory=dict)

    def hold(self, state: str) -> Operation[AckerError | None]:
        """Holds all that a stored commit needs; why it cannot be carried out, if it cannot."""
        attempt = record.attempt_of(state)
        return holding.hold(self.core, self.what, self.writer, self.number, attempt, self._taken)

    def run(self, state: str) -> Operation[Made | None]:
        """Carries out what is held, but for its end; None where it is in another state than was thought."""
        core, what = self.core, self.what
        yield from self.trail.begin()
        if state.startswith(record.STORED):
            to = "held" if what.roots() else "tracked"
            if not (yield from self._advance(state, to)):
                return None
            state = to
        self.final = True
        if state == "held":
            # What settles must never wait for room: only what it settles makes room.
            yield from tracking.track(core, what.roots(), replays=what.settled is not None)
            if not (yield from self._advance("held", "tracked")):
                return None
        made, applied = yield from self._publish()
        yield from results.give(core, what.results())
        streams = list(dict.fromkeys(stream for stream, _ in what.segments()))
        # Segments over a stream's limits concern no input.
        acked, *_ = yield from abreast(
            [_consume(core, what, made, self._taken), *(_retain(core, stream) for stream in streams)]
        )
        for tracked in what.roots():
            yield from tracking.end_roots(core, tracked, what.failed, made)
        gates = [place for one in what.gates for place in vectors.keys_of(core, one)]
        for _, shard in gates:
            made.needed[shard] += 0
        yield from vectors.apply(core, gates, "2", made, ours=True)
        if what.settled is not None:
            yield from kept_rows.settle(core, what.settled)
        if what.failed is None:
            came_late = yield from late.note(core, acked, applied.unknown)
            if came_late is not None and self.on_late is not None:
                self.on_late(came_late)
        return made

    def drop(self, state: str) -> Operation[bool]:
        """Drops a commit that is only stored; False where it is in another state."""
        trail = self.trail.end
        if not (yield from record.advance(self.core, self.writer, self.number, self.text, state, "", trail)):
            return False
        yield from holding.discard(self.core, self.what)
        yield [under_way.forgetting(self.core, self.writer, self.number)]
        return True

    def end(self, made: Made) -> Operation[bool]:
        """Ends the commit where nothing of it was lost, and drops what it needed."""
        tracked = self.what.roots()
        # With the end, for an exchange less; but the clock of what it has tracked starts after the end.
        last = [] if tracked else [under_way.forgetting(self.core, self.writer, self.number)]
        done = yield from self._end(made, last)
        if done and tracked:
            yield from under_way.end(self.core, self.writer, self.number, tracked)
        return done

    def _end(self, made: Made, last: Sequence[Request]) -> Operation[bool]:
        core, ranges = self.core, self.what.ranges()
        # Not before: whoever finishes this in between finds by them that nothing of it was lost.
        spent = [staging.failing(core, token)[0] for token in self.what.failures()]
        spent += skipped.keys_of(core, ranges)
        noted = [made.key(core, shard) for shard in made.needed]
        of = self.what.origin.dump() if self.what.origin else ""
        if len(spent) + len(noted) + len(ranges) <= _MOST_SPENT:
            own = self.writer, self.number, self.text, of, self.trail.end
            replies, *_ = yield [chain([fencing.ending(core, ranges, *own, [*spent, *noted])]), *last]
            if replies is not None:
                return bool(replies[0] == 1)
        yield from acks.unlink(core, spent)
        done = scripts.advance_commit(
            core.config, self.writer, self.number, self.text, "tracked", "done", of, self.trail.end
        )
        released = fencing.releasing(core, ranges, self.writer, self.number)
        ended, *_ = yield [done, *released, *(command("UNLINK", key) for key in noted), *last]
        return bool(ended)

    def _advance(self, start: str, to: str) -> Operation[bool]:
        return record.advance(self.core, self.writer, self.number, self.text, start, to, self.trail.end)

    def _publish(self) -> Operation[tuple[Made, Applied]]:
        """Emits and publishes what was staged, and fails trees; returns what that has made."""
        made, applied, published = yield from self._make()
        if published is None:
            yield from _hold_again(self.core, self.writer, self.number, self.text, self.what)
            made, applied, published = yield from self._make()
        if published is None:
            made.needed.update({shard.number: _LOST for shard in self.core.shards})
        return published or made, applied

    def _make(self) -> Operation[tuple[Made, Applied, Made | None]]:
        """What is made in shards, and with what is published, where the store still holds that."""
        core, what = self.core, self.what
        emitted = [place for _, segment in what.segments() for place in vectors.keys_of(core, segment)]
        new = [(stream, segment, segment.slots[0]) for stream, segment in what.segments() if segment.slots]
        needed = Counter(shard for _, shard in emitted)
        made = Made.of(self.writer, self.number, self.text, needed, what.by)
        events = yield from traced.look(core, "emitted", new, what.by)
        applied = yield from vectors.apply(core, emitted, "1", made, ours=True)
        yield from traces.note(core, events)
        yield from _fail(core, what, made)
        yield from _record_effects(core, what)
        return made, applied, (yield from publishing.publish(core, what.segments(), made))


def _hold_again(core: Core, writer: str, number: int, text: str, what: Commit) -> Operation[None]:
    """Holds rows that the store holds no more, where the commit itself was not lost with that."""
    state, stored = yield from record.begin(core, writer, number, "")
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
        yield from acks.fail_once(core, [place], anchors, failed.column(FAILED).to_pylist(), made)


def _record_effects(core: Core, what: Commit) -> Operation[None]:
    """Records the effects that tasks staged, but for those whose rows failed after that."""
    released: set[bytes] = set()
    for token in what.released():
        released.update((yield from effects.staged(core, token)))
    for token, horizon in what.effects():
        yield from effects.record(core, horizon, token, released)
    name = core.config.name
    yield from acks.unlink(core, [keys.effects(name, token) for token, _ in what.effects()])
    # Released segments are dropped last: until then a commit that was cut can be finished.
    yield from acks.unlink(core, [keys.effects(name, token) for token in what.released()])


def _consume(
    core: Core, what: Commit, made: Made, taken: Mapping[Range, list[Segment]]
) -> Operation[dict[Range, Acked]]:
    acked = {}
    for one in what.ranges():
        acked[one] = yield from acks.consume(core, one, what.failed, made, taken.get(one, ()))
    return acked


def _retain(core: Core, stream: str) -> Operation[dict[Range, Acked]]:
    yield from retention.retain(core, stream)
    return {}
