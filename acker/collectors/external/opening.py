"""Opening external streams, as operations: `Topology` runs them, and `AsyncTopology`.

Terms: a slot is the random number of a subscription.
"""

import time
from typing import Any, NamedTuple

from acker.collectors.external import lingering
from acker.collectors.external.exchange import Exchange
from acker.collectors.external.outgoing import Outgoing
from acker.errors import ValidationError, shown
from acker.ledger.settings.config import check_name
from acker.store.operation import Operation
from acker.streams.log import subscriptions
from acker.streams.staging.external import declaring
from acker.streams.staging.external.bits import MOST_POSITIONS
from acker.streams.staging.external.rows.stamps import Seal
from acker.streams.staging.external.serving import Served


class Opened(NamedTuple):
    """A stream that is open for a subscription.

    Attributes:
        stream: The stream.
        subscription: The subscription's name.
        slot: Its number; None where nothing is tracked.
        seal: The keys of the stream; None where acker is turned off.
    """

    stream: str
    subscription: str
    slot: int | None = None
    seal: Seal | None = None


def open_incoming(
    exchange: Exchange,
    stream: str,
    subscription: str,
    step: str | None,
    shared: bool,
    linger: float | None = None,
    **options: Any,
) -> Operation[Opened]:
    """Opens a stream for a subscription; see `acker.Topology.incoming`."""
    check_name(subscription, "subscription")
    step = subscription if step is None else check_name(step, "step")
    if not isinstance(shared, bool):
        raise ValidationError(f"shared: expected True or False, got {shown(shared)}")
    lingering.check(linger)
    if exchange.off:
        return Opened(check_name(stream, "stream"), subscription)
    seal = yield from _open(exchange, stream, **options)
    core, slot = exchange.core, None
    if core.config.ackers:
        slot = yield from subscriptions.subscribe(core, stream, subscription, "external")
        exchange.streams[stream].seen[slot] = subscription
        yield from exchange.serve(Served(stream, slot, subscription, step), shared)
    if linger is not None:
        exchange.linger_for(linger)
    return Opened(stream, subscription, slot, seal)


def open_outgoing(
    exchange: Exchange, stream: str, segment_rows: int, linger: float | None = None, **options: Any
) -> Operation[Outgoing]:
    """Opens a stream to send to; see `acker.Topology.outgoing`."""
    if isinstance(segment_rows, bool) or not isinstance(segment_rows, int):
        raise ValidationError(f"segment_rows: expected a whole number, got {shown(segment_rows)}")
    if not 1 <= segment_rows <= MOST_POSITIONS:
        raise ValidationError(f"segment_rows: expected 1 to {MOST_POSITIONS:,}, got {segment_rows:,}")
    lingering.check(linger)
    if exchange.off:
        return Outgoing(exchange, check_name(stream, "stream"), None, segment_rows)
    seal = yield from _open(exchange, stream, sends=True, **options)
    yield from exchange.send_to(stream)
    if linger is not None:
        exchange.linger_for(linger)
    return Outgoing(exchange, stream, seal if exchange.core.config.ackers else None, segment_rows)


def _open(exchange: Exchange, stream: str, *, sends: bool = False, **options: Any) -> Operation[Seal]:
    check_name(stream, "stream")
    exchange.check()
    asked = time.monotonic()
    core = exchange.core
    external = yield from declaring.declare(core, stream, **options)
    exchange.note_time(external.now, asked)
    opened = exchange.streams.setdefault(stream, external)
    opened.seen.update(external.seen)
    sealed = external.stamp_keys.get(opened.number) == opened.stamp_keys[opened.number]
    if external.epoch != opened.epoch or (sends and not sealed):
        error = declaring.lost(stream)
        exchange.refuse(error)
        raise error
    # A sender goes on with the key that it knows: its flush names that key.
    return Seal(core.config.name, stream, external.stamp_keys, opened.number)
