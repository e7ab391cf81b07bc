"""The exchange of a process: its external streams of a topology share it, and each flush is one commit.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together.
"""

import threading
import time
from collections.abc import Callable, Sequence

from acker.collectors import process_end
from acker.collectors.external.loop import Loop
from acker.collectors.external.row import Row, named
from acker.collectors.external.rows import Rows
from acker.collectors.tuples import Edge, Owner, Taken, Tuple, ending, is_ending
from acker.errors import (
    AckerError,
    BufferFull,
    StampsExpired,
    StreamLost,
    TupleError,
    UnknownSubscription,
    shown,
)
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.steps.registration import SECONDS, AtWork
from acker.store.operation import Operation
from acker.streams.staging.external import commit as commits
from acker.streams.staging.external import serving
from acker.streams.staging.external.contents import ExternalCommit, In, Out
from acker.streams.staging.external.declaring import External, check_subscribed
from acker.streams.staging.external.rows.stamps import Stamp
from acker.streams.staging.external.segments import Sent, Worked, latest
from acker.streams.staging.external.serving import Served

MOST_ROWS = 1_000_000
"""Rows that wait for a flush at most."""
TAKEN_OVER = "taken over by an external stream: the flush that sends its rows acks it"


class Exchange:
    """Rows that were received and sent, for any thread; the operation `sending` commits them.

    A caller runs one `sending` at a time, on the store or on an event loop. It may end early, by an error or
    as its task is cancelled: the next one goes on where it was.
    """

    observes = False
    """True if rows are only recorded (acker/collectors/modes/observing_streams.py)."""
    linger: float | None = None
    """Seconds after which rows are sent without a flush of the program; None for never."""

    def __init__(self, core: Core, owner: Owner, off: bool = False) -> None:
        self.core, self.owner, self.off = core, owner, off
        self.streams: dict[str, External] = {}
        self._time: tuple[int, float] | None = None
        self._served: dict[Served, tuple[bool, float]] = {}
        self._sends: set[str] = set()
        self._at_work = AtWork.in_this_process()
        self.forget()
        process_end.add_exchange(self)

    def keep(self) -> None:
        """Keeps the exchange while rows linger: for its first waiting row."""

    def finish(self) -> None:
        """Does nothing: on an event loop `close` sends what lingers."""

    def forget(self) -> None:
        """Drops all rows: a forked child's are its parent's."""
        self.lock = threading.RLock()
        self.is_locked: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]
        """True if the caller's thread has the lock."""
        self.acks = Taken()
        """The tuples that came as text and were acked, so that none is acked twice."""
        self._pending: list[ExternalCommit] = []
        self._spent: Sequence[bytes] = ()
        self.current = ExternalCommit()
        self._taken: dict[int, Tuple] = {}
        self._fails: list[tuple[tuple[int, ...], bytes]] = []
        self._unsent: list[tuple[Sent, int, bytes]] = []
        self._forgotten: list[tuple[str, Stamp, bytes]] = []
        self.open: dict[int, Row] = {}
        self.batches: dict[Rows, None] = {}
        self.opened: dict[str, Sent] = {}
        self.recent: dict[str, Sent] = {}
        self.refusal: AckerError | None = None
        self.due = False  # True while a flush after the linger waits for the end of the rows in work
        self.rows = 0
        self._loop: Loop | None = None

    def serve(self, served: Served, shared: bool) -> Operation[None]:
        """Registers a step at a subscription, and again with later flushes. Raises SubscriptionInUse."""
        at = time.monotonic()
        yield from serving.serve(self.core, *served, shared=shared)
        self._served[served] = shared, at
        yield from self._register(served.step)

    def _check_subscribed(self, served: Served) -> Operation[None]:
        external = self.streams[served.stream]
        try:
            yield from check_subscribed(self.core, served.stream, external, served.slot)
        except (StreamLost, UnknownSubscription) as error:
            self.refuse(error)
            raise

    def send_to(self, stream: str) -> Operation[None]:
        """Notes a stream that this process sends to, and registers its steps again."""
        if stream not in self._sends:
            self._sends.add(stream)
            for step in {served.step for served in list(self._served)}:
                yield from self._register(step)

    def _register(self, step: str) -> Operation[None]:
        reads = [served.stream for served in list(self._served) if served.step == step]
        yield from self._at_work.note_reader(self.core, step, reads, self._sends)

    # The store's clock

    def note_time(self, now: int, asked_at: float) -> None:
        """Notes the server's time (ms), for a question that was asked at a time of the monotonic clock."""
        self._time = now, asked_at

    def now(self) -> int:
        """The store's time in Unix seconds, never ahead of it."""
        assert self._time is not None
        now, at = self._time
        return int(now / 1000 + time.monotonic() - at)

    # What is added

    def check(self) -> None:
        """Raises what refuses all calls of this process."""
        if self.refusal is not None:
            raise type(self.refusal)(*self.refusal.args)

    def check_whole(self, sends: bool = False) -> None:
        """Raises AckerError if the caller's thread is in the middle of another call, or `sends`.

        The caller is a signal handler then, and rows may be half changed.
        """
        if sends or self.is_locked() or is_ending():
            raise AckerError(
                "a signal handler has called an external stream inside another call of the same thread: only "
                "set a flag in the handler, and call the stream after the interrupted call has returned"
            )

    def check_held(self, row: Row) -> None:
        """Raises TupleError for a tracked row of another process; with the lock."""
        if row.anchors and id(row) not in self.open:
            raise TupleError(
                f"row {row.named()} was extracted before this process was forked: its parent acks or fails it"
            )

    def refuse(self, error: AckerError) -> None:
        """Has all further calls raise an error."""
        self.refusal = error

    def received(self, stream: str, slot: int) -> In:
        """Returns the received rows of a stream that the next flush reports."""
        received = self.current.received.get((stream, slot))
        if received is None:
            self.keep()
            received = self.current.received[stream, slot] = In(self.streams[stream])
        return received

    def sent(self, stream: str) -> Out:
        """Returns the rows that the next flush sends to a stream."""
        if (out := self.current.out.get(stream)) is None:
            out = self.current.out[stream] = Out(self.streams[stream], [])
        return out

    def check_room(self, rows: int) -> None:
        """Raises BufferFull if so many further rows are too many."""
        if self.rows + rows > MOST_ROWS:
            raise BufferFull(f"{self.rows:,} rows wait for topology.flush(), which alone sends them")

    def make_room(self, rows: int = 1) -> None:
        """Counts rows that are added next. Raises BufferFull."""
        self.check_room(rows)
        self.rows += rows

    def check_tuple(self, tuple: Tuple) -> None:  # noqa: A002 - this project's word
        """Raises TupleError if a tuple was acked, failed or flushed before."""
        if id(tuple) not in self._taken or self.linger is not None:  # a flush may come at any time
            tuple.check_open(self.owner, "stamped")
            self.acks.hold(tuple, self.owner, self.current.name)

    def take_over(self, tuple: Tuple) -> None:  # noqa: A002 - as above
        """Makes the next flush ack a checked tuple, once."""
        if id(tuple) in self._taken:
            return
        self.current.taken_at = self.current.taken_at or self.now()
        self._taken[id(tuple)], tuple.ended = tuple, TAKEN_OVER

    def give_back(self, *tuples: Tuple) -> None:
        """Opens tuples again that the next flush was to ack; one that a flush has taken stays ended."""
        with self.lock, ending:
            for tuple_ in tuples:
                if self._taken.pop(id(tuple_), None) is not None:
                    tuple_.ended = ""
            left = {one.first_edge for one in self._taken.values()}
            for edge in {tuple_.first_edge for tuple_ in tuples} - left:
                self.acks.release(edge, self.current.name)

    def give_up(self, row: Row) -> None:
        """Ends the work on a row that is neither acked nor failed: it comes again, by its offset."""
        with self.lock:
            if self.open.pop(id(row), None) is not None:
                row.ended = "given up"
            self.freeze_due()

    def begin(self, loop: Loop) -> None:
        """Registers a loop, whose flushes need that no other loop has a row in work.

        An earlier loop over the same consumer is ended, which was left at a row.

        Raises:
            AckerError: Another loop goes on.
        """
        with self.lock:
            earlier = self._loop
            if earlier is not None and not (earlier.consumer is loop.consumer and earlier.has_given):
                raise AckerError(
                    f"another loop over {shown(earlier.stream)} uses this topology: give each loop a "
                    "topology object of its own, or close the other one first"
                )
            if earlier is not None:
                earlier.end()
            self._loop = loop

    def leave(self, loop: Loop) -> None:
        """Forgets a loop that has ended."""
        with self.lock:
            if self._loop is loop:
                self._loop = None

    def undelivered(self, stream: str, stamp: Stamp, cause: bytes) -> None:
        """Has a flush set the bit of a row that did not reach the transport, and fail its trees for a cause.

        cause: empty where the row's trees are not to fail.
        """
        token, position, begun, anchors = stamp
        with self.lock:
            self.keep()
            closed = [segment for out in self.current.out.values() for segment in out.segments]
            by_token = {segment.token: segment for segment in [*self.opened.values(), *closed]}
            if (segment := by_token.get(token)) is not None:
                segment.lose(position, cause)
                return
            if (sent := self.recent.get(token)) is not None:
                if not sent.slots:  # a cut flush that goes on fails it before its inputs are acked
                    sent.lose(position, cause)
                self._unsent.append((sent, position, cause))
                return
            if self.now() < begun + self.core.config.stamp_ttl:
                self._forgotten.append((stream, stamp, cause))
            if cause:
                self._fails.append((anchors, cause))

    @property
    def waits(self) -> bool:
        """True if something waits for a flush."""
        late = self._fails or self._unsent or self._forgotten
        return bool(self.rows or self._taken or self._pending or late)

    # Flushing

    def rows_in_work(self) -> list[Row]:
        """Lists the rows that are neither acked nor failed; with the lock."""
        for batch in list(self.batches):
            batch.listed()
        return list(self.open.values())

    def check_ended(self) -> None:
        """Raises TupleError where rows are neither acked nor failed."""
        self.check()
        with self.lock:
            left = self.rows_in_work()
        if left:
            raise TupleError(
                f"{len(left):,} rows are neither acked nor failed: {named(left)}. This call has sent "
                "nothing: ack or fail each row, and flush again"
            )

    def linger_for(self, seconds: float) -> None:
        """Has waiting rows sent after so many seconds, or fewer: the shortest linger of its streams."""
        self.linger = min(seconds, self.linger or seconds)

    def freeze_due(self) -> None:
        """Gives what waits to a flush that is due, when no row is in work; with the lock.

        So the ack of a row and the rows that were made of it go in one commit.
        """
        if self.due and not self.open and not self.batches:
            with ending:
                self.due = False
                self._freeze()
                self.keep()

    def sending(self, lingered: bool = False) -> Operation[None]:
        """Sends all that waits, as one commit; see `acker.Topology.flush`.

        lingered: Rows in work are no error: when they have ended, what waits goes with a later call.
        """
        for served, (shared, at) in list(self._served.items()):
            if time.monotonic() - at >= SECONDS:
                yield from self._check_subscribed(served)
                yield from self.serve(served, shared)
        for again in (False, True):  # the second: rows of segments of the first that were not delivered
            with self.lock:
                if again and (self.open or self.batches):
                    break  # other threads have rows in work: what is left waits for the next flush
                if not lingered:
                    self.check_ended()
                self.due = True
                self.freeze_due()
            while self._pending:
                yield from self._send(self._pending[0])
                self._pending = self._pending[1:]
            if not self._unsent:
                break

    def _freeze(self) -> None:
        """Makes a commit of what waits, which does not change any more."""
        now = self.current
        commit = ExternalCommit(now.name, dict(now.out), now.received, {}, now.taken_at)
        firsts = set[Edge]()
        for tuple_ in self._taken.values():
            for anchor, delta in self._deltas(tuple_, firsts).items():
                commit.taken[anchor] = commit.taken.get(anchor, 0) ^ delta
            if tuple_.first_edge is not None:
                firsts.add(tuple_.first_edge)
        for stream, sent in self.opened.items():
            before = commit.out.get(stream) or Out(self.streams[stream], [])
            commit.out[stream] = Out(before.external, [*before.segments, sent])
        recent = latest(self.recent, [segment for out in commit.out.values() for segment in out.segments])
        fails, unsent = list(self._fails), list[tuple[Sent, int, bytes]]()
        for segment, position, cause in self._unsent:
            if segment.slots is None:
                unsent.append((segment, position, cause))
            else:
                fails += commit.add_unsent(self.core, segment, position, cause)
        for forgotten in self._forgotten:
            self._add_forgotten(commit, *forgotten)
        commit.fails = fails
        travelled = firsts & {tuple_.first_edge for tuple_ in self._taken.values() if tuple_.travelled}
        if not (commit.out or commit.received or commit.taken or commit.fails or commit.unsent):
            self.rows = 0  # of a topology without tracking
            return
        pending, new = [*self._pending, commit], ExternalCommit()
        # All at once: an interrupt comes before or after.
        self._pending, self.current, self._taken, self.opened, self.recent = pending, new, {}, {}, recent
        self.rows, self._fails, self._unsent, self._forgotten = 0, [], unsent, []
        self.acks.note(travelled)

    def _add_forgotten(self, commit: ExternalCommit, stream: str, stamp: Stamp, cause: bytes) -> None:
        """Adds the bit of a row that was not delivered, of a segment sent long ago, for all subscriptions.

        Its trees fail before, as the segment may be for none of these, and once more with the bit: the shard
        may have lost the earlier fail by then.
        """
        ackers = self.core.config.ackers
        for shard in {ids.shard_of_anchor(anchor, ackers) for anchor in stamp.anchors}:
            here = tuple(one for one in stamp.anchors if ids.shard_of_anchor(one, ackers) == shard)
            for slot in self.streams[stream].seen:
                worked = commit.unsent.setdefault((stamp.token, slot, shard), Worked())
                worked.positions.add(stamp.position)
                if cause:
                    worked.fails[stamp.position] = (here, cause)

    def _deltas(self, tuple: Tuple, firsts: set[Edge]) -> dict[int, int]:  # noqa: A002 - as above
        """The ack of a tuple: of one that came as text and was acked before, its children alone."""
        edge = tuple.first_edge
        return tuple.children if edge in self.acks.acked or edge in firsts else tuple.deltas()

    def _send(self, commit: ExternalCommit) -> Operation[None]:
        asked, core = time.monotonic(), self.core
        try:
            fails = [(tree, cause) for trees, cause in commit.fails for tree in trees]
            if not (yield from commits.fail_rows(core, fails)):
                commit.unsent = {}
            # Its notes are dropped by the next carrying out.
            ended = yield from commits.carry_out(core, commit, self._spent)
            self._spent = ended.spent
            if ended.now:
                self.note_time(ended.now, asked)
        except (StampsExpired, StreamLost) as error:
            self.refuse(error)
            raise
        self.acks.sent(commit.name)
