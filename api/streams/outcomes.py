"""Outcomes of a spout as they come: a page that waits for the first of them, and a stream of events.

Nothing is kept here that outlives a connection, and nothing counts as delivered before it is confirmed.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from fastapi.sse import format_sse_event

from acker.errors import AckerError, UnknownSpout
from acker.inspect.trees import outcome_pages
from acker.inspect.trees.outcome_pages import EntryOutcomes, OutcomesPage
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.outcomes.outcomes import Confirmation
from api.models.answers import SpoutOutcomes
from api.service.service import Service
from api.streams.events import RETRY_MS
from api.streams.follow import PING_SECONDS
from api.streams.live import Live

AGAIN_SECONDS = 60.0
"""Seconds after which a stream tells again what is not confirmed; a message timeout where that is less."""
EVENT_SHARDS = 64
"""Most shards that the id of an event names."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_LOOK_SECONDS = 1.0
"""After so many seconds outcomes are looked at, also where their number is the same."""


async def page(
    live: Live,
    ledger: AsyncLedger,
    spout: str,
    *,
    limit: int,
    cursor: str | None,
    wait: float,
    gone: Callable[[], Awaitable[bool]],
) -> OutcomesPage:
    """A page of outcomes; the first waits for outcomes, up to `wait` seconds, unless its client is `gone`."""
    deadline, pause = time.monotonic() + wait, _FIRST_PAUSE
    while True:
        page = await ledger.run(outcome_pages.page(ledger.core, spout, limit=limit, cursor=cursor))
        left = deadline - time.monotonic()
        if page.outcomes or cursor is not None or left <= 0 or live.closed or await gone():
            return page
        await asyncio.sleep(min(pause, left))
        pause = min(_LONGEST_PAUSE, 2 * pause)


class Seen:
    """The entries that a stream has sent: they are not sent again, unless they are not confirmed for long.

    That they may is what makes up for all that an id cannot know: a store that lost its latest moments gives
    entries that nobody has seen ids from before the ones that were seen.
    """

    def __init__(self, last_event_id: str, again: float) -> None:
        self._began = time.monotonic()
        self._again = again
        self._before = _parsed(last_event_id)
        self._sent: dict[Confirmation, float] = {}
        self._there: dict[int, set[Confirmation]] = {}

    def begin(self) -> None:
        """Begins a reading. Entries that are gone by its end are forgotten."""
        self._there = {}

    def skip(self, confirmation: Confirmation) -> bool:
        """True if an entry is not sent now; of each shard only the oldest entries are."""
        entries = self._there.setdefault(confirmation.shard, set())
        if confirmation not in entries and len(entries) >= outcome_pages.WINDOW:
            return True
        entries.add(confirmation)
        if confirmation not in self._sent and _id(confirmation) <= self._before.get(
            confirmation.shard, (-1, 0)
        ):
            self._sent[confirmation] = self._began
        at = self._sent.get(confirmation)
        return at is not None and time.monotonic() < at + self._again

    def sent(self, confirmation: Confirmation) -> None:
        """Notes that all of an entry was sent."""
        self._sent[confirmation] = time.monotonic()

    def end(self) -> None:
        """Ends a reading of all entries."""
        self._sent = {
            confirmation: at
            for confirmation, at in self._sent.items()
            if confirmation in self._there.get(confirmation.shard, ())
        }

    @property
    def id(self) -> str:
        """The sent and unconfirmed entries, as far as an id names them: the last entry of each shard."""
        last: dict[int, tuple[int, int]] = {}
        for confirmation in self._sent:
            last[confirmation.shard] = max(_id(confirmation), last.get(confirmation.shard, (0, 0)))
        return ",".join(
            f"{shard}-{milliseconds}-{sequence}"
            for shard, (milliseconds, sequence) in list(last.items())[-EVENT_SHARDS:]
        )


