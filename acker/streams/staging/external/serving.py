"""Steps that serve a subscription of an external stream, each for as long as its heartbeat lasts.

Every reader of a topic has all rows. Two steps under one subscription would ack for each other: a record
would be done when one of them has worked on its rows. So a step registers when it opens its stream, and with
its flushes. Several processes of one step have one name.

A subscription without a live step may get another name. All that it owes and has received goes by its number,
which stays; a step that goes on under the earlier name is refused by its next heartbeat.

Terms: a slot is the random number of a subscription.
"""

from functools import partial
from typing import NamedTuple

import redis

from acker.errors import SubscriptionInUse, UnknownSubscription
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.ledger.steps.registration import SECONDS
from acker.store import keys
from acker.store.operation import Operation
from acker.streams.log import kinds
from acker.streams.log.heartbeats import MISSED
from acker.streams.staging.external import scripts

LEASE = MISSED * SECONDS
"""Seconds from a step's last heartbeat to the time at which it counts as ended."""
MOST = 64
"""Steps that serve one subscription at most."""


class Served(NamedTuple):
    """A subscription that a step of this process serves."""

    stream: str
    slot: int
    subscription: str
    step: str


def serve(
    core: Core, stream: str, slot: int, subscription: str, step: str, *, shared: bool
) -> Operation[None]:
    """Registers a heartbeat of a step.

    Args:
        core: The topology.
        stream: The stream.
        slot: The subscription's number.
        subscription: Its name, as the step knows it.
        step: The step.
        shared: True if other steps may serve the subscription that say so, too.

    Raises:
        SubscriptionInUse: A live step of another name serves it, and one of both does not share it.
        UnknownSubscription: It was given another name.
        ValidationError: The step's name is not valid.
    """
    check_name(step, "step")
    stream_keys = keys.Stream(core.config.name, stream)
    [reply] = yield [scripts.serve(stream_keys, slot, subscription, step, shared, round(LEASE * 1000), MOST)]
    if isinstance(reply, redis.ResponseError):
        what, *told = str(reply).removeprefix("ACKER ").split()
        if what == "RENAMED":
            raise UnknownSubscription(
                f"subscription {subscription!r} of stream {stream!r} has the name {told[0]!r} now: start the "
                "process again under that name, from its committed offsets"
            )
        other, left = told
        raise SubscriptionInUse(
            f"subscription {subscription!r} of stream {stream!r} is served by step {other!r}, and step "
            f"{step!r} would ack its rows, too: this call has sent nothing. Give each step a subscription of "
            f"its own, or let both say shared=True. If step {other!r} has ended, try again in "
            f"{int(left) / 1000:.0f} s"
        )


def rename(core: Core, stream: str, name: str, new: str) -> Operation[int]:
    """Gives a subscription another name.

    Args:
        core: The topology.
        stream: The stream.
        name: The subscription's name.
        new: Its new name.

    Returns:
        Its number.

    Raises:
        StreamKindError: The stream is managed.
        UnknownSubscription: It has no such subscription.
        SubscriptionInUse: A live step serves it, or the stream has a subscription of the new name. Nothing
            has changed.
        ValidationError: A name is not valid.
    """
    check_name(stream, "stream")
    check_name(name, "subscription")
    check_name(new, "new name")
    stream_keys = keys.Stream(core.config.name, stream)
    reply = yield from kinds.make(
        stream_keys, partial(scripts.rename_subscription, core.config, stream_keys, name, new)
    )
    if not isinstance(reply, redis.ResponseError):
        return int(reply)
    refusal, _, rest = str(reply).removeprefix("ACKER ").partition(" ")
    if refusal == "MANAGED":
        raise kinds.kind_error(stream, "managed")
    if refusal == "MISSING":
        raise UnknownSubscription(f"stream {stream!r} has no subscription {name!r}")
    if refusal == "TAKEN":
        raise SubscriptionInUse(
            f"stream {stream!r} has a subscription {new!r} already: {name!r} keeps its name. Choose another "
            "one"
        )
    step, left = rest.split()
    raise SubscriptionInUse(
        f"subscription {name!r} of stream {stream!r} is served by step {step!r}: it keeps its name. Stop the "
        f"step, and try again {int(left) / 1000:.0f} s after its end"
    )
