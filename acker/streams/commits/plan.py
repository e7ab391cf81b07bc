"""The plan of a commit: its steps, in the one order there is.

`look` asks for what is not at hand, so that the steps follow each other without a question; in a cluster,
and where there is much, each step asks for its own. Each step changes nothing where it was done, by the
keys of its scripts: so whoever finds a commit may do all of them again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from acker.ledger.calls import scripts as calls_scripts
from acker.ledger.calls import traces
from acker.store import keys
from acker.store.operation import Operation, Reply, abreast, command
from acker.streams.commits import holding, publishing, scripts, under_way
from acker.streams.commits.chunks import each, unless
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import Known, Ready
from acker.streams.commits.run import Run
from acker.streams.log import fencing, segments, subscriptions
from acker.streams.log.segments import ANCHORS, UNREAD
from acker.streams.log.subscriptions import MOST_GIVEN, Range, Taken
from acker.streams.sources import columns, kept_rows, roots, tracking
from acker.streams.staging import acks, effects, late, results, skipped, staging, traced, vectors
from acker.streams.staging.acks import Acked, Parts
from acker.streams.staging.late import Late
from acker.streams.staging.skipped import Left, Skipped
from acker.streams.staging.staging import FAILED
from acker.streams.staging.vectors import NOTHING_LEFT, Applied, Made, VectorKey
from acker.streams.upkeep import retention

_LOST = 1 << 40
_SPENT = 1_000
_FAIL_WEIGHT, _BURY_WEIGHT = 20_000, 1_000


class Refused(Exception):
    """A condition of the commit does not hold; nothing has changed."""


class Turned(Exception):
    """This came before: it was sent again, as nobody had its reply."""


class Plan:
    """Carries out a commit by a `Run`. lost: its rows were lost twice, so nothing of its inputs is acked."""

    def __init__(self, run: Run, what: Commit, ready: Ready, *, lost: bool = False) -> None:
        self.run, self.core, self.what, self.ready, self.lost = run, run.core, what, ready, lost
        self.acked: dict[Range, Acked] = {}
        self.emitted = Applied()
        self.known = Known(run.core, what, ready)
        emitted = Counter(shard for _, shard in self.known.places(what.segments()))
        self.made = Made.of(run.writer, run.number, run.text, emitted, what.by)

    # Its beginning, which one server has together with the steps

    def begin(self) -> Operation[None]:
        """Stores the commit, where the conditions hold, and stages what it needs.

        Raises Turned and Refused.
        """
        run, ready = self.run, self.ready
        shards = [shard for one in self.what.roots()[:1] for shard in one.shards(self.core.config.ackers)]
        if shards:
            # Ends a copy that comes late. What tells others that a commit of roots is done may be forgotten
            # soon.
            turn = run.stamp(calls_scripts.take_turn(self.core.shards[shards[0]]))
            yield from run.do([turn], unless(lambda reply: reply == b"1", Turned), stops=True)
        yield from run.do(ready.conditions, unless(lambda reply: reply == 1, Refused), stops=True)
        run.begin()
        yield from run.do(ready.staging)

    # The steps

    def carry_out(self) -> Operation[None]:
        """Does all steps from the phase on in which the commit is, after a look.

        Raises Lack, as long as it is not final.
        """
        for step in STEPS:
            yield from step(self)

    def look(self) -> Operation[None]:
        """Asks for what is not at hand: of one server, where nobody loses a part alone."""
        if self.run.one_server:
            yield from self.known.look(tracks=self.run.phase != "tracked")

    def hold(self) -> Operation[None]:
        """Holds all that the commit needs: then it is final."""
        if self.run.phase == "stored":
            yield from holding.hold(self.run, self.what)
            yield from self.run.advance("held" if self.what.roots() else "tracked")

    def track(self) -> Operation[None]:
        """Keeps the rows of roots, and tracks their trees, before anything else.

        Raises where there is no room.
        """
        run, core, members = self.run, self.core, self.what.roots()
        if run.phase != "held":
            return
        # What settles must never wait for room: only what it settles makes room.
        replays = self.what.settled is not None
        for one in members:
            yield from run.do([tracking.keeping(core, one, replays)], each(partial(tracking.check_kept, one)))
        if not replays:
            yield from run.do(tracking.raising(core, members))
        if not self.known.spouts:
            yield from run.follow(core.register_spouts(tracking.spouts_of(members)))
        for one in members:
            rows = yield from self.known.rows(one)
            for part in tracking.tracking(core, one, rows, replays=replays) if rows is not None else ():
                yield from run.submit(part.calls, part.check, weight=part.trees)
            if not one.refused:
                self.known.drop_rows(one)
        yield from run.advance("tracked")

    def emit(self) -> Operation[None]:
        """Emits the tuples of what was staged: their trees know of them."""
        members = self.what.segments()
        new = [(stream, segment, segment.slots[0]) for stream, segment in members if segment.slots]
        events = yield from traced.look(self.core, "emitted", new, self.what.by)

        def note(found: Applied) -> None:
            self.emitted = self.emitted.plus(found)

        yield from self._apply(self.known.places(members), "1", note, ours=True)
        yield from self._trace(events)

    def _trace(self, events: Sequence[traces.Event]) -> Operation[None]:
        if events:
            yield from self.run.follow(traces.note(self.core, events))

    def _apply(
        self,
        places: Sequence[VectorKey],
        to: str,
        note: Callable[[Applied], None] = lambda _: None,
        left: dict[bytes, Left] | None = None,
        *,
        ours: bool = False,
    ) -> Operation[None]:
        """Brings vectors to a state, as `vectors.apply` does. note: takes what each part of them came to."""

        def answered(replies: Sequence[Reply]) -> None:
            found = vectors.answered(self.core, replies)
            vectors.log_lost(self.core, found)
            note(found)

        for part in vectors.parts(places):
            asked = [place for place in part if place[0] not in self.known.vectors]
            heads = self.known.vectors | (yield from vectors.look(asked, self.ready.heads, ours=ours))
            calls = vectors.calls_of(self.core, part, heads, to, self.made, left or NOTHING_LEFT)
            yield from self.run.do(
                [call for call, _ in calls], answered, weights=[weight for _, weight in calls]
            )

    def fail(self) -> Operation[None]:
        """Fails the trees that tasks staged to be failed."""
        for token in self.what.failures():
            failed = yield from self.known.failures(token)
            place = staging.failing(self.core, token)
            if failed is None:  # it goes when all inputs are acked: where some are not, it was lost
                self.made.needed[place[1]] += _LOST
                continue
            anchors = segments.edges(failed.column(ANCHORS))[0]
            yield from self._fail([place], anchors, failed.column(FAILED).to_pylist())

    def _fail(
        self, places: Sequence[VectorKey], anchors: Any, causes: list[str], *, needed: bool = True
    ) -> Operation[None]:
        calls = acks.failing(self.core, places, anchors, causes, self.made, needed=needed)
        yield from self.run.submit(calls, weight=_FAIL_WEIGHT)
        texts = [cause.encode("utf-8", "replace") for cause in causes]
        yield from self._trace(traces.failed(self.core, anchors, texts, self.made.by))

    def record_effects(self) -> Operation[None]:
        """Records the effects that tasks staged, but for those whose rows failed after that."""
        run, core, what, known = self.run, self.core, self.what, self.known.digests
        released: set[bytes] = set()
        for token in what.released():
            released.update(known[token] if token in known else (yield from effects.staged(core, token)))
        for token, horizon in what.effects():
            again = effects.record(core, horizon, token, released)
            if token not in known:
                yield from run.follow(again)
                continue

            def check(replies: Sequence[Reply], again: Operation[None] = again) -> Operation[None]:
                if any(int(reply) < 0 for reply in replies):
                    yield from again

            wanted = [digest for digest in known[token] if digest not in released]
            yield from run.do(effects.recording(core, horizon, wanted, self.known.times), check, stops=True)
        name = core.config.name
        yield from self._drop([keys.effects(name, token) for token, _ in what.effects()])
        # Released segments are dropped last: until then a commit that was cut can be finished.
        yield from self._drop([keys.effects(name, token) for token in what.released()])

    def _drop(self, spent: Sequence[bytes]) -> Operation[None]:
        if not self.run.one_server:
            yield from self.run.do([command("UNLINK", key) for key in spent])
            return
        parts = (spent[first : first + _SPENT] for first in range(0, len(spent), _SPENT))
        yield from self.run.do([scripts.unlink(part) for part in parts])

    def publish(self) -> Operation[None]:
        """Publishes what was staged, each segment in its stream.

        Segments over its limits are dropped later.
        """
        run, core, made = self.run, self.core, self.made
        to = publishing.divided(self.what.segments())
        if to.waiting and not run.one_server:
            yield from self._lossy(publishing.wait(core, to, made, in_cluster=True))
        elif to.waiting:
            looks = [request for request, _ in publishing.looking(core, to.waiting)]
            gathers = publishing.gathering(core, to.waiting)

            def gathered(replies: Sequence[Reply]) -> Operation[None]:
                if len(replies) < len(looks) + len(gathers):  # a group is over, or slots are gone
                    yield from publishing.wait(core, to, made, in_cluster=False)
                else:
                    yield from publishing.gathered(core, to, replies[len(looks) :])

            if run.fits([*looks, *gathers]):
                yield from run.do(
                    [*looks, *gathers], lambda found: self._lossy(gathered(found)), together=True
                )
            else:
                yield from run.follow(self._lossy(publishing.wait(core, to, made, in_cluster=False)))
        # All at once: a reader that is woken by the first takes the others with it.
        yield from run.do(
            publishing.releasing(core, to.ending),
            lambda found: self._lossy(publishing.released(core, to, found)),
        )
        yield from run.do(
            publishing.plainly(core, to), lambda found: self._lossy(publishing.published(core, to, found))
        )
        if self.lost:
            made.needed.update({shard.number: _LOST for shard in core.shards})

    def _lossy(self, operation: Operation[None]) -> Operation[None]:
        try:
            yield from operation
        except publishing.RowsLost:
            if not self.lost:
                raise

    def give(self) -> Operation[None]:
        """Has the results of functions take effect."""
        anchors = yield from self.known.results()
        yield from self.run.do(results.giving(self.core, self.what.results(), anchors))

    def ack(self) -> Operation[None]:
        """Acks the tuples of the inputs, or fails their trees.

        The rows of what the reader had before go now: Spark may run a batch again until it has logged that it
        is done, and it has before it begins another.
        """
        for one in self.what.ranges():
            left_out = yield from self.known.skipped(one)
            found = yield from self.known.taken(one)
            if one not in self.ready.taken:
                yield from self._forget(one)
            left_out = acks.as_planned(self.core, one, found, left_out)
            self.acked[one] = Acked().of(found)
            for first in range(0, len(found), acks.FLIGHT):
                yield from self._ack(one, found[first : first + acks.FLIGHT], left_out)

    def _ack(self, one: Range, pieces: Sequence[Taken], left_out: Skipped | None) -> Operation[None]:
        core, members = self.core, [piece.segment for piece in pieces]
        if self.what.failed is None:
            parts = Parts.of(core, one.slot, members, left_out)
            own = [(one.stream, segment, one.slot) for segment in parts.read]
            events = yield from traced.look(core, "acked", own, self.made.by)

            def late(found: Applied) -> None:
                self.acked[one] = self.acked[one].plus(late=found.late + found.unknown)

            yield from self._apply(parts.places, "2", late, parts.left)
            yield from self._trace(events)
            yield from self._drop(parts.spent)
        else:
            yield from self.run.follow(acks.fail_segments(core, one, members, self.what.failed, self.made))

        def count(reply: Reply) -> None:
            self.acked[one] = self.acked[one].plus(segments=int(reply))

        yield from self.run.do([subscriptions.noting(core, one, pieces)], each(count))

    def _forget(self, one: Range) -> Operation[None]:
        """Lets go of what the reader acked before a range."""
        found = self.known.earlier.get(one)
        if found is None or len(found) >= MOST_GIVEN or any(piece.segment is UNREAD for piece in found):
            before = Range(one.stream, one.slot, one.reader, 0, one.start)
            yield from self.run.follow(subscriptions.forget(self.core, before))
        elif found:
            yield from self.run.do([subscriptions.noting(self.core, one, found, forget=True)])

    def end_roots(self) -> Operation[None]:
        """Acks the tuples of roots, or fails their trees; their vectors are of no use after that."""
        for one in self.what.roots():
            places, failed = roots.vector_keys(self.core, one), self.what.failed
            for _, shard in places:  # whoever went before may have noted here what is not there to be failed
                self.made.needed[shard] += 0
            if one.refused:
                rows = yield from self.known.rows(one)
                if rows is not None:  # rows that are gone were failed, and settled
                    reasons = columns.refusals(rows, one.how.message_id)
                    yield from self._fail(places, one.anchors(), reasons, needed=False)
            elif failed is None:
                yield from self._apply(places, "2", ours=True)
            else:
                yield from self._fail(places, one.anchors(), [failed] * one.rows, needed=False)
            spent = [key for key, _ in places] if one.refused or failed is not None else []
            yield from self._drop([*spent, *(key for _, key, _ in roots.further(self.core, one))])

    def open_gates(self) -> Operation[None]:
        """Acks the gates of the next section of requests, when all else of it is in their trees."""
        gates = self.known.places([("", one) for one in self.what.gates])
        for _, shard in gates:
            self.made.needed[shard] += 0
        yield from self._apply(gates, "2", ours=True)

    def settle(self) -> Operation[None]:
        """Takes care of the outcomes that the commit is the answer to."""
        if self.what.settled is None:
            return
        settling = self.ready.settling
        if settling is None:
            settling = yield from kept_rows.look(self.core, self.what.settled)
        yield from self.run.do(settling.buries, weight=_BURY_WEIGHT)
        yield from self.run.do(settling.settles, weight=_BURY_WEIGHT)
        yield from self.run.do(settling.confirms, settling.confirmed, weight=_BURY_WEIGHT)

    def end(self) -> Operation[None]:
        """Ends the commit, and drops what it needed."""
        core, run, what = self.core, self.run, self.what
        # Not before: whoever finishes this in between finds by them that nothing of it was lost.
        spent = [staging.failing(core, token)[0] for token in what.failures()]
        yield from self._drop([*spent, *skipped.keys_of(core, what.ranges())])
        bound, name = fencing.bound_to(core, what.ranges(), run.writer, run.number)
        noted = [self.made.key(core, shard) for shard in self.made.needed]
        of = what.origin.dump() if what.origin else ""
        yield from run.end(of, bound, name, noted, forget=not what.roots())

    # What is left

    def leave(self, on_late: Callable[[Late], object] | None) -> Operation[None]:
        """Does the rest, for which no input waits."""
        core, what, ready = self.core, self.what, self.ready
        left: list[Operation[Any]] = list(ready.afterwards)
        left += [
            retention.retain(core, stream) for stream in dict.fromkeys(one for one, _ in what.segments())
        ]
        if what.roots() and self.run.registered:
            left.append(under_way.end(core, self.run.writer, self.run.number, what.roots()))
        noting = late.note(core, self.acked if what.failed is None else {}, self.emitted.unknown)
        if ready.later is not None:
            ready.later += [noting, *left]
            return
        came_late, *_ = yield from abreast([noting, *left])
        if came_late is not None and on_late is not None:
            on_late(came_late)


STEPS = (
    Plan.hold,
    Plan.track,
    Plan.emit,
    Plan.fail,
    Plan.record_effects,
    Plan.publish,
    Plan.give,
    Plan.ack,
    Plan.end_roots,
    Plan.open_gates,
    Plan.settle,
    Plan.end,
)
"""The order of a commit. It is final when it is held. Its roots are tracked before anything is emitted
into their trees; what it emits is in its trees before anybody can read it, and before its inputs are
acked: so no tree looks complete in between. Each shard acks them only where it holds what the commit has
made there (lua/ledger/includes/made.lua)."""
