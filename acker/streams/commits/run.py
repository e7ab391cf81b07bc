"""Sends the steps of a commit to the store in as few exchanges as there can be.

One server runs scripts one after another as a chain (lua/store/chain.lua), on any keys. So steps wait here
until there is something to ask, or the commit ends, and go as chunks: chains of a bounded size. Each chunk
begins by moving the commit on from the state in which the last chunk has left it (record.py). Nobody has a
turn within a chunk, and a replica has all of it or nothing. So a chunk takes effect only if the store has all
earlier ones, and no other executor has gone on. If not, `Forgotten` is raised, and the executor begins again
from the stored commit. No step is taken for done without its chunk.

The nodes of a cluster are rolled back independently, and no script of one can ask another. There each step is
a flight, and only the keys of each script say which of its work is done.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import redis

from acker.errors import AckerError, StoreError
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Call, Writer
from acker.ledger.calls.core import ATTEMPTS, Core
from acker.store.operation import Operation, Reply, Request, chain, command
from acker.streams.commits import chunks, record, scripts, under_way
from acker.streams.commits.chunks import Member, Replies, Room, Step, Then, reply_to, request_of, size_of
from acker.streams.commits.record import Phase
from acker.streams.log import segments

_MOST_WAITING, _MOST_WAITING_BYTES = 1_024, 4 << 20
"""Requests, and their bytes, that wait here at most."""
T = TypeVar("T")


class Forgotten(Exception):
    """The store has lost earlier chunks of the commit, or another executor has gone on with it."""


class InCluster(Exception):
    """The store has turned out to be a cluster: nothing was sent."""


class Found(Exception):
    """Another commit of that number is stored, with a state and a text."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(state)
        self.state, self.text = state, text