async def follow(
    service: Service, live: Live, topology: str, spout: str, last_event_id: str
) -> AsyncGenerator[bytes]:
    """The outcomes of a spout that are not confirmed, then new ones. The first look may raise AckerError.

    It ends after `ACKER_STREAM_SECONDS`, when the service stops, when the store is away, and when the
    topology or the spout is removed.
    """
    deadline = time.monotonic() + service.settings.stream_seconds * random.SystemRandom().uniform(0.9, 1.0)
    spoke_at, pause = time.monotonic(), _FIRST_PAUSE
    reading = _Reading(service, topology, spout, last_event_id)
    await reading.begin()
    yield b": hello\n\n"
    while not live.closed and time.monotonic() < deadline:
        try:
            async for part in reading.look():
                yield part
                spoke_at, pause = time.monotonic(), _FIRST_PAUSE
        except AckerError:  # also if one is removed: a client that comes again gets the reason
            return
        if time.monotonic() - spoke_at >= PING_SECONDS:
            yield b": ping\n\n"
            spoke_at = time.monotonic()
        await asyncio.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)


class _Reading:
    """The position of a stream."""

    def __init__(self, service: Service, topology: str, spout: str, last_event_id: str) -> None:
        self._service, self._topology, self._spout = service, topology, spout
        self._last_event_id = last_event_id
        self._ledger: AsyncLedger | None = None
        self._counted: tuple[int, ...] = ()
        self._looked_at = 0.0

    async def begin(self) -> None:
        """Opens the topology, and counts outcomes once. Raises AckerError."""
        ledger = await self._open()
        await ledger.run(outcome_pages.lengths(ledger.core, self._spout))

    async def _open(self) -> AsyncLedger:
        ledger = await self._service.ledger(self._topology)
        if self._spout not in ledger.core.spouts:
            raise UnknownSpout(f"topology {self._topology!r} no longer has a spout {self._spout!r}")
        if self._ledger is None:
            again = min(AGAIN_SECONDS, ledger.config.message_timeout)
            self._seen = Seen(self._last_event_id, again)
        self._ledger, self._counted, self._looked_at = ledger, (), time.monotonic()
        return ledger

    async def look(self) -> AsyncIterator[bytes]:
        """Events of what is new, if anything is. Raises AckerError."""
        if self._ledger is None or time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            await self._open()
        assert self._ledger is not None
        counted = await self._ledger.run(outcome_pages.lengths(self._ledger.core, self._spout))
        if counted == self._counted:
            return
        async for outcomes in _unseen(self._ledger, self._spout, self._seen):
            if outcomes.last:
                self._seen.sent(outcomes.entry)
            yield event(outcomes, self._seen.id)
        self._counted = counted


async def _unseen(ledger: AsyncLedger, spout: str, seen: Seen) -> AsyncIterator[EntryOutcomes]:
    """Yields the outcomes of all shards that are to be sent now."""
    seen.begin()
    cursor = None
    while True:
        asked = outcome_pages.page(ledger.core, spout, cursor=cursor, skip=seen.skip)
        page = await ledger.run(asked)
        for one in page.outcomes:
            yield one
        cursor = page.cursor
        if cursor is None:
            break
    seen.end()


def event(outcomes: EntryOutcomes, last: str) -> bytes:
    """Trees that ended together, as an event."""
    return format_sse_event(
        event="outcomes",
        data_str=SpoutOutcomes.model_validate(outcomes).model_dump_json(),
        id=last or None,
        retry=RETRY_MS,
    )


def _parsed(last_event_id: str) -> dict[int, tuple[int, int]]:
    last = {}
    for part in last_event_id.split(",") if last_event_id else []:
        shard, milliseconds, sequence = map(int, part.split("-"))
        last[shard] = milliseconds, sequence
    return last


def _id(confirmation: Confirmation) -> tuple[int, int]:
    milliseconds, _, sequence = confirmation.id.partition(b"-")
    return int(milliseconds), int(sequence)
