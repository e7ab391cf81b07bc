"""Workers: who runs a step of a line in plain Python takes segments, works, and commits."""

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
from acker.streams.commits.known import Ready
from acker.streams.log import fairness, segments, subscriptions
from acker.streams.log.gathers import LAST
from acker.streams.log.subscriptions import Range, Taken, Told
from acker.streams.reader import payload_of
from acker.streams.staging import acks, skipped, vectors
from acker.streams.staging.skipped import Left, Skipped
from acker.streams.upkeep import stale
from acker.workers import leases, reading, room
from acker.workers.poison import Careful
from acker.workers.steps import FunctionStep, GatherStep, Made, Read, stage_made
from acker.workers.stream_state import Look, look_at, unchanged

MOST_ROWS = 10_000
"""Rows that a worker takes at a time, about, where a row takes it little time."""
_LONG = 1.0
"""Seconds of work that a batch is to have, about: the rest is for other workers, also where this one dies."""
_LOOKS = 8
_log = logging.getLogger(__name__)

Step: TypeAlias = FunctionStep | GatherStep


class Worker:
    """Runs one step, one batch after another. It is its own reader of the step's subscription.

    once: what it has begun and not committed when it dies, or when the store does not answer, is not worked
    on again: its trees fail for good. version: of the function whose step it is; "": of none.
    """

    def __init__(
        self, ledger: Ledger, step: Step, *, most_rows: int = MOST_ROWS, once: bool = False, version: str = ""
    ) -> None:
        self.ledger = ledger
        self._once, self._version = once, version
        self.step = step
        self._most_rows = most_rows
        # Rows of an asynchronous step wait side by side, and a fair share is one of many rows.
        self._one_by_one = step.pace is None and not step.fair_by
        self._slot = -1
        self._ended = False
        self.renewals: leases.Renewals | None = None
        """The signs of life of its process: how long each holds."""
        self.more = True
        """Whether its stream may have more than it has taken last."""
        self._left_behind = ""
        """Its reader before it began anew without knowing what came of a commit: that gives all back."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.reader = segments.new_token()
        self._at = self._number = 0
        self._leased = self._unsure = False
        self._begun = ""
        """What it has noted to have begun, until that is committed."""
        self._emits: tuple[str, ...] = ()
        """Streams that it has emitted to last, and looks at along with its next batch."""
        self._left: list[Operation[Any]] = []
        """What the last commit has left to do, and nobody waits for: it goes with the next claim."""
        self._forgotten = True
        """Whether nothing is left of what was acked and is not read again."""

    def work(self, *, again: bool = False) -> int:
        """Works on what there is now, up to a bounded number of rows; returns of how many segments.

        again: the caller works again soon where there were some, or ends: some clean-up goes with that.
        """
        try:
            return self.ledger.run(self._work(again))
        except (ReaderFenced, UnknownSubscription) as error:
            _log.warning("a worker of step %s begins anew: %s", self.step.name, error)
            if isinstance(error, UnknownSubscription):
                self._slot = -1  # somebody has dropped it: what is written from now on is worked on
            else:
                self._note_uncommitted(error)
            self._begin_anew()
            return 0
        except BaseException as error:
            if self._once and self._leased:
                if isinstance(error, Exception):
                    self._note_uncommitted(error)
                self._begin_anew()  # what it may have begun ends with the lease that it had
            elif self._unsure:
                self._left_behind = self.reader
                self._begin_anew()
            raise

    def _note_uncommitted(self, error: Exception) -> None:
        """Has who asked for what was begun learn why there is no answer, where the store can be told."""
        if not self._begun or isinstance(error, StoreUnavailable):
            return
        why = f"what {self.step.name} has made was not committed: {said_by(error)}"
        noting = leases.note_uncommitted(
            self.ledger.core, self.step.reads, self._slot, self.reader, self._begun, why
        )
        try:
            self.ledger.run(noting)
        except AckerError as second:  # it is told as of a worker that has died
            _log.warning("step %s: what came of its batch cannot be noted: %s", self.step.name, second)

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
        told, looked = Told(), dict[str, Look]()
        end = yield from self._claim(told, looked)
        self.more = told.more
        if end == self._at:
            return 0
        found = told.taken
        what = Range(stream, self._slot, self.reader, self._at, end)
        if not found:
            found = yield from subscriptions.all_taken(core, what)
        if not found:  # the store was set back since
            raise subscriptions.fenced(stream, self.reader)
        members = [one.segment for one in found]
        heads = dict[bytes, Reply]()
        if len(told.looks) == len(members) and segments.UNREAD not in members:
            payloads = [one[0] for one in told.looks]
            judged = stale.judge_seen(core, members, self._slot, told.looks, heads)
            yield from downtime.take_up(core, stream, self._slot, found, told.now)
        else:
            looks: list[Operation[Any]] = [
                payload_of(self.ledger, stream, members),
                stale.judge(core, members, self._slot, heads),
                downtime.take_up(core, stream, self._slot, found),
            ]
            payloads, judged, _ = yield from abreast(looks)
        acked = reading.acked_before(core, self._slot, members, heads)
        gone = {one.token for one, payload in zip(members, payloads, strict=True) if payload is None}
        plan = yield from stale.planned(core, stream, members, gone, judged)
        what = replace(what, skipped=plan.token, planned=subscriptions.digest(members))
        decoded: list[tuple[list[pa.RecordBatch], bool]] = []
        for segment, payload in zip(members, payloads, strict=True):
            # A segment that is gone, or cannot be read, is lost: no bundle is whole without it.
            rows: list[pa.RecordBatch] = []
            if payload is not None:
                rows = yield from acks.rows(core, stream, segment, self._slot, payload)
            decoded.append((rows, bool(segment.rows) and not rows))
        del payloads  # of large rows they are half of what there is
        # A lost segment has lost its vectors, too, and was not acked for that.
        missing = [set[int]() if lost else its for its, (_, lost) in zip(acked, decoded, strict=True)]
        read: list[Read] = []
        out = dict[str, Left]()
        for segment, (rows, lost), shards in zip(
            members, decoded, reading.by_bundle(members, missing), strict=True
        ):
            if left := reading.left_out(rows, shards.all | shards.some, core.config.ackers):
                out[segment.token] = left
            rows = yield from stale.fresh(core, stream, segment, self._slot, rows, plan.left)
            broken = shards.some if segment.to.startswith(LAST) else frozenset[int]()
            without = (shards.all | shards.some) - broken
            rows = [reading.split(one, without, core.config.ackers)[0] for one in rows] if without else rows
            ended = [reading.split(one, broken, core.config.ackers)[1] for one in rows] if broken else []
            read.append(Read(segment, rows, lost, frozenset(anchor for one in ended for anchor in one)))
        if out:  # a store that is set back may have it to be acked again, and nobody has worked on it then
            token = yield from skipped.note(core, stream, Skipped(parts=out))
            what = replace(what, skipped=f"{what.skipped} {token}".strip())
        if self._once:
            begun = f"{what.start} {what.end} {self._number}"
            try:
                yield from leases.beat(core, stream, self._slot, self.reader, begun=begun, lease=self._lease)
            except ReaderFenced:
                # It was taken for dead before it claimed: others look for that no more.
                yield from leases.end(core, stream, self._slot, self.reader)
                raise
            self._begun = begun
        begun_at = time.monotonic()
        if self._once or not Careful.needed(found):
            made = self.step.run(self._number, read)
        else:
            careful = Careful(found, self._note)
            with careful.alone():
                made = self.step.run(self._number, read, careful)
        count = sum(batch.num_rows for one in read for batch in one.rows)
        self._adapt(count, time.monotonic() - begun_at)
        self._unsure = True
        at = yield from self._commit(made, what, found, heads, looked, again)
        self._at, self._number, self._begun, self._unsure = at, self._number + 1, "", False
        return len(found)

    def _note(self, begun: str) -> None:
        stream, slot, lease = self.step.reads, self._slot, self._lease
        core = self.ledger.core
        self.ledger.run(leases.beat(core, stream, slot, self.reader, begun=begun, lease=lease))

    @property
    def _rows(self) -> int:
        """Rows that it takes at a time, about."""
        return min(self.step.rows or self._most_rows, self._most_rows)

    def _commit(
        self,
        made: Made,
        what: Range,
        found: Sequence[Taken],
        heads: Mapping[bytes, Reply],
        looked: Mapping[str, Look],
        again: bool,
    ) -> Operation[int]:
        """Stages what a batch has made, and commits it; returns the number of its last segment.

        looked: at streams, before it was worked on. Raises ReaderFenced where its tuples are not there any
        more to be acked.
        """
        core = self.ledger.core
        self._emits = tuple(made.out.rows)[:_LOOKS]
        there = vectors.still_staged(core, self._slot, found, heads)
        while True:
            staging = list[Request]()
            staged = yield from stage_made(core, made, self.step.name, self._number, staging, looked)
            # No batch of it runs again.
            afterwards: list[Operation[Any]] = [self._forget(what, found)]
            if self._once or Careful.needed(found):
                afterwards.append(leases.done(core, what.stream, self._slot, self.reader))
            ready = Ready(
                staging,
                [
                    *there,
                    *(unchanged(core, one, look) for one, look in looked.items() if one in made.out.rows),
                ],
                {what: found},
                heads,
                afterwards=afterwards,
                later=self._left if again else None,
            )
            commit = Commit(staged, (what,), taken=True)
            try:
                yield from commits.commit(core, self.reader, self._number, commit, ready=ready)
            except ReaderFenced:
                if self._once:  # what it had begun has failed
                    raise
                if not (yield from self._take_over(found)):
                    yield from leases.end(core, what.stream, self._slot, self.reader)
                    raise
                found = [one._replace(number=number) for number, one in enumerate(found, 1)]
                what = replace(what, reader=self.reader, start=0, end=len(found))
                continue
            if not ready.refused:
                return what.end
            if (yield from record.is_done(core, self.reader, self._number)):
                yield from abreast(afterwards)  # its reply was lost, and it was sent again
                return what.end
            if not looked or not all((yield there)):
                if not self._once:  # else its lease ends, and what it had begun then is not begun again
                    yield from leases.end(core, what.stream, self._slot, self.reader)
                raise ReaderFenced(
                    f"tuples that worker {self.reader} of stream {what.stream!r} had taken were acked by "
                    "others or dropped meanwhile, or a node of the store has lost them: nothing that it made "
                    "of them is committed. It begins anew"
                )
            looked = {}  # somebody has subscribed to a stream since, or given it a column

    def _take_over(self, found: Sequence[Taken]) -> Operation[bool]:
        """Takes back what it has worked on and lost with its lease; False where others have ended it."""
        one = leases.Living(self.step.reads, self._slot, self.reader)
        name, core = self.step.name, self.ledger.core
        new = yield from leases.take_over(core, one, found, name, self._version, self._lease)
        if new is None:
            return False
        _log.warning(
            "a worker of step %s was taken for dead, and has ended first: what it has made is committed", name
        )
        self.reader, self._number, self._forgotten = new.reader, 0, True
        return True

    def _adapt(self, count: int, seconds: float) -> None:
        """Goes by how long a batch took: slow rows are shared among workers, fast ones come together.

        All workers of a step in a process learn it from one.
        """
        if self._one_by_one and seconds > _LONG:
            self.step.rows = max(1, int(count * _LONG / seconds))
        elif count >= self._rows and seconds < _LONG / 4:
            self.step.rows = min(self._most_rows, 4 * self._rows)

    def _forget(self, what: Range, found: Sequence[Taken]) -> Operation[None]:
        """Lets go of what a commit has acked, and of what is left of those before."""
        whole = self._forgotten and not any(one.segment is segments.UNREAD for one in found)
        self._forgotten = False
        if whole:
            yield from subscriptions.note(self.ledger.core, what, found, forget=True)
        else:
            yield from subscriptions.forget(self.ledger.core, replace(what, start=0))
        self._forgotten = True

    def _claim(self, told: Told, looked: dict[str, Look]) -> Operation[int]:
        """Takes what there is; the number of the last segment that the worker has then.

        told: gets all that it has taken, where that is not much, and whether there may be more. looked: gets
        what the streams are like that it emits to.
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
            told=told,
        )
        if not self._leased:
            # Before it takes anything: who has taken and is not known to live would keep that for ever.
            yield from lease
            self._leased = True
            looked |= yield from look_at(core, self._emits)
            return (yield from claim)
        left, self._left = self._left, []
        looks: list[Operation[Any]] = [lease, claim, look_at(core, self._emits)]
        looks.append(record.is_done(core, self.reader, self._number - 1))
        try:
            _, end, found, done, *_ = yield from abreast(looks + left)
        except AckerError as error:
            self._forgotten = False
            if not isinstance(error, ReaderFenced):
                raise
            yield from leases.end(core, stream, slot, self.reader)  # what the claim has taken all the same
            raise
        looked |= found
        if self._number and not done:
            cause = Cause(
                f"the store was set back to before {self.step.name} had acked it",
                self.step.name,
                retry=not self._once,
            )
            yield from leases.end_set_back(core, stream, slot, self.reader, self._at, cause)
            raise ReaderFenced(
                f"the store was set back to before the last commit of worker {self.reader} of stream "
                f"{stream!r}: requests fail that it has lost with that. The worker begins anew"
            )
        return int(end)

    @property
    def living(self) -> leases.Living | None:
        """The worker as one that counts as alive; None where it has nothing to lose."""
        if not self._leased or self._ended:
            return None
        return leases.Living(self.step.reads, self._slot, self.reader)

    @property
    def _lease(self) -> float:
        return leases.LEASE if self.renewals is None else self.renewals.lease

    def recover(self) -> int:
        """Gives back what dead workers of the step have taken; returns how many segments."""
        return self.ledger.run(self.recovering())

    def recovering(self) -> Operation[int]:
        """As `recover`."""
        if self._slot < 0:
            return 0
        return (yield from leases.recover(self.ledger, self.step.reads, self._slot, self.step.name))

    def end(self) -> None:
        """Gives back what the worker has taken and not committed; it works no more."""
        self._ended = True
        left, self._left = self._left, []
        self.ledger.run(abreast(left))
        if self._slot >= 0:
            self.ledger.run(leases.end(self.ledger.core, self.step.reads, self._slot, self.reader))
