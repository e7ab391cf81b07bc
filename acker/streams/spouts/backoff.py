"""Backoff: an outcome whose rows are to be tried again waits, unconfirmed, until its time has come.

So what waits is in the store as any outcome is, and counts as pending and held. How long is said by the
outcome alone: all processes find the same time.
"""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence

from acker.ledger.calls.core import Core
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader
from acker.store import keys
from acker.store.operation import Operation, Request
from acker.store.replies import seconds
from acker.streams.sources.kept_rows import KeptSlab, kept_slabs, slabs_of
from acker.streams.sources.spout_options import SpoutOptions

_FRACTION = 2**64
_LOOKS = 5_000
_LONGEST = 60.0


class SettleProgress:
    """Where a reading of a spout's outcomes has come to, so that what waits is not read at each look.

    It begins with the oldest again when the first one that it has passed is due, though 5,000 of them
    take a second and more than a minute is never waited; and where a step was not finished. ended: whether
    all there was has been read. For one thread. It remembers an id of each outcome that waits.
    """

    def __init__(self, core: Core, spout: str) -> None:
        self.core = core
        self.reader = OutcomeReader(core, spout)
        self.ended = False
        self._open = False
        self._started, self._passed, self._soonest = 0.0, 0, math.inf

    def begin(self) -> None:
        """Begins a step."""
        if self._open or not self._passed or time.monotonic() >= self._again():
            self.reader.begin_again(range(len(self.core.shards)))
            self._begin()
        self._open, self.ended = True, False

    def passed(self, count: int, wait: float) -> None:
        """Notes that so many outcomes wait, the first of them so many seconds."""
        if count:
            self._passed += count
            self._soonest = min(self._soonest, time.monotonic() + wait)

    def finish(self, settled: Sequence[Entry]) -> None:
        """Ends a step, which has settled these."""
        self.reader.confirmed(entry.receipt for entry in settled)
        self._open = False

    @property
    def more(self) -> bool:
        """Whether a further step finds outcomes that this reading has not come to."""
        return not self._open and not self.ended

    def _begin(self) -> None:
        self._started, self._passed, self._soonest = time.monotonic(), 0, math.inf

    def _again(self) -> float:
        return min(max(self._soonest, self._started + self._passed / _LOOKS), self._started + _LONGEST)


def delay(how: SpoutOptions, number: int, entry: Entry) -> float:
    """Seconds from the outcome of an attempt to the next: half of what is doubled each time, or up to all."""
    if not how.backoff:
        return 0.0
    most = min(how.max_backoff, how.backoff * 2.0 ** min(number - 1, 64))
    digest = hashlib.sha1(b"%d %s" % (entry.receipt.shard, entry.receipt.id), usedforsecurity=False).digest()
    return most * (0.5 + int.from_bytes(digest[:8], "big") / _FRACTION / 2)


def due(
    core: Core, spout: str, entries: Sequence[Entry], known: Mapping[bytes, KeptSlab]
) -> Operation[tuple[list[Entry], float]]:
    """The entries whose time has come, by the store's clock: all of a spout without backoff.

    The number is that of the seconds until the first of the others is due. Trees that ended together wait
    together, for the longest that one of them has to.
    """
    times = {entry.receipt: _at(entry, known) for entry in entries}
    if not any(times.values()):
        return list(entries), 0.0
    [instant] = yield [Request(keys.Spout(core.config.name, spout).kept, ["TIME"])]
    now = seconds(instant)
    soonest = min((at for at in times.values() if at > now), default=now)
    return [entry for entry in entries if times[entry.receipt] <= now], soonest - now


def overdue(core: Core, spout: str, entries: Sequence[Entry], now: float) -> Operation[float]:
    """Seconds since the first of these entries was due, at `now` (Unix seconds); 0 where each waits still."""
    known = yield from kept_slabs(core, spout, slabs_of(entries))
    return max([0.0, *(now - (_at(entry, known) or entry.at) for entry in entries)])


def _at(entry: Entry, known: Mapping[bytes, KeptSlab]) -> float:
    """When the next attempt of an entry's rows is due (Unix seconds); 0 where it need not wait."""
    waits = [
        delay(place.roots.how, place.roots.number, entry)
        for outcome in entry.slabs
        if (place := known.get(outcome.slab)) is not None
        and place.roots.how.backoff
        and place.fate(entry, outcome) == "replayed"
    ]
    longest = max(waits, default=0.0)
    return entry.at + longest if longest else 0.0