class Run:
    """Executes the steps of a commit in their order, for an executor that begins it or found it."""

    def __init__(self, core: Core, writer: str, number: int, text: str, state: str = "") -> None:
        self.core, self.writer, self.number, self.text = core, writer, number, text
        self.state = state
        """The state of the commit by the store's last reply."""
        self.phase = record.phase_of(state)
        """The phase of the commit when all waiting steps are done."""
        self.committed = self.phase in ("committed", "tracked")
        """True if the commit was committed at any time: from then on it takes effect."""
        self.attempt = record.attempt_of(state)
        self.registered = False
        """True if others can see that the commit is under way."""
        self._executor, self._count = segments.new_hex_id(), 0
        self._waiting: list[Member] = []
        self._size = 0
        self._by: Writer | None = None
        self._doubtful = False

    @property
    def one_server(self) -> bool:
        """True unless the store is known to be a cluster."""
        return self.core.one_server is not False

    # Steps to do

    def begin(self) -> None:
        """Stores the commit. Raises `Found` if another one is stored."""
        self.attempt = segments.new_hex_id()
        request = record.begin_request(self.core, self.writer, self.number, self.text, self.attempt)
        self._wait(Member(request, to=f"prepared {self.attempt}"))
        self.phase = "prepared"

    def do(
        self,
        requests: Sequence[Request | Call],
        then: Then | None = None,
        *,
        stops: bool = False,
        together: bool = False,
        weight: int = 0,
        weights: Sequence[int] = (),
    ) -> Operation[None]:
        """Sends requests, now or together with later ones.

        Args:
            requests: The requests of a step.
            then: A callback for their replies.
            stops: True if a refused request stops those after it. `then` gets fewer replies in this case.
            together: Like `stops`, and the requests go in one chunk (`fits`).
            weight: About how many trees each request touches.
            weights: The weight of each request.
        """
        if not requests:
            return
        if not self.one_server:
            replies = yield from chunks.in_cluster(self.core, requests)
            yield from chunks.handle(then, replies)
            return
        step = Step(len(requests), then, stops or together, together)
        for place, one in enumerate(requests):
            self._wait(Member(one, step, weights[place] if weights else weight))
        if len(self._waiting) > _MOST_WAITING or self._size > _MOST_WAITING_BYTES:
            yield from self.flush()

    def fits(self, requests: Sequence[Request]) -> bool:
        """Return True if the requests may go in one chunk."""
        room = Room()
        return len(requests) <= chunks.MOST - 2 and all(room.takes(Member(one)) for one in requests)

    def submit(self, calls: Sequence[Call], then: Then | None = None, *, weight: int = 0) -> Operation[None]:
        """Sends calls like `do`. The numbers of a writer make each take effect once."""
        if not self.one_server or not all(call.script.chained for call in calls):
            yield from self.follow(idempotence.submit(self.core, calls))
            yield from chunks.handle(then, [call.reply for call in calls])
            return

        def answered(replies: Replies) -> Operation[None]:
            for call, reply in zip(calls, replies, strict=True):
                call.reply = bytes(reply) if isinstance(reply, bytes) and reply else None
            if any(call.reply is None for call in calls):
                self._doubtful = True
                yield from idempotence.submit(self.core, calls)
            yield from chunks.handle(then, [call.reply for call in calls])

        yield from self.do([self.stamp(call) for call in calls], answered, weight=weight)

    def stamp(self, call: Call) -> Call:
        """Gives a call the next number of this run's writer."""
        self._by = self._by or self.core.writers.take()
        call.stamp = self._by.id, self._by.next(call.shard)
        call.sent_at = time.monotonic()
        return call

    def advance(self, phase: Phase) -> Operation[None]:
        """Moves the commit on to another phase, when all earlier steps are done."""
        self.phase = phase
        if self.one_server:
            self._wait(Member(None, phase=phase))
            return
        move = self._move(self.state, phase)
        [reply] = yield [request_of(self.core, move)]
        self._take_move(move, reply)

    def end(
        self,
        of: str,
        fences: Sequence[bytes],
        name: str,
        spent: Sequence[bytes],
        *,
        forget: bool,
        looks: Sequence[Request] = (),
    ) -> Operation[Sequence[Reply]]:
        """Ends the commit, when all earlier steps are done; returns the replies to `looks`.

        of: its batch. fences, name: keys of its readers, and its field there. spent: keys to delete. forget:
        it is no longer under way. looks: requests to send when it has ended.
        """
        self.phase = "complete"
        gone = [under_way.forgetting(self.core, self.writer, self.number)] if forget else []
        commit = self.core.config, self.writer, self.number
        if self.one_server:
            request = scripts.advance_commit(*commit, "", "complete", of, fences, name, spent)
            self._wait(Member(request, phase="complete"))
            replies = yield from self.flush(gone, looks)
        else:
            released = [command("HDEL", key, name) for key in fences]
            dropped = [command("UNLINK", key) for key in spent]
            done = scripts.advance_commit(*commit, self.state, "complete", of)
            reply, *others = yield [done, *released, *dropped, *gone, *looks]
            self._take_move(Member(done, phase="complete", to="complete"), reply)
            replies = others[len(others) - len(looks) :]
        # A writer whose last call is in doubt is never used again.
        if self._by is not None and not self._doubtful:
            self.core.writers.give(self._by)
        return replies

    def follow(self, operation: Operation[T]) -> Operation[T]:
        """Runs an operation as part of the commit, when all earlier steps are done."""
        yield from self.flush()
        return (yield from self._guarded(operation))

    # Chunks to send

    def _wait(self, member: Member) -> None:
        self._waiting.append(member)
        self._size += size_of(member.request) if member.request is not None else 0

    def flush(
        self, last: Sequence[Request] | None = None, looks: Sequence[Request] = ()
    ) -> Operation[Sequence[Reply]]:
        """Sends the waiting requests, and follows up on their replies.

        last, looks: requests that go along, if nothing comes after them. Returns the replies to `looks`.
        """
        read: Sequence[Reply] = ()
        most = ATTEMPTS + 2 * len(self._waiting)  # each does one at least
        while self._waiting:
            cut = self._cut(ends=last is not None)
            requests = [chain([request_of(self.core, member) for member in chunk]) for chunk in cut]
            if last is None or not cut[-1][-1].ends:
                requests.append(under_way.begun(self.core, self.writer, self.number, "")[1])
            else:
                requests += last if self.registered or len(cut) > 1 else ()
                requests += looks
            replies = yield requests
            self.core.one_server = replies[0] is not None
            if not self.core.one_server:
                raise InCluster
            read = replies[len(replies) - len(looks) :]
            yield from self._take(cut, replies[: len(cut)])
            most -= 1
            if not most:
                raise StoreError(f"commit {self.number} of {self.writer}: its scripts are refused")
        return read

    def _cut(self, ends: bool) -> list[list[Member]]:
        """Cuts the waiting requests into chunks.

        Each begins in the state in which the one before leaves the commit.
        """
        cut, state, at = list[list[Member]](), self.state, 0
        first = self._waiting[0].step
        end = first.left if first is not None and first.refused else len(self._waiting)
        while at < end and len(cut) < chunks.MOST_CHUNKS:
            chunk, room = list[Member](), Room()
            if state:
                chunk.append(self._move(state, record.phase_of(state)))
                state = chunk[-1].to
            while at < end and self._takes(room, at):
                member = self._waiting[at]
                chunk.append(self._move(state, member.phase, member) if member.phase else member)
                state = chunk[-1].to or state
                at += 1
            if at < end and state and (len(cut) + 1 < chunks.MOST_CHUNKS or self._goes_on(at)):
                chunk.append(self._move(state, record.phase_of(state)))
                state = chunk[-1].to
            cut.append(chunk)
        if not self.registered and (len(cut) > 1 or at < len(self._waiting) or not ends):
            begins = next((place for place, member in enumerate(cut[0]) if member.to), None)
            if begins is not None:
                beat, _ = under_way.begun(self.core, self.writer, self.number, self.text)
                cut[0].insert(begins + 1, Member(beat))
        return cut

    def _takes(self, room: Room, at: int) -> bool:
        """Return True if a chunk has room for a waiting request, and for all that must go with it."""
        member = self._waiting[at]
        before = self._waiting[at - 1] if at else None
        if (
            member.step is not None
            and member.step.together
            and (before is None or before.step is not member.step)
        ):
            trial, rest = replace(room), self._waiting[at : at + member.step.left]
            if room.members > 1 and not all(trial.takes(other) for other in rest):
                return False
        return room.takes(member)

    def _goes_on(self, at: int) -> bool:
        """Return True if a waiting request and the one before it are of one step, which reports refusals."""
        step = self._waiting[at].step
        return step is not None and self._waiting[at - 1].step is step

    def _move(self, state: str, phase: Phase, member: Member | None = None) -> Member:
        """The script that moves the commit on from a state. member: the waiting request to move it."""
        self._count += 1
        to = phase if phase == "complete" else record.next_state(state, phase, self._executor, self._count)
        request = scripts.advance_commit(self.core.config, self.writer, self.number, state, to)
        if member is not None and isinstance(member.request, Request):  # with its other arguments
            number, _, _, *rest = member.request.args
            request = replace(member.request, args=[number, state, to, *rest])
        return Member(request, phase=phase, to=to, of=member)

    def _take(self, cut: Sequence[Sequence[Member]], answers: Sequence[Reply]) -> Operation[None]:
        """Hands the replies of chunks to their steps, and updates the state of the commit."""
        ended = list[Step]()
        for chunk, replies in zip(cut, answers, strict=True):
            for member, reply in zip(chunk, replies, strict=False):
                if member.phase:
                    self._take_move(member, reply)
                elif member.to:
                    self._take_begin(member, reply)
                elif (
                    member.step is not None
                    and self._take_reply(member, member.step, reply)
                    and not member.step.left
                ):
                    ended.append(member.step)
                if member.step is None:
                    member.end()
                    self.registered = self.registered or not member.to
            if len(replies) < len(chunk):
                stopped = chunk[len(replies) - 1]
                if stopped.done and stopped.step is not None and stopped.step.left:
                    self._refuse(stopped.step, ended)
                break  # later chunks were refused, too
        self._waiting = [member for member in self._waiting if not member.done]
        self._size = sum(size_of(member.request) for member in self._waiting if member.request is not None)
        for step in ended:
            yield from self._guarded(chunks.handle(step.then, step.replies))

    def _refuse(self, step: Step, ended: list[Step]) -> None:
        """Notes that a request of a step was refused, and others of it are left."""
        step.refused = True
        if step.stops:
            ended.append(step)
            for member in self._waiting:
                member.done = member.done or member.step is step

    def _take_move(self, member: Member, reply: Reply) -> None:
        if reply != 1:
            raise Forgotten
        self.state = member.to
        self.committed = self.committed or member.phase in ("committed", "tracked")

    def _take_begin(self, member: Member, reply: Reply) -> None:
        state, text = record.parse_state(self.core, self.writer, self.number, reply_to(member, reply))
        if state != member.to:
            raise Found(state, text)
        self.state = state

    def _take_reply(self, member: Member, step: Step, reply: Reply) -> bool:
        """Hands a reply to its step; False if the request must be sent again."""
        reply = reply_to(member, reply)
        if isinstance(member.request, Call):
            if self.core.note_spouts(member.request.shard, reply):
                return False
            full = isinstance(reply, redis.ResponseError) and str(reply).startswith("FULL")
            if isinstance(reply, redis.ResponseError) and not member.request.stamp and not full:
                raise StoreError(str(reply))
            if member.request.tracks and isinstance(reply, bytes) and b"A" in reply:
                self.core.note_tracked(member.request, member.declared)
        member.end()
        step.left -= 1
        step.replies.append(reply)
        return True

    def _guarded(self, operation: Operation[T]) -> Operation[T]:
        """Runs an operation. Its writes take effect only if the store still has all earlier chunks."""
        if not self.one_server or record.phase_of(self.state) in ("", "complete"):
            return (yield from operation)
        try:
            requests = next(operation)
            while True:
                try:
                    replies = yield from self._send(requests)
                except AckerError as error:
                    requests = operation.throw(error)
                else:
                    requests = operation.send(replies)
        except StopIteration as ended:
            result: T = ended.value
            return result
        finally:
            operation.close()

    def _send(self, requests: Sequence[Request]) -> Operation[Replies]:
        """Sends the requests of an operation: each script as a chunk of its own."""
        moves = list[Member | None]()
        sent, state = list[Request](), self.state
        for asked in requests:
            drops = asked.script is None and asked.args == ("UNLINK", asked.key)
            request = scripts.unlink([asked.key]) if drops else asked
            if request.script is None or request.script.reads or not request.script.chained:
                moves.append(None)
                sent.append(request)
                continue
            move = self._move(state, record.phase_of(state))
            state = move.to
            moves.append(move)
            sent.append(chain([request_of(self.core, move), request]))
        if not self.registered:
            sent += under_way.begun(self.core, self.writer, self.number, self.text)
            self.registered = True
        replies = yield sent
        if any(move is not None and reply is None for move, reply in zip(moves, replies, strict=False)):
            self.core.one_server = False
            raise InCluster
        answers = Replies()
        for asked, moved, reply in zip(requests, moves, replies, strict=False):
            if moved is None:
                answers.append(reply)
                continue
            self._take_move(moved, reply[0])
            answers.append(reply_to(Member(asked), reply[1]))
        return answers
