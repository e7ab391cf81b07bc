"""Workers: a worker of a step in plain Python takes segments (pieces of a stream), works, and commits."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import AckerError, ReaderFenced, StoreUnavailable, UnknownSubscription
from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import Cause, said_by
from acker.store.operation import Operation, Reply, Request, abreast
from acker.streams import downtime
from acker.streams.commits import commit as commits
from acker.streams.commits import record
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.log import fairness, segments, subscriptions
from acker.streams.log.segments import LAST
from acker.streams.log.subscriptions import Claimed, Delivery, Range
from acker.streams.reader import payload_of
from acker.streams.staging import acks, skipped, vectors
from acker.streams.staging.skipped import Left, Skipped
from acker.streams.upkeep import stale
from acker.workers import leases, reading, room
from acker.workers.poison import Careful
from acker.workers.steps import FunctionStep, GatherStep, Read, StepOutput, stage_output
from acker.workers.stream_state import Look, look_at, unchanged

MOST_ROWS = 10_000
"""About the most rows that a worker takes at a time, if a row takes it little time."""
_LONG = 1.0
"""About the seconds of work in a batch: other workers get the remaining rows, also if this worker dies."""
_LOOKS = 8
_log = logging.getLogger(__name__)

Step: TypeAlias = FunctionStep | GatherStep


class Worker:
    """Runs one step, batch after batch. It is a reader of its own of the step's subscription.

    once: True fails for good the trees of begun and uncommitted work when the worker dies, or the store does
    not answer. version: the version of the step's function, or "".
    """

    def __init__(
        self, ledger: Ledger, step: Step, *, most_rows: int = MOST_ROWS, once: bool = False, version: str = ""
    ) -> None:
        self.ledger = ledger
        self._once, self._version = once, version
        self.step = step
        self._most_rows = most_rows
        # Rows of an asynchronous step wait side by side, and a fair share is a share of many rows.
        self._one_by_one = step.pace is None and not step.fair_by
        self._slot = -1
        self._ended = False
        self.renewals: leases.Renewals | None = None
        """The leases of all workers of the process, and their lengths."""
        self.more = True
        """True if the stream may have more rows than the last claim took."""
        self._left_behind = ""
        """The earlier reader, if the worker began anew with a commit in doubt: it gives all back."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.reader = segments.new_hex_id()
        self._at = self._number = 0
        self._leased = self._unsure = False
        self._begun = ""
        """The begun work that it has recorded and not committed."""
        self._emits: tuple[str, ...] = ()
        """Streams that it has emitted to last, whose states it reads along with its next batch."""
        self._left: list[Operation[Any]] = []
        """Requests left by the last commit, whose replies are not needed: they go with the next claim."""
        self._forgotten = True
        """True if nothing is left of acked segments that are not read again."""

    def work(self, *, again: bool = False) -> int:
        """Works on some of the rows that are available, up to a bound; returns the number of their segments.

        again: True if another call follows shortly: the clean-up of this batch is left to it, or to `end`.
        """
        try:
            return self.ledger.run(self._work(again))
        except (ReaderFenced, UnknownSubscription) as error:
            _log.warning("a worker of step %s begins anew: %s", self.step.name, error)
            if isinstance(error, UnknownSubscription):
                self._slot = -1  # the subscription was dropped: later rows are worked on
            else:
                self._note_uncommitted(error)
            self._begin_anew()
            return 0
        except BaseException as error:
            if self._once and self._leased:
                if isinstance(error, Exception):
                    self._note_uncommitted(error)
                self._begin_anew()  # its begun work ends with its lease
            elif self._unsure:
                self._left_behind = self.reader
                self._begin_anew()
            raise

    def _note_uncommitted(self, error: Exception) -> None:
        """Records the reason of a missing answer for the callers of begun work, if the store can take it."""
        if not self._begun or isinstance(error, StoreUnavailable):
            return
        why = f"the output of {self.step.name} was not committed: {said_by(error)}"
        noting = leases.note_uncommitted(
            self.ledger.core, self.step.reads, self._slot, self.reader, self._begun, why
        )
        try:
            self.ledger.run(noting)
        except AckerError as second:  # it is reported as a dead worker's
            _log.warning("step %s: the outcome of its batch cannot be recorded: %s", self.step.name, second)

    def _work(self, again: bool) -> Operation[int]:
        core, stream = self.ledger.core, self.step.reads
        if self._slot < 0:
            slot = yield from subscriptions.subscribe(core, stream, self.step.name)
            if self.step.fair_by:
                yield from fairness.declare(core, stream, self.step.fair_by, slot)
            self._slot = slot
        if self._left_behind:
            yield from leases.end(core, stream, self._slot, self._left_behind)
            self._left_behind = ""
        claimed, states = Claimed(), dict[str, Look]()
        end = yield from self._claim(claimed, states)
        self.more = claimed.more
        if end == self._at:
            return 0
        deliveries = claimed.delivered
        claim = Range(stream, self._slot, self.reader, self._at, end)
        if not deliveries:
            deliveries = yield from subscriptions.all_delivered(core, claim)
        if not deliveries:  # the store was set back since
            raise subscriptions.fenced(stream, self.reader)
        members = [member.segment for member in deliveries]
        heads = dict[bytes, Reply]()
        if len(claimed.looks) == len(members) and segments.UNREAD not in members:
            payloads = [member[0] for member in claimed.looks]
            judged = stale.judge_seen(core, members, self._slot, claimed.looks, heads)
            yield from downtime.take_up(core, stream, self._slot, deliveries, claimed.now)
        else:
            looks: list[Operation[Any]] = [
                payload_of(self.ledger, stream, members),
                stale.judge(core, members, self._slot, heads),
                downtime.take_up(core, stream, self._slot, deliveries),
            ]
            payloads, judged, _ = yield from abreast(looks)
        acked = reading.acked_before(core, self._slot, members, heads)
        gone = {member.id for member, payload in zip(members, payloads, strict=True) if payload is None}
        plan = yield from stale.planned(core, stream, members, gone, judged)
        claim = replace(claim, skipped=plan.skipped, planned=subscriptions.digest(members))
        decoded: list[tuple[list[pa.RecordBatch], bool]] = []
        for segment, payload in zip(members, payloads, strict=True):
            # Without rows of a segment that is gone or cannot be read, the rows of a request are not whole.
            rows: list[pa.RecordBatch] = []
            if payload is not None:
                rows = yield from acks.rows(core, stream, segment, self._slot, payload)
            decoded.append((rows, bool(segment.rows) and not rows))
        del payloads  # large rows are half of the present ones
        # A lost segment has lost its vectors, too, and was not acked for that.
        missing = [set[int]() if lost else its for its, (_, lost) in zip(acked, decoded, strict=True)]
        read: list[Read] = []
        out = dict[str, Left]()
        for segment, (rows, lost), shards in zip(
            members, decoded, reading.by_bundle(members, missing), strict=True
        ):
            if left := reading.left_out(rows, shards.all | shards.some, core.config.ackers):
                out[segment.id] = left
            rows = yield from stale.fresh(core, stream, segment, self._slot, rows, plan.left)
            broken = shards.some if segment.to.startswith(LAST) else frozenset[int]()
            without = (shards.all | shards.some) - broken
            rows = (
                [reading.split(member, without, core.config.ackers)[0] for member in rows]
                if without
                else rows
            )
            ended = (
                [reading.split(member, broken, core.config.ackers)[1] for member in rows] if broken else []
            )
            read.append(Read(segment, rows, lost, frozenset(anchor for member in ended for anchor in member)))
        if out:  # a store that is rolled back may give it again to be acked, without work on it
            skipped_id = yield from skipped.note(core, stream, Skipped(parts=out))
            claim = replace(claim, skipped=f"{claim.skipped} {skipped_id}".strip())
        if self._once:
            begun = f"{claim.start} {claim.end} {self._number}"
            try:
                yield from leases.beat(core, stream, self._slot, self.reader, begun=begun, lease=self._lease)
            except ReaderFenced:
                # It was taken for dead before it claimed: others look for that no more.
                yield from leases.end(core, stream, self._slot, self.reader)
                raise
            self._begun = begun
        begun_at = time.monotonic()
        if self._once or not Careful.needed(deliveries):
            output = self.step.run(self._number, read)
        else:
            careful = Careful(deliveries, self._note)
            with careful.alone():
                output = self.step.run(self._number, read, careful)
        count = sum(batch.num_rows for member in read for batch in member.rows)
        self._adapt(count, time.monotonic() - begun_at)
        self._unsure = True
        at = yield from self._commit(output, claim, deliveries, heads, states, again)
        self._at, self._number, self._begun, self._unsure = at, self._number + 1, "", False
        return len(deliveries)

    def _note(self, begun: str) -> None:
        stream, slot, lease = self.step.reads, self._slot, self._lease
        core = self.ledger.core
        self.ledger.run(leases.beat(core, stream, slot, self.reader, begun=begun, lease=lease))

    @property
    def _rows(self) -> int:
        """Returns about the number of rows that it takes at a time."""
        return min(self.step.rows or self._most_rows, self._most_rows)

    def _commit(
        self,
        output: StepOutput,
        claim: Range,
        deliveries: Sequence[Delivery],
        heads: Mapping[bytes, Reply],
        states: Mapping[str, Look],
        again: bool,
    ) -> Operation[int]:
        """Stages the output of a batch, and commits it; returns the number of its last segment.

        states: states of streams, read before the work. Raises ReaderFenced if its tuples can no longer be
        acked.
        """
        core = self.ledger.core
        self._emits = tuple(output.out.rows)[:_LOOKS]
        there = vectors.still_staged(core, self._slot, deliveries, heads)
        while True:
            staging = list[Request]()
            staged = yield from stage_output(core, output, self.step.name, self._number, staging, states)
            # No batch of it runs again.
            afterwards: list[Operation[Any]] = [self._forget(claim, deliveries)]
            if self._once or Careful.needed(deliveries):
                afterwards.append(leases.done(core, claim.stream, self._slot, self.reader))
            at_hand = AtHand(
                staging,
                [
                    *there,
                    *(
                        unchanged(core, name, look)
                        for name, look in states.items()
                        if name in output.out.rows
                    ),
                ],
                {claim: deliveries},
                heads,
                afterwards=afterwards,
                later=self._left if again else None,
            )
            commit = Commit(staged, (claim,), delivered=True)
            try:
                yield from commits.commit(core, self.reader, self._number, commit, at_hand=at_hand)
            except ReaderFenced:
                if self._once:  # its begun work has failed
                    raise
                if not (yield from self._take_over(deliveries)):
                    yield from leases.end(core, claim.stream, self._slot, self.reader)
                    raise
                deliveries = [name._replace(number=number) for number, name in enumerate(deliveries, 1)]
                claim = replace(claim, reader=self.reader, start=0, end=len(deliveries))
                continue
            if not at_hand.refused:
                return claim.end
            if (yield from record.is_done(core, self.reader, self._number)):
                yield from abreast(afterwards)  # its reply was lost, and it was sent again
                return claim.end
            if not states or not all((yield there)):
                if not self._once:  # otherwise its lease ends, and its begun work is not repeated
                    yield from leases.end(core, claim.stream, self._slot, self.reader)
                raise ReaderFenced(
                    f"tuples that worker {self.reader} of stream {claim.stream!r} had taken were acked by "
                    "others or dropped meanwhile, or a node of the store has lost them: the worker commits "
                    "nothing, and begins anew"
                )
            states = {}  # a stream has a new subscription, or a new column

    def _take_over(self, deliveries: Sequence[Delivery]) -> Operation[bool]:
        """Takes back the work that it lost with its lease; returns False if others have ended it."""
        one = leases.Living(self.step.reads, self._slot, self.reader)
        name, core = self.step.name, self.ledger.core
        new = yield from leases.take_over(core, one, deliveries, name, self._version, self._lease)
        if new is None:
            return False
        _log.warning(
            "a worker of step %s counted as dead, and has ended first: its output is committed", name
        )
        self.reader, self._number, self._forgotten = new.reader, 0, True
        return True

    def _adapt(self, count: int, seconds: float) -> None:
        """Adapts to the duration of a batch: slow rows are shared among workers, fast rows come together.

        All workers of a step in a process learn it from one.
        """
        if self._one_by_one and seconds > _LONG:
            self.step.rows = max(1, int(count * _LONG / seconds))
        elif count >= self._rows and seconds < _LONG / 4:
            self.step.rows = min(self._most_rows, 4 * self._rows)

    def _forget(self, claim: Range, deliveries: Sequence[Delivery]) -> Operation[None]:
        """Drops the segments that a commit has acked, and the rest of earlier ones."""
        whole = self._forgotten and not any(one.segment is segments.UNREAD for one in deliveries)
        self._forgotten = False
        if whole:
            yield from subscriptions.note(self.ledger.core, claim, deliveries, forget=True)
        else:
            yield from subscriptions.forget(self.ledger.core, replace(claim, start=0))
        self._forgotten = True

    def _claim(self, claimed: Claimed, states: dict[str, Look]) -> Operation[int]:
        """Takes the present segments; returns the number of the worker's last segment.

        claimed: gets all segments that it has taken, if they are few, and True if there may be more. states:
        gets the states of the streams that it emits to.
        """
        core, stream, slot = self.ledger.core, self.step.reads, self._slot
        lease = leases.beat(core, stream, slot, self.reader, new=not self._leased, lease=self._lease)
        name, size = self.step.name, room.OF_PROCESS.of_claim(self.step.max_bytes)
        claim = subscriptions.claim(
            core,
            stream,
            slot,
            self.reader,
            self._at,
            name=name,
            version=self._version,
            rows=self._rows,
            bytes=size,
            claimed=claimed,
        )
        if not self._leased:
            # Before it takes anything: a reader with segments and without a lease would keep them for ever.
            yield from lease
            self._leased = True
            states |= yield from look_at(core, self._emits)
            return (yield from claim)
        left, self._left = self._left, []
        looks: list[Operation[Any]] = [lease, claim, look_at(core, self._emits)]
        looks.append(record.is_done(core, self.reader, self._number - 1))
        try:
            _, end, deliveries, done, *_ = yield from abreast(looks + left)
        except AckerError as error:
            self._forgotten = False
            if not isinstance(error, ReaderFenced):
                raise
            yield from leases.end(core, stream, slot, self.reader)  # the claim has taken them all the same
            raise
        states |= deliveries
        if self._number and not done:
            cause = Cause(
                f"the store has lost its latest writes, among them the ack of step {self.step.name}",
                self.step.name,
                retry=not self._once,
            )
            yield from leases.end_set_back(core, stream, slot, self.reader, self._at, cause)
            raise ReaderFenced(
                f"the store has lost the last commit of worker {self.reader} of stream {stream!r}: its "
                "requests fail. The worker begins anew"
            )
        return int(end)

    @property
    def living(self) -> leases.Living | None:
        """The worker with its lease; None if it has nothing to lose."""
        if not self._leased or self._ended:
            return None
        return leases.Living(self.step.reads, self._slot, self.reader)

    @property
    def _lease(self) -> float:
        return leases.LEASE if self.renewals is None else self.renewals.lease

    def recover(self) -> int:
        """Gives back the segments of dead workers of the step; returns their number."""
        return self.ledger.run(self.recovering())

    def recovering(self) -> Operation[int]:
        """Gives back the segments of dead workers of the step; returns their number."""
        if self._slot < 0:
            return 0
        return (yield from leases.recover(self.ledger, self.step.reads, self._slot, self.step.name))

    def end(self) -> None:
        """Gives back the uncommitted segments of the worker; it then works no more."""
        self._ended = True
        left, self._left = self._left, []
        self.ledger.run(abreast(left))
        if self._slot >= 0:
            self.ledger.run(leases.end(self.ledger.core, self.step.reads, self._slot, self.reader))
