"""How the steps of a commit go to the store: as few exchanges as there can be.

And none that is taken for done.

One server runs scripts one after another as a chain (lua/store/chain.lua), of any slots. So the steps of a
commit wait here until there is something to ask, or the commit ends, and go as chunks: chains of a bounded
size. Each chunk begins by moving the commit on from the state in which the last one has left it
(record.py). Nobody has a turn within a chunk, and a replica has all of it or nothing: so a chunk takes
effect only where the store has all that was done before, and nobody else has gone on. Where it has not,
`Forgotten` says so, and whoever carries the commit out begins again, from what is stored.

The nodes of a cluster are set back apart, and no script of one tells of another. There each step is a flight,
and the keys of each script alone say what of it is done.
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
"""Requests, and bytes of them, that wait here at most."""
T = TypeVar("T")


class Forgotten(Exception):
    """The store has forgotten some of what was done, or another one has gone on with the commit."""


class InCluster(Exception):
    """The store is a cluster, which was not known: nothing was sent."""


class Found(Exception):
    """Another commit of that number is stored. state, text: of that."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(state)
        self.state, self.text = state, text


class Run:
    """Carries out steps, in their order, for one who has found a commit in a state, or begins it."""

    def __init__(self, core: Core, writer: str, number: int, text: str, state: str = "") -> None:
        self.core, self.writer, self.number, self.text = core, writer, number, text
        self.state = state
        """That of the commit, as the store has said last."""
        self.phase = record.phase_of(state)
        """That which the commit is in when all that waits is done."""
        self.final = self.phase in ("held", "tracked")
        """Whether the commit was final at any time: from then on it takes effect."""
        self.attempt = record.attempt_of(state)
        self.registered = False
        """Whether others know that it is under way."""
        self._token, self._count = segments.new_token(), 0
        self._waiting: list[Member] = []
        self._size = 0
        self._by: Writer | None = None
        self._doubtful = False

    @property
    def one_server(self) -> bool:
        """Whether the store is one server, as far as that is known."""
        return self.core.one_server is not False

    # What is to be done

    def begin(self) -> None:
        """Stores the commit, where there is none. Where there is one, `Found` is raised."""
        self.attempt = segments.new_token()
        request = record.beginning(self.core, self.writer, self.number, self.text, self.attempt)
        self._wait(Member(request, to=f"stored {self.attempt}"))
        self.phase = "stored"

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
        """Has requests be sent, now or with what comes after them.

        then: takes their replies. stops: where one of them says no, those after it are not sent, and
        `then` has fewer replies. together: so, and they go in one chunk (`fits`). weight: about how many
        trees each is about; weights: each by itself.
        """
        if not requests:
            return
        if not self.one_server:
            replies = yield from _replies(self.core, requests)
            yield from _done(then, replies)
            return
        step = Step(len(requests), then, stops or together, together)
        for place, one in enumerate(requests):
            self._wait(Member(one, step, weights[place] if weights else weight))
        if len(self._waiting) > _MOST_WAITING or self._size > _MOST_WAITING_BYTES:
            yield from self.flush()

    def fits(self, requests: Sequence[Request]) -> bool:
        """Whether requests may go in one chunk."""
        room = Room()
        return len(requests) <= chunks.MOST - 2 and all(room.takes(Member(one)) for one in requests)

    def submit(self, calls: Sequence[Call], then: Then | None = None, *, weight: int = 0) -> Operation[None]:
        """As `do`, for calls that the numbers of a writer let take effect once."""
        if not self.one_server or not all(call.script.chained for call in calls):
            yield from self.follow(idempotence.submit(self.core, calls))
            yield from _done(then, [call.reply for call in calls])
            return

        def answered(replies: Replies) -> Operation[None]:
            for call, reply in zip(calls, replies, strict=True):
                call.reply = bytes(reply) if isinstance(reply, bytes) and reply else None
            if any(call.reply is None for call in calls):
                self._doubtful = True
                yield from idempotence.submit(self.core, calls)
            yield from _done(then, [call.reply for call in calls])

        yield from self.do([self.stamp(call) for call in calls], answered, weight=weight)

    def stamp(self, call: Call) -> Call:
        """Gives a call the next number of this run's writer."""
        self._by = self._by or self.core.writers.take()
        call.stamp = self._by.id, self._by.next(call.shard)
        call.sent_at = time.monotonic()
        return call

    def advance(self, phase: Phase) -> Operation[None]:
        """Moves the commit on to another phase, when all before is done."""
        self.phase = phase
        if self.one_server:
            self._wait(Member(None, phase=phase))
            return
        move = self._move(self.state, phase)
        [reply] = yield [request_of(self.core, move)]
        self._take_move(move, reply)

    def end(
        self, of: str, bound: Sequence[bytes], name: str, spent: Sequence[bytes], *, forget: bool
    ) -> Operation[None]:
        """Ends the commit, when all before is done.

        of: its batch. bound, name: keys and field of its readers. spent: keys that go. forget: it is not
        under way any more.
        """
        self.phase = "done"
        gone = [under_way.forgetting(self.core, self.writer, self.number)] if forget else []
        own = self.core.config, self.writer, self.number
        if self.one_server:
            request = scripts.advance_commit(*own, "", "done", of, bound, name, spent)
            self._wait(Member(request, phase="done"))
            yield from self.flush(gone)
        else:
            released = [command("HDEL", key, name) for key in bound]
            dropped = [command("UNLINK", key) for key in spent]
            done = scripts.advance_commit(*own, self.state, "done", of)
            reply, *_ = yield [done, *released, *dropped, *gone]
            self._take_move(Member(done, phase="done", to="done"), reply)
        if (
            self._by is not None and not self._doubtful
        ):  # else nobody knows of its last, and nobody uses it any more
            self.core.writers.give(self._by)

    def follow(self, operation: Operation[T]) -> Operation[T]:
        """Runs an operation as part of the commit, when all before is done."""
        yield from self.flush()
        return (yield from self._guarded(operation))

    # How it goes

    def _wait(self, one: Member) -> None:
        self._waiting.append(one)
        self._size += size_of(one.what) if one.what is not None else 0

    def flush(self, last: Sequence[Request] | None = None) -> Operation[None]:
        """Sends what waits, and does what its replies ask for.

        last: goes with it, where nothing comes after it.
        """
        most = ATTEMPTS + 2 * len(self._waiting)  # each does one at least
        while self._waiting:
            cut = self._cut(ends=last is not None)
            requests = [chain([request_of(self.core, one) for one in chunk]) for chunk in cut]
            if last is None or not cut[-1][-1].ends:
                requests.append(under_way.begun(self.core, self.writer, self.number, "")[1])
            elif self.registered or len(cut) > 1:
                requests += last
            answers = (yield requests)[: len(cut)]
            if answers[0] is None:
                self.core.one_server = False
                raise InCluster
            self.core.one_server = True
            yield from self._take(cut, answers)
            most -= 1
            if not most:
                raise StoreError(
                    f"scripts of commit {self.number} of {self.writer} were refused again and again"
                )

    def _cut(self, ends: bool) -> list[list[Member]]:
        """What waits, as chunks.

        Each begins in the state in which the one before leaves the commit, as a whole.
        """
        made, state, at = list[list[Member]](), self.state, 0
        first = self._waiting[0].step
        end = first.left if first is not None and first.refused else len(self._waiting)
        while at < end and len(made) < chunks.MOST_CHUNKS:
            chunk, room = list[Member](), Room()
            if state:
                chunk.append(self._move(state, record.phase_of(state)))
                state = chunk[-1].to
            while at < end and self._takes(room, at):
                one = self._waiting[at]
                chunk.append(self._move(state, one.phase, one) if one.phase else one)
                state = chunk[-1].to or state
                at += 1
            if at < end and state and (len(made) + 1 < chunks.MOST_CHUNKS or self._goes_on(at)):
                chunk.append(self._move(state, record.phase_of(state)))
                state = chunk[-1].to
            made.append(chunk)
        if not self.registered and (len(made) > 1 or at < len(self._waiting) or not ends):
            begins = next((place for place, one in enumerate(made[0]) if one.to), None)
            if begins is not None:
                beat, _ = under_way.begun(self.core, self.writer, self.number, self.text)
                made[0].insert(begins + 1, Member(beat))
        return made

    def _takes(self, room: Room, at: int) -> bool:
        """Whether a chunk has room for what waits at a place, and what must go with it."""
        one = self._waiting[at]
        before = self._waiting[at - 1] if at else None
        if one.step is not None and one.step.together and (before is None or before.step is not one.step):
            trial, rest = replace(room), self._waiting[at : at + one.step.left]
            if room.members > 1 and not all(trial.takes(other) for other in rest):
                return False
        return room.takes(one)

    def _goes_on(self, at: int) -> bool:
        """Whether what waits at a place belongs together with what is before it.

        Where that says no at the end of a chunk, what comes after it in the chunk tells so.
        """
        step = self._waiting[at].step
        return step is not None and self._waiting[at - 1].step is step

    def _move(self, state: str, phase: Phase, one: Member | None = None) -> Member:
        """The script that moves the commit on from a state. one: that waits to do it."""
        self._count += 1
        to = "done" if phase == "done" else record.moved(state, phase, self._token, self._count)
        made = scripts.advance_commit(self.core.config, self.writer, self.number, state, to)
        if one is not None and isinstance(one.what, Request):  # with what it is to do besides
            number, _, _, *rest = one.what.args
            made = replace(one.what, args=[number, state, to, *rest])
        return Member(made, phase=phase, to=to, of=one)

    def _take(self, cut: Sequence[Sequence[Member]], answers: Sequence[Reply]) -> Operation[None]:
        """Takes the replies to chunks: those of their steps, and the state of the commit."""
        ended = list[Step]()
        for chunk, replies in zip(cut, answers, strict=True):
            for one, reply in zip(chunk, replies, strict=False):
                if one.phase:
                    self._take_move(one, reply)
                elif one.to:
                    self._take_begin(one, reply)
                elif one.step is not None and self._take_reply(one, one.step, reply) and not one.step.left:
                    ended.append(one.step)
                if one.step is None:
                    one.end()
                    self.registered = self.registered or not one.to
            if len(replies) < len(chunk):
                stopped = chunk[len(replies) - 1]
                if stopped.done and stopped.step is not None and stopped.step.left:
                    self._refuse(stopped.step, ended)
                break  # those after it say no
        self._waiting = [one for one in self._waiting if not one.done]
        self._size = sum(size_of(one.what) for one in self._waiting if one.what is not None)
        for step in ended:
            yield from self._guarded(_done(step.then, step.replies))

    def _refuse(self, step: Step, ended: list[Step]) -> None:
        """Notes that one of a step said no, and others of it are left."""
        step.refused = True
        if step.stops:
            ended.append(step)
            for one in self._waiting:
                one.done = one.done or one.step is step

    def _take_move(self, one: Member, reply: Reply) -> None:
        if reply != 1:
            raise Forgotten
        self.state = one.to
        self.final = self.final or one.phase in ("held", "tracked")

    def _take_begin(self, one: Member, reply: Reply) -> None:
        state, text = record.begun(self.core, self.writer, self.number, reply_to(one, reply))
        if state != one.to:
            raise Found(state, text)
        self.state = state

    def _take_reply(self, one: Member, step: Step, reply: Reply) -> bool:
        """Takes the reply of a step; False where it is to be asked again."""
        reply = reply_to(one, reply)
        if isinstance(one.what, Call):
            if self.core.note_spouts(one.what.shard, reply):
                return False
            if isinstance(reply, redis.ResponseError) and not one.what.stamp:
                raise StoreError(str(reply))
            if one.what.tracks and isinstance(reply, bytes) and b"A" in reply:
                self.core.note_tracked(one.what, one.declared)
        one.end()
        step.left -= 1
        step.replies.append(reply)
        return True

    def _guarded(self, operation: Operation[T]) -> Operation[T]:
        """Runs an operation: what it writes takes effect only where all before is there still."""
        if not self.one_server or record.phase_of(self.state) in ("", "done"):
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
        """Sends what an operation asks for: each script as a chunk of its own."""
        moves = list[Member | None]()
        sent, state = list[Request](), self.state
        for asked in requests:
            drops = asked.script is None and asked.args == ("UNLINK", asked.key)
            one = scripts.unlink([asked.key]) if drops else asked
            if one.script is None or one.script.reads or not one.script.chained:
                moves.append(None)
                sent.append(one)
                continue
            move = self._move(state, record.phase_of(state))
            state = move.to
            moves.append(move)
            sent.append(chain([request_of(self.core, move), one]))
        if not self.registered:
            sent += under_way.begun(self.core, self.writer, self.number, self.text)
            self.registered = True
        replies = yield sent
        if any(move is not None and reply is None for move, reply in zip(moves, replies, strict=False)):
            self.core.one_server = False
            raise InCluster
        found = Replies()
        for asked, moved, reply in zip(requests, moves, replies, strict=False):
            if moved is None:
                found.append(reply)
                continue
            self._take_move(moved, reply[0])
            found.append(reply_to(Member(asked), reply[1]))
        return found


def _done(then: Then | None, replies: Replies) -> Operation[None]:
    """Does what replies ask for."""
    asked = then(replies) if then is not None else None
    if asked is not None:
        yield from asked


def _replies(core: Core, requests: Sequence[Request | Call]) -> Operation[Replies]:
    """The replies of a cluster: calls are asked as `Core.ask` does."""
    calls = [one for one in requests if isinstance(one, Call)]
    if len(calls) == len(requests):
        return (yield from core.ask(calls))
    assert not calls
    return (yield [one for one in requests if isinstance(one, Request)])
