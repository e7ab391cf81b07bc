"""Chunks: the scripts that one server runs as one for a commit (run.py), and what bounds them."""

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
"""About how many trees a chunk is about, at most: nobody else has a turn meanwhile."""
_SCRIPT_WEIGHT, _KEY_WEIGHT, _WORD_WEIGHT = 500, 60, 5
"""How many trees a script counts for whatever it does, and each key, and each word, of it at least."""
MOST_CHUNKS = 16
"""Chunks of a flight, at most."""

Replies: TypeAlias = list[Reply]
Then: TypeAlias = Callable[[Replies], Operation[None] | None]


@dataclass(slots=True)
class Step:
    """Requests that belong together, and what is to be done with their replies."""

    left: int
    then: Then | None = None
    stops: bool = False
    together: bool = False
    refused: bool = False
    """Whether one said no: nothing comes after it before `then` has seen that."""
    replies: Replies = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Member:
    """A script of a chunk.

    phase: it moves the commit there; to: the state in which it leaves the commit then.
    """

    what: Request | Call | None
    step: Step | None = None
    weight: int = 0
    phase: Phase = ""
    to: str = ""
    done: bool = False
    declared: bytes = b""
    of: "Member | None" = None
    """The one that waits, where this was made for a chunk."""

    @property
    def ends(self) -> bool:
        """Whether it ends the commit."""
        return self.phase == "done"

    def end(self) -> None:
        """Notes that it was run."""
        self.done = True
        if self.of is not None:
            self.of.done = True


@dataclass(slots=True)
class Room:
    """What a chunk has room for."""

    members: int = 1
    bytes: int = 0
    keys: int = 0
    weight: int = 0

    def takes(self, one: Member) -> bool:
        """Counts a member; returns whether there is room for it, as there is for the first."""
        first = self.members == 1
        self.members += 1
        weight = one.weight
        if one.what is not None:
            self.bytes += size_of(one.what)
            self.keys += len(one.what.keys)
            weight = max(weight, _KEY_WEIGHT * len(one.what.keys) + _WORD_WEIGHT * len(one.what.args))
        self.weight += _SCRIPT_WEIGHT + weight
        return first or not (
            self.members > MOST
            or self.bytes > MOST_BYTES
            or self.keys > MOST_KEYS
            or self.weight > MOST_WEIGHT
        )


def small(staging: Sequence[Request]) -> bool:
    """Whether so much can be staged with a commit: of the bytes of a chunk it has nearly all."""
    size = 0
    for one in staging:
        size += size_of(one)
        if size > MOST_BYTES - LEAST_VALUE_BYTES // 16:
            return False
    return len(staging) <= MOST


def request_of(core: Core, one: Member) -> Request:
    """What is sent for a member."""
    assert one.what is not None
    if not isinstance(one.what, Call):
        return one.what
    request = core.request(one.what)
    one.declared = bytes(request.args[0])  # type: ignore[arg-type]
    return request


def reply_to(one: Member, reply: Reply) -> Reply:
    """The reply to a script of a chain: an error of it stands there as text.

    Raises what nobody has a name for.
    """
    if isinstance(reply, bytes) and reply.startswith(b"!"):
        reply = redis.ResponseError(reply[1:].decode("utf-8", "replace"))
        if refused(reply):
            assert one.what is not None
            raise refusal_of(Request(b"", (), one.what.script), reply)
    return reply


def size_of(what: Request | Call) -> int:
    """How many bytes of arguments there are."""
    return sum(len(word) for word in what.args if isinstance(word, bytes | str))


def each(take: Callable[[Reply], object]) -> Then:
    """Takes the replies one by one."""

    def then(replies: Sequence[Reply]) -> None:
        for reply in replies:
            take(reply)

    return then


def unless(says_yes: Callable[[Reply], bool], error: Exception | type[Exception]) -> Then:
    """Raises an error where a reply does not say yes."""

    def check(reply: Reply) -> None:
        if not says_yes(reply):
            raise error

    return each(check)
