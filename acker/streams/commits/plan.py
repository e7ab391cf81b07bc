"""The plan of a commit: its steps, in the one order there is.

`look` reads the data that is not at hand, so that the steps follow each other without a read. In a cluster,
and where there is much, each step reads its own data. A step that is done already changes nothing when it is
done again, by the keys of its scripts: so any process that finds a commit may do all its steps.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from acker.ledger.calls import scripts as calls_scripts
from acker.ledger.calls import traces
from acker.store import keys
from acker.store.operation import Operation, Reply, abreast, command
from acker.streams.commits import holding, publishing, scripts, under_way
from acker.streams.commits.chunks import each, unless
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand, Known
from acker.streams.commits.publishing import Divided
from acker.streams.commits.run import Run
from acker.streams.log import fencing, segments, subscriptions
from acker.streams.log.segments import ANCHORS, UNREAD
from acker.streams.log.subscriptions import MOST_GIVEN, Delivery, Range
from acker.streams.sources import columns, kept_rows, roots, tracking
from acker.streams.staging import acks, effects, late, results, skipped, staging, traced, vectors
from acker.streams.staging.acks import Acked, Parts
from acker.streams.staging.external.rows import at_once, receipts, sending
from acker.streams.staging.late import Late
from acker.streams.staging.skipped import Left, Skipped
from acker.streams.staging.staging import FAILED
from acker.streams.staging.vectors import NOTHING_LEFT, Applied, CommitProgress, VectorKey
from acker.streams.upkeep import retention

_SPENT, _FEW_STREAMS = 1_000, 16
_FAIL_WEIGHT, _BURY_WEIGHT = 26_000, 1_000


class Refused(Exception):
    """A condition of the commit does not hold; nothing has changed."""


class Turned(Exception):
    """The commit was stored before: it is sent again because its reply was lost."""


class Plan:
    """Carries out a commit by a `Run`. lost: its rows were lost twice, so none of its inputs is acked."""

    def __init__(self, run: Run, work: Commit, at_hand: AtHand, *, lost: bool = False) -> None:
        self.run, self.core, self.work, self.at_hand, self.lost = run, run.core, work, at_hand, lost
        self.acked: dict[Range, Acked] = {}
        self.emitted, self.known = Applied(), Known(run.core, work, at_hand)
        self.held: dict[str, Sequence[Reply]] = {}  # about the size of streams when the commit ended
        self.given = at_hand.given if run.one_server else None
        self.sent = sending.places(self.core, work.sent)
        emitted = Counter(shard for _, shard in (*self.known.places(work.segments()), *self.sent))
        stay = 1000 * run.core.config.stamp_ttl if work.received else 0
        self.progress = CommitProgress.of_commit(run.writer, run.number, run.text, emitted, work.by, stay)

    # Its beginning, which one server has together with the steps

    def begin(self) -> Operation[None]:
        """Stores the commit if the conditions hold, and stages its data. Raises Turned and Refused."""
        run, at_hand = self.run, self.at_hand
        shards = [shard for one in self.work.roots()[:1] for shard in one.shards(self.core.config.ackers)]
        if shards:
            # Ends a late copy. The record that a commit of roots is complete may be forgotten soon.
            turn = run.stamp(calls_scripts.reserve_sequence(self.core.shards[shards[0]]))
            yield from run.do([turn], unless(lambda reply: reply == b"1", Turned), stops=True)
        yield from run.do(at_hand.conditions, unless(lambda reply: reply == 1, Refused), stops=True)
        run.begin()
        yield from run.do(at_hand.staging)

    # The steps

    def carry_out(self) -> Operation[None]:
        """Does all steps from the commit's phase on, after `look`. Raises Lack if it is not committed."""
        for step in STEPS:
            yield from step(self)

    def look(self) -> Operation[None]:
        """Reads the data that is not at hand, if there is one server: no part of it can be lost alone."""
        if self.run.one_server:
            yield from self.known.look(tracks=self.run.phase != "tracked")

    def hold(self) -> Operation[None]:
        """Holds all data of the commit: then it is committed."""
        if self.run.phase == "prepared":
            yield from holding.hold(self.run, self.work)
            yield from self.run.advance("committed" if self.work.roots() else "tracked")

    def track(self) -> Operation[None]:
        """Keeps the rows of roots, and tracks their trees, first of all. Raises if there is no room."""
        run, core, members = self.run, self.core, self.work.roots()
        if run.phase != "committed":
            return
        # A settling commit must never wait for room: only settled outcomes make room.
        replays = self.work.settled is not None
        seen = yield from tracking.read_removals(core, members, run.one_server)
        for tracked in members:
            check = each(partial(tracking.check_kept, core, tracked))
            yield from run.do([tracking.keep_request(core, tracked, replays, seen)], check)
        if not replays:
            yield from run.do(tracking.raise_requests(core, members, seen))
        if not self.known.spouts:
            yield from run.follow(core.register_spouts(tracking.spouts_of(members)))
        for tracked in members:
            rows = yield from self.known.rows(tracked)
            parts = tracking.track_calls(core, tracked, rows, replays=replays) if rows is not None else ()
            for part in parts:
                yield from run.submit(part.calls, part.check, weight=part.trees)
            if not tracked.refused:
                self.known.drop_rows(tracked)
        yield from run.advance("tracked")

    def emit(self) -> Operation[None]:
        """Emits the staged tuples into their trees."""
        members = self.work.segments()
        new = [(stream, segment, segment.slots[0]) for stream, segment in members if segment.slots]
        events = yield from traced.read_events(self.core, "emitted", new, self.work.by)

        def note(applied: Applied) -> None:
            self.emitted = self.emitted.plus(applied)

        if self.given is not None:
            yield from self.run.do(*sending.announce_all(self.core, self.work.sent), stops=True)
        elif self.sent or self.work.sent:  # some may be for nobody any more
            self.sent = yield from self.run.follow(sending.announce(self.core, self.work.sent, self.progress))
        yield from self._apply([*self.known.places(members), *self.sent], "1", note, ours=True)
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
        """Brings vectors to a state by `vectors.apply`. note: gets the result of each part."""

        def answered(replies: Sequence[Reply]) -> None:
            found = vectors.add_replies(self.core, replies)
            vectors.log_lost(self.core, found)
            note(found)

        for part in vectors.parts(places):
            asked = [place for place in part if place[0] not in self.known.vectors]
            read = yield from vectors.read_staged(asked, self.at_hand.heads, ours=ours)
            heads = self.known.vectors | read
            calls = vectors.calls_of(self.core, part, heads, to, self.progress, left or NOTHING_LEFT)
            weights = [weight for _, weight in calls]
            yield from self.run.do([call for call, _ in calls], answered, weights=weights)

    def fail(self) -> Operation[None]:
        """Fails the trees that tasks staged to be failed."""
        for staged_id in self.work.failures():
            failed = yield from self.known.failures(staged_id)
            place = staging.failing_key(self.core, staged_id)
            if failed is None:  # it goes when all inputs are acked: if some are not, it was lost
                self.progress.needed[place[1]] += sending.LOST
                continue
            anchors = segments.edges(failed.column(ANCHORS))[0]
            yield from self._fail([place], anchors, failed.column(FAILED).to_pylist())

    def _fail(
        self, places: Sequence[VectorKey], anchors: Any, causes: list[str], *, needed: bool = True
    ) -> Operation[None]:
        calls = acks.fail_calls(self.core, places, anchors, causes, self.progress, needed=needed)
        yield from self.run.submit(calls, weight=_FAIL_WEIGHT)
        texts = [cause.encode("utf-8", "replace") for cause in causes]
        yield from self._trace(traces.failed(self.core, anchors, texts, self.progress.by))

    def record_effects(self) -> Operation[None]:
        """Records the effects that tasks staged, except those whose rows failed after that."""
        run, core, work, digests = self.run, self.core, self.work, self.known.digests
        by, released = (run.writer, run.number), set[bytes]()
        for staged_id in work.released():
            released.update(
                digests[staged_id] if staged_id in digests else (yield from effects.read(core, staged_id))
            )
        for staged_id, horizon in work.effects():
            again = effects.record(core, horizon, staged_id, by, released)
            if staged_id not in digests:
                yield from run.follow(again)
                continue

            def check(replies: Sequence[Reply], again: Operation[None] = again) -> Operation[None]:
                if any(int(reply) < 0 for reply in replies):
                    yield from again

            new = [digest for digest in digests[staged_id] if digest not in released]
            yield from run.do(effects.requests(core, horizon, new, self.known.times, by), check, stops=True)
        yield from self._drop([keys.effects(core.config.name, staged_id) for staged_id, _ in work.effects()])
        # Released segments are dropped last: until then a commit that was cut can be finished.
        yield from self._drop([keys.effects(core.config.name, staged_id) for staged_id in work.released()])

    def _drop(self, spent: Sequence[bytes]) -> Operation[None]:
        parts = (spent[first : first + _SPENT] for first in range(0, len(spent), _SPENT))
        single = [command("UNLINK", key) for key in spent]
        yield from self.run.do([scripts.unlink(part) for part in parts] if self.run.one_server else single)

    def publish(self) -> Operation[None]:
        """Publishes staged segments, each in its stream. Segments over its limits are dropped later."""
        run, core, progress = self.run, self.core, self.progress
        to = publishing.divide(self.work.segments())
        if to.waiting:
            yield from self._gather(to)
        # All at once: a reader that is woken by the first takes the others with it.
        yield from run.do(
            publishing.release_requests(core, to.ending),
            lambda replies: self._lossy(publishing.finish_released(core, to, replies)),
        )
        yield from run.do(
            publishing.publish_requests(core, to),
            lambda replies: self._lossy(publishing.finish_published(core, to, replies)),
            weights=publishing.weights(to),
        )
        if self.lost:
            progress.needed.update({shard.number: sending.LOST for shard in core.shards})

    def _gather(self, to: Divided) -> Operation[None]:
        """Makes segments wait for others: by one chain, or after a look at their groups."""
        run, core = self.run, self.core
        looks = [request for request, _ in publishing.open_checks(core, to.waiting)]
        requests = [*looks, *publishing.gather_requests(core, to.waiting)]
        wait = partial(publishing.wait, core, to, self.progress, in_cluster=not run.one_server)

        def gathered(replies: Sequence[Reply]) -> Operation[None]:
            if len(replies) == len(requests):
                return self._lossy(publishing.finish_gathered(core, to, replies[len(looks) :]))
            return self._lossy(wait())  # a group is over, or slots are gone

        if run.one_server and run.fits(requests):
            yield from run.do(requests, gathered, together=True)
        else:
            yield from run.follow(self._lossy(wait()))

    def _lossy(self, operation: Operation[None]) -> Operation[None]:
        with suppress(*(publishing.RowsLost,) * self.lost):
            yield from operation

    def give(self) -> Operation[None]:
        """Lets the results of functions take effect."""
        anchors = yield from self.known.results()
        yield from self.run.do(results.keep_requests(self.core, self.work.results(), anchors))

    def ack(self) -> Operation[None]:
        """Acks the tuples of the inputs, or fails their trees.

        Rows that the reader had before are deleted now: Spark may run a batch again until it has logged its
        end, and it logs that before it begins another batch.
        """
        if self.given is not None:
            for step in at_once.steps(self.core, self.given, self.progress, self.sent):
                yield from self.run.do(step.requests, step.then, stops=step.stops, weights=step.weights)
        elif self.work.received or self.sent:
            yield from self.run.follow(
                receipts.receive(self.core, self.work.received, self.progress, self.sent)
            )
        for read_range in self.work.ranges():
            left_out = yield from self.known.skipped(read_range)
            members = yield from self.known.delivered(read_range)
            if read_range not in self.at_hand.delivered:
                yield from self._forget(read_range)
            left_out = acks.as_planned(self.core, read_range, members, left_out)
            self.acked[read_range] = Acked().with_members(members)
            for first in range(0, len(members), acks.FLIGHT):
                yield from self._ack(read_range, members[first : first + acks.FLIGHT], left_out)

    def _ack(
        self, read_range: Range, pieces: Sequence[Delivery], left_out: Skipped | None
    ) -> Operation[None]:
        core, members = self.core, [piece.segment for piece in pieces]
        if self.work.failed is None:
            parts = Parts.divide(core, read_range.slot, members, left_out)
            own = [(read_range.stream, segment, read_range.slot) for segment in parts.read]
            events = yield from traced.read_events(core, "acked", own, self.progress.by)

            def late(applied: Applied) -> None:
                self.acked[read_range] = self.acked[read_range].plus(late=applied.late + applied.unknown)

            yield from self._apply(parts.places, "2", late, parts.left)
            yield from self._trace(events)
            yield from self._drop(parts.spent)
        else:
            failing = acks.fail_segments(core, read_range, members, self.work.failed, self.progress)
            yield from self.run.follow(failing)

        def count(reply: Reply) -> None:
            self.acked[read_range] = self.acked[read_range].plus(segments=int(reply))

        yield from self.run.do([subscriptions.note_request(core, read_range, pieces)], each(count))

    def _forget(self, read_range: Range) -> Operation[None]:
        """Deletes the segments that the reader acked before a range."""
        members = self.known.earlier.get(read_range)
        if members is None or len(members) >= MOST_GIVEN or any(piece.segment is UNREAD for piece in members):
            before = Range(read_range.stream, read_range.slot, read_range.reader, 0, read_range.start)
            yield from self.run.follow(subscriptions.forget(self.core, before))
        elif members:
            yield from self.run.do([subscriptions.note_request(self.core, read_range, members, forget=True)])

    def end_roots(self) -> Operation[None]:
        """Acks the tuples of roots, or fails their trees. Their vectors are of no use after that."""
        for tracked in self.work.roots():
            places, failed = roots.vector_keys(self.core, tracked), self.work.failed
            for _, shard in places:  # an earlier executor may have noted trees here that cannot be failed now
                self.progress.needed[shard] += 0
            if tracked.refused:
                rows = yield from self.known.rows(tracked)
                if rows is not None:  # rows that are gone were failed, and settled
                    reasons = columns.refusals(rows, tracked.how.message_id)
                    yield from self._fail(places, tracked.anchors(), reasons, needed=False)
            elif failed is None:
                yield from self._apply(places, "2", ours=True)
            else:
                yield from self._fail(places, tracked.anchors(), [failed] * tracked.rows, needed=False)
            spent = [key for key, _ in places] if tracked.refused or failed is not None else []
            yield from self._drop([*spent, *(key for _, key, _ in roots.further(self.core, tracked))])

    def open_gates(self) -> Operation[None]:
        """Acks the gates of the next section of requests, when the rest of the commit is in their trees."""
        gates = self.known.places([("", one) for one in self.work.gates])
        for _, shard in gates:
            self.progress.needed[shard] += 0
        yield from self._apply(gates, "2", ours=True)

    def settle(self) -> Operation[None]:
        """Settles outcomes, if the commit was made for that."""
        if self.work.settled is None:
            return
        settling = self.at_hand.settling or (yield from kept_rows.read_settling(self.core, self.work.settled))
        yield from self.run.do(settling.buries, weight=_BURY_WEIGHT)
        yield from self.run.do(settling.settles, weight=_BURY_WEIGHT)
        yield from self.run.do(settling.confirms, settling.confirmed, weight=_BURY_WEIGHT)

    def end(self) -> Operation[None]:
        """Ends the commit, and deletes its data."""
        core, run, work = self.core, self.run, self.work
        # Not before: they tell an executor that finishes the commit meanwhile that none of it was lost.
        spent = [staging.failing_key(core, staged_id)[0] for staged_id in work.failures()]
        spent += [*skipped.keys_of(core, work.ranges()), *receipts.keys_of(core, work.received)]
        yield from self._drop(spent)
        fences, name = fencing.keys_of(core, work.ranges(), run.writer, run.number)
        noted = [self.progress.key(core, shard) for shard in self.progress.needed]
        of = work.origin.dump() if work.origin else ""
        streams = () if self.at_hand.later is not None else self._streams()[:_FEW_STREAMS]
        looks = [request for stream in streams for request in retention.limit_requests(core, stream)]
        found = yield from run.end(of, fences, name, noted, forget=not work.roots(), looks=looks)
        each = len(looks) // max(1, len(streams))
        self.held = {name: found[at * each : (at + 1) * each] for at, name in enumerate(streams)}

    def _streams(self) -> list[str]:
        return list(dict.fromkeys(stream for stream, _ in self.work.segments()))

    # What is left

    def leave(self, on_late: Callable[[Late], object] | None) -> Operation[None]:
        """Does the rest of the work, for which no input waits."""
        core, work, at_hand = self.core, self.work, self.at_hand
        left: list[Operation[Any]] = [*at_hand.afterwards, sending.end(core, work.sent)]
        left += [retention.retain(core, stream, self.held.get(stream, ())) for stream in self._streams()]
        if work.roots() and self.run.registered:
            left.append(under_way.end(core, self.run.writer, self.run.number, work.roots()))
        noting = late.note(core, self.acked if work.failed is None else {}, self.emitted.unknown)
        if at_hand.later is not None:
            at_hand.later += [noting, *left]
            return
        came_late = yield from noting  # it asks nothing where nothing is late
        if came_late is not None and on_late is not None:
            on_late(came_late)
        yield from abreast(left)


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
"""The order of a commit. It is committed when all its data is held. Its roots are tracked before anything is
emitted into their trees. Emitted tuples are in their trees before they can be read, and before the inputs are
acked. Each shard acks inputs only if it holds the commit's work there (lua/ledger/includes/applied.lua)."""
