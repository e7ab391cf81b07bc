"""Chunks: the scripts of a commit that one server runs as one (run.py), and their limits.

Terms: a tree is all that comes of one record; a vector has a number for each tree, the XOR of tuple ids.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import redis

from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.store.flight import LEAST_VALUE_BYTES, refusal_of, refused
from acker.store.operation import Operation, Reply, Request
from acker.streams.commits.record import Phase

MOST = 128
"""Scripts that a server runs as one, at most."""
MOST_BYTES = 1 << 20
MOST_KEYS = 8_000
MOST_WEIGHT = 50_000
"""Weight of a chunk, at most, because nobody else has a turn meanwhile: 5 ms where `benchmarks.held` was run.

The unit is a tenth of a microsecond: a tree of a long vector takes it that is emitted or acked.
"""
_SCRIPT_WEIGHT, _KEY_WEIGHT, _WORD_WEIGHT = 300, 20, 5
"""The weight of each script, and of each of its keys and words at least."""
MOST_CHUNKS = 16
"""Chunks of a flight, at most."""

Replies: TypeAlias = list[Reply]
Then: TypeAlias = Callable[[Replies], Operation[None] | None]


@dataclass(slots=True)
class Step:
    """Requests that belong together, and a callback for their replies."""

    left: int
    then: Then | None = None
    stops: bool = False
    together: bool = False
    refused: bool = False
    """True if a request was refused: nothing after it is sent before `then` has seen that."""
    replies: Replies = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Member:
    """A script of a chunk.

    Attributes:
        phase: The phase to which the script moves the commit, "" if to none.
        to: The state in which the script leaves the commit.
    """

    request: Request | Call | None
    step: Step | None = None
    weight: int = 0
    phase: Phase = ""
    to: str = ""
    done: bool = False
    declared: bytes = b""
    of: "Member | None" = None
    """The waiting member from which this member of a chunk was made."""

    @property
    def ends(self) -> bool:
        """True if the script ends the commit."""
        return self.phase == "complete"

    def end(self) -> None:
        """Marks the script as run."""
        self.done = True
        if self.of is not None:
            self.of.done = True


@dataclass(slots=True)
class Room:
    """The size of a chunk so far, against its limits."""

    members: int = 1
    bytes: int = 0
    keys: int = 0
    weight: int = 0

    def takes(self, member: Member) -> bool:
        """Counts a member; returns True if there is room for it. There always is for the first."""
        first = self.members == 1
        self.members += 1
        weight = member.weight
        if member.request is not None:
            self.bytes += size_of(member.request)
            self.keys += len(member.request.keys)
            weight = max(
                weight, _KEY_WEIGHT * len(member.request.keys) + _WORD_WEIGHT * len(member.request.args)
            )
        self.weight += _SCRIPT_WEIGHT + weight
        return first or not (
            self.members > MOST
            or self.bytes > MOST_BYTES
            or self.keys > MOST_KEYS
            or self.weight > MOST_WEIGHT
        )


def small(staging: Sequence[Request]) -> bool:
    """Return True if the requests fit into one chunk with the commit that they stage for."""
    size = 0
    for request in staging:
        size += size_of(request)
        if size > MOST_BYTES - LEAST_VALUE_BYTES // 16:
            return False
    return len(staging) <= MOST


def request_of(core: Core, member: Member) -> Request:
    """The request that carries out a member."""
    assert member.request is not None
    if not isinstance(member.request, Call):
        return member.request
    request = core.request(member.request)
    member.declared = bytes(request.args[0])  # type: ignore[arg-type]
    return request


def reply_to(member: Member, reply: Reply) -> Reply:
    """The reply to a script of a chain, in which an error stands as text. Raises errors that have no name."""
    if isinstance(reply, bytes) and reply.startswith(b"!"):
        reply = redis.ResponseError(reply[1:].decode("utf-8", "replace"))
        if refused(reply):
            assert member.request is not None
            raise refusal_of(Request(b"", (), member.request.script), reply)
    return reply


def size_of(request: Request | Call) -> int:
    """The bytes of a request's arguments."""
    return sum(len(word) for word in request.args if isinstance(word, bytes | str))


def each(take: Callable[[Reply], object]) -> Then:
    """Makes a callback that takes the replies one by one."""

    def then(replies: Sequence[Reply]) -> None:
        for reply in replies:
            take(reply)

    return then


def unless(says_yes: Callable[[Reply], bool], error: Exception | type[Exception]) -> Then:
    """Makes a callback that raises an error unless each reply satisfies a condition."""

    def check(reply: Reply) -> None:
        if not says_yes(reply):
            raise error

    return each(check)


def handle(then: Then | None, replies: Replies) -> Operation[None]:
    """Does what replies ask for."""
    asked = then(replies) if then is not None else None
    if asked is not None:
        yield from asked


def in_cluster(core: Core, requests: Sequence[Request | Call]) -> Operation[Replies]:
    """The replies of a cluster: calls are asked as `Core.ask` does."""
    calls = [request for request in requests if isinstance(request, Call)]
    if len(calls) == len(requests):
        return (yield from core.ask(calls))
    assert not calls
    return (yield [request for request in requests if isinstance(request, Request)])
