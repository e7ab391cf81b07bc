"""Calls that take effect once, however often they are sent (lua/ledger/includes/once.lua).

The idea is Kafka's idempotent producer: a call carries a stamp, its writer's id and its number for the shard,
and the shard remembers the last number of each writer, with its reply. A call is sent until it is answered,
and always with the same stamp.
"""

import time
from collections.abc import Sequence
from typing import TypeVar

import redis

from acker.errors import StoreError, WritersFull
from acker.ledger.calls.calls import Call, Submission, Writer, flight
from acker.ledger.calls.core import ATTEMPTS, Core
from acker.store.operation import Operation

T = TypeVar("T")

SENDING = 0.9
"""Share of the time that the store remembers a silent writer in which a call is sent."""


def send(core: Core, submission: Submission[T]) -> Operation[T]:
    """Sends a submission (`submit`); returns its result."""
    yield from submit(core, submission.calls)
    return submission.result()


def expired(core: Core, sent_at: float) -> bool:
    """True if the store may have forgotten a call that was first sent then (`time.monotonic`)."""
    return time.monotonic() - sent_at > SENDING * core.horizon


def submit(core: Core, calls: Sequence[Call]) -> Operation[None]:
    """Sends calls until each is answered, without calls that were answered before.

    After StoreUnavailable the same calls can be sent again, for nearly `Core.horizon` seconds. Raises
    StoreError after that, or if a shard refuses a call; WritersFull if a shard remembers no further writer.
    """
    taken: list[Writer] = []
    lanes: list[Writer] = []
    attempts = 0
    while sending := flight(calls):
        if any(call.stamp and call.reply is None and expired(core, call.sent_at) for call in calls):
            raise StoreError(
                "the call is too old to send again: the store may have forgotten it. Nothing was sent"
            )
        position: dict[int, int] = {}
        for call in sending:
            lane = position[call.shard] = position.get(call.shard, -1) + 1
            if call.stamp is None:
                while lane >= len(lanes):
                    lanes.append(core.writers.take())
                call.stamp = lanes[lane].id, lanes[lane].next(call.shard)
                call.sent_at = time.monotonic()
        full = ""
        refused = yield from _exchange(core, sending)
        refused += [(call, "WRITER has made further calls") for call in sending if call.reply == b""]
        for call, reason in refused:
            if reason.startswith("FULL"):
                full = reason
            elif reason.startswith("WRITER"):
                # The store's record of the writer is lost or damaged, and with it the record of its calls.
                call.stamp, call.reply = (Writer().id, 1), None
                taken, lanes = [], []
            elif reason:
                raise StoreError(reason)
        if full:
            # The shards know these writers: other calls can go on with them.
            waiting = {call.stamp[0] for call in calls if call.stamp and call.reply is None}
            for writer in taken + lanes:
                if writer.id not in waiting:
                    core.writers.give(writer)
            raise WritersFull(full.removeprefix("FULL "))
        if refused:
            # A refused call keeps its writer for itself: the next calls take others.
            taken, lanes = taken + lanes, []
            attempts += 1
        if attempts >= ATTEMPTS:
            raise StoreError(f"calls were refused {attempts} times: {refused!r:.500}")
    for writer in taken + lanes:
        core.writers.give(writer)


def _exchange(core: Core, calls: Sequence[Call]) -> Operation[list[tuple[Call, str]]]:
    """Sends stamped calls and takes their replies.

    Returns the refused calls, each with the shard's reason: "" if the shard has other spouts than the
    declared ones, which are noted.
    """
    requests = [core.request(call) for call in calls]
    replies = yield requests
    refused = []
    for call, request, reply in zip(calls, requests, replies, strict=True):
        if isinstance(reply, redis.ResponseError):
            refused.append((call, "" if core.note_spouts(call.shard, reply) else str(reply)))
            continue
        call.reply = bytes(reply) if isinstance(reply, (bytes, bytearray)) else str(reply).encode()
        if call.tracks and b"A" in call.reply.partition(b" ")[0]:
            core.note_tracked(call, bytes(request.args[0]))  # type: ignore[arg-type]
    return refused
