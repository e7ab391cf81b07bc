"""The trail of who carries out a commit phase by phase: by it he learns where the store has been set back.

Each batch that he sends ends with a note of how far he has come, in the record of the commit. A store that is
set back to a moment before, as when a replica that lags takes over, has lost the note with what it was about.
So a script that is sent after it runs only where the note is there; whoever finds it gone begins again, from
what is stored. Elsewhere a phase that was lost would be taken for done, and what is final no more would be
published: rows would be worked on twice.

The nodes of a cluster are set back apart, so a note on one says nothing of the others, and none is made.
"""

from collections.abc import Sequence
from typing import TypeVar

import redis

from acker.errors import AckerError
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.flight import refusal_of, refused
from acker.store.operation import Operation, Reply, Request, chain, command
from acker.streams.commits import scripts
from acker.streams.log import segments

_ONE_FLIGHT = 60
"""Requests that always go in one flight, so that a note at its end is about all of them."""
_T = TypeVar("_T")


class Forgotten(Exception):
    """The store has forgotten some of what was done, or another has ended the commit meanwhile."""


class Trail:
    """What one who carries out a commit has noted of it; another one has a trail of his own."""

    def __init__(self, core: Core, writer: str, number: int) -> None:
        self._core, self._writer, self._number = core, writer, number
        self._token, self._at = segments.new_token(), 0
        self._in_cluster = False

    @property
    def end(self) -> str:
        """What a script looks for that goes on only where the store has all notes; "" in a cluster."""
        return "" if self._in_cluster or not self._at else f"{self._token} {self._at}"

    def follow(self, operation: Operation[_T]) -> Operation[_T]:
        """Runs an operation, and notes how far it has come. Raises Forgotten."""
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
            result: _T = ended.value
            return result
        finally:
            operation.close()

    def begin(self) -> Operation[None]:
        """Notes something, so that `end` tells whether there is a trail. For who is followed."""
        if not self._at:
            yield [command("EXISTS", keys.commits(self._core.config.name, self._writer))]

    def _send(self, requests: Sequence[Request]) -> Operation[list[Reply]]:
        if not requests:
            return (yield [])
        begun = self._at
        before = [self._note(more=1)] if len(requests) > _ONE_FLIGHT else []
        sent = [self._guarded(one) for one in requests] if begun and not self._in_cluster else requests
        after = self._note()
        try:
            replies = yield [*before, *sent, after]
        except AckerError:
            self._at = begun  # it may not have been noted
            raise
        if 0 in (replies[-1], *replies[: len(before)]):
            raise Forgotten
        self._in_cluster = replies[-1] is None
        own = replies[len(before) : -1]
        return [
            reply if one is asked else _reply(asked, reply)
            for asked, one, reply in zip(requests, sent, own, strict=True)
        ]

    def _note(self, more: int = 0) -> Request:
        self._at += 1
        own = self._writer, self._number, self._token, self._at
        return scripts.note_trail(self._core.config, *own, more)

    def _guarded(self, request: Request) -> Request:
        """The same as a request that runs only where the trail is there, if it can be."""
        if request.script is None and request.args == ("UNLINK", request.key):
            request = scripts.unlink([request.key])
        script = request.script
        if script is None or script.reads or not script.chained:
            return request
        own = self._writer, self._number, self._token, self._at
        return chain([scripts.check_trail(self._core.config, *own), request])


def _reply(asked: Request, replies: Reply) -> Reply:
    """What a request that was guarded is answered, or raises."""
    if isinstance(replies, Exception):
        return replies
    if not replies or len(replies) < 2:
        raise Forgotten
    reply = replies[1]
    if isinstance(reply, bytes) and reply.startswith(b"!"):
        reply = redis.ResponseError(reply[1:].decode("utf-8", "replace"))
        if refused(reply):
            raise refusal_of(asked, reply)
    return reply
