"""A stream of live events: first the events that were missed, then the new ones, until its time is over."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator

from acker.inspect.topology import history
from acker.inspect.topology.history import STEPS, WINDOWS, Reading
from acker.inspect.trees import failures
from acker.inspect.trees.failure import Failure
from acker.ledger.async_ledger import AsyncLedger
from api.streams.events import Frame
from api.streams.live import Live, frames

MISSED = 200
"""Most outcomes that were missed and are reported one by one."""
PING_SECONDS = 10.0
"""Seconds of silence after which a stream says that it lives."""
_PAGES = 20


async def follow(live: Live, ledger: AsyncLedger, after: int | None, seconds: float) -> AsyncGenerator[bytes]:
    """Events of a topology: those after the time `after` (ms) first, or only the newest sample.

    It ends after about `seconds`, when the client does not keep up, or when the service stops.
    """
    name = ledger.config.name
    # Streams that began together are not to end together.
    deadline = time.monotonic() + seconds * random.SystemRandom().uniform(0.9, 1.0)
    subscriber = await live.subscribe(ledger)
    try:
        if after is not None and not await _reached(ledger, after):
            after = None
        missed = await _missed(live, ledger, after)
        yield b": hello\n\n" + b"".join(part.data for part in missed)
        seen = missed[-1].at if missed else after or 0
        while (left := deadline - time.monotonic()) > 0:
            try:
                new = await asyncio.wait_for(subscriber.queue.get(), min(left, PING_SECONDS))
            except TimeoutError:
                yield b": ping\n\n"
                continue
            if new is None:
                return
            if new.at > seen:
                yield new.data
    finally:
        live.unsubscribe(name, subscriber)


async def _reached(ledger: AsyncLedger, at: int) -> bool:
    """True if the history has reached a time. It has not if the store was rolled back or replaced."""
    latest = await ledger.run(history.latest(ledger.core, 1))
    return not latest or latest[0].at >= at


async def _missed(live: Live, ledger: AsyncLedger, after: int | None) -> list[Frame]:
    """Returns the first events of a stream."""
    if after is None:
        readings = await ledger.run(history.latest(ledger.core, 2))
        return frames(await live.health(ledger), readings, [], 0, 0) if len(readings) == 2 else []
    before_reading = await _known_at(ledger, after)
    readings = await ledger.run(history.after(ledger.core, after))
    if not readings:
        return []
    before = before_reading or Reading(readings[0].at - 1)
    trees = await _trees_between(ledger, after, readings[-1].at)
    counts = Counter(tree.status for tree in trees)
    failed = expired = 0
    if len(trees) == MISSED:  # then there may be more
        failed, expired = (
            int(readings[-1].value(status) - before.value(status)) - counts[status]
            for status in ("failed", "expired")
        )
    return frames(await live.health(ledger), [before, *readings], trees, failed, expired)


async def _known_at(ledger: AsyncLedger, at: int) -> Reading | None:
    """The last reading up to a time, of the finest step that goes back so far."""
    for window in WINDOWS:
        found = await ledger.run(history.before(ledger.core, at, STEPS[window]))
        if found is not None:
            return found
    return None


async def _trees_between(ledger: AsyncLedger, start: int, end: int) -> list[Failure]:
    """The latest trees that ended after `start` and up to `end` (ms), oldest first, `MISSED` at most."""
    trees: list[Failure] = []
    cursor = None
    for _ in range(_PAGES):
        page = await ledger.run(failures.page(ledger.core, limit=MISSED, cursor=cursor))
        trees += [tree for tree in page.trees if start < round(tree.at * 1000) <= end]
        cursor = page.cursor
        if cursor is None or len(trees) >= MISSED or (page.trees and page.trees[-1].at * 1000 <= start):
            break
    return trees[MISSED - 1 :: -1] if len(trees) >= MISSED else trees[::-1]
