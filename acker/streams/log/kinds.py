"""Kinds of streams, and calls that make a stream or a subscription.

The rows of a managed stream are in the store, and external rows are elsewhere.

A client sends a call again where its reply was lost, and a copy may come at any later time. No late copy of a
call makes anew what was removed since: such a call carries how often the stream was removed as its caller has
seen it, and a time after which it is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acker.errors import AckerError, StreamKindError
from acker.ledger.calls.core import Core
from acker.ledger.settings import topologies
from acker.ledger.settings.topologies import ATTEMPTS, VALID
from acker.store import keys
from acker.store.keys import Stream
from acker.store.operation import Operation, Reply, Request, abreast, command
from acker.store.replies import milliseconds

FIELD = "external"
"""The field of a stream's subscriptions that only an external stream has."""


def kind_error(stream: str, kind: str) -> StreamKindError:
    """The error of a call that is for the other kind of stream. kind: the kind of this stream."""
    how = {
        "external": "Its rows are elsewhere: take them by topology.incoming, send them by topology.outgoing",
        "managed": "Its rows are in the store: read and write them like the rows of any managed stream",
    }
    asked = "managed" if kind == "external" else "external"
    return StreamKindError(
        f"stream {stream!r} is {kind}, and this call is for {asked} streams: nothing was written. {how[kind]}"
    )


def check_managed(core: Core, stream: str) -> Operation[None]:
    """Raises StreamKindError if a stream is external."""
    [found] = yield [command("HEXISTS", keys.Stream(core.config.name, stream).subscriptions, FIELD)]
    if found:
        raise kind_error(stream, "external")


def check(stream: str, field: Reply, kind: str) -> None:
    """Raises StreamKindError if a stream is not of a kind, as its `FIELD` says; "": of any."""
    if kind and (field is None) != (kind == "managed"):
        raise kind_error(stream, "managed" if kind == "external" else "external")


def check_claimed(stream: str, reply: Reply) -> None:
    """Raises StreamKindError if a claim was refused for the kind of its stream."""
    if str(reply) == "ACKER EXTERNAL":
        raise kind_error(stream, "external")


def open_rows(slot: int) -> str:
    """The counter of a shard: rows of external segments that a subscription has to work on (external.lua)."""
    return f"open:{slot}"


def forget_open_rows(core: Core, slot: int) -> list[Request]:
    """The requests that drop these counters of a subscription that is removed."""
    return [command("HDEL", shard.counters, open_rows(slot)) for shard in core.shards]


@dataclass(frozen=True, slots=True)
class Seen:
    """The removals of a stream as a caller has seen them, and the time (ms) until which its call counts."""

    removals: bytes
    until: int


def make_noted(core: Core, stream: str, call: Callable[[Seen], Request]) -> Operation[Reply]:
    """Does the work of `make`, and notes the stream among the streams of its topology."""
    making: list[Operation[Any]] = [
        make(keys.Stream(core.config.name, stream), call),
        core.name_stream(stream),
    ]
    reply, _ = yield from abreast(making)
    return reply


def make(stream: Stream, call: Callable[[Seen], Request]) -> Operation[Reply]:
    """Sends a call that makes something of a stream, again where something was removed meanwhile.

    Returns its reply, or raises AckerError after four removals.
    """
    for _ in range(ATTEMPTS):
        found, instant = yield [command("GET", stream.removals), Request(stream.removals, ["TIME"])]
        [reply] = yield [call(Seen(found or b"", milliseconds(instant) + 1000 * VALID))]
        if not topologies.is_late(reply):
            return reply
    raise AckerError(
        f"a stream was removed {ATTEMPTS} times while something of it was made: {stream.entries!r}"
    )
