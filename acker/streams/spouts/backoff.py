"""Backoff: an outcome whose rows are to be tried again waits, unconfirmed, until its time has come.

So it waits in the store like any outcome, and counts as pending and held. The outcome alone determines the
time: all processes compute the same.
"""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence

from acker.ledger.calls.core import Core
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader
from acker.store.operation import Operation
from acker.streams.sources.kept_rows import KeptSlab, kept_slabs, slabs_of
from acker.streams.sources.rereads import KnownStates
from acker.streams.sources.spout_options import SpoutOptions

_FRACTION = 2**64
_LOOKS = 5_000
_LONGEST = 60.0


class SettleProgress:
    """The position of a reading of a spout's outcomes, so that waiting outcomes are not read at each look.

    The reading begins with the oldest again when the first passed outcome is due, or a step was not finished.
    5,000 passed outcomes delay that by a second, and it never takes more than a minute. For one thread. It
    remembers an id of each waiting outcome.

    Attributes:
        ended: True if all existing outcomes have been read.
        states: The states of kept ids that were read, so that ids that wait are not read at each look.
    """

    def __init__(self, core: Core, spout: str) -> None:
        self.core = core
        self.reader = OutcomeReader(core, spout)
        self.ended = False
        self.states = KnownStates()
        self._open = False
        self._before = self.reader.offset
        self._started, self._passed, self._soonest = 0.0, 0, math.inf

    def begin(self) -> None:
        """Begins a step."""
        if self._open or not self._passed or time.monotonic() >= self._again():
            self.reader.begin_again(range(len(self.core.shards)))
            self.states.turn()
            self._begin()
        self._open, self.ended = True, False

    def read(self) -> Operation[list[Entry]]:
        """The next outcomes."""
        self._before = self.reader.offset
        return (yield from self.reader.read())

    def put_back(self) -> None:
        """Makes the next reading begin with the outcomes that were read last."""
        self.reader.offset = self._before

    def passed(self, count: int, wait: float) -> None:
        """Notes that so many outcomes wait, the first of them for so many seconds."""
        if count:
            self._passed += count
            self._soonest = min(self._soonest, time.monotonic() + wait)

    def finish(self, settled: Sequence[Entry]) -> None:
        """Ends a step, which has settled these outcomes."""
        self.reader.confirmed(entry.confirmation for entry in settled)
        self._open = False

    @property
    def more(self) -> bool:
        """True if a further step finds outcomes that this reading has not reached."""
        return not self._open and not self.ended

    def _begin(self) -> None:
        self._started, self._passed, self._soonest = time.monotonic(), 0, math.inf

    def _again(self) -> float:
        return min(max(self._soonest, self._started + self._passed / _LOOKS), self._started + _LONGEST)


def delay(options: SpoutOptions, number: int, entry: Entry) -> float:
    """Seconds from the outcome of an attempt to the next: at random, and the same in all processes."""
    if not options.backoff:
        return 0.0
    digest = hashlib.sha1(
        b"%d %s" % (entry.confirmation.shard, entry.confirmation.id), usedforsecurity=False
    ).digest()
    return wait(options.backoff, options.max_backoff, number, int.from_bytes(digest[:8], "big") / _FRACTION)


def wait(backoff: float, longest: float, failures: int, share: float) -> float:
    """Seconds until the attempt after `failures` (1 or more): doubled by each. share: 0 to 1, of its half."""
    return min(longest, backoff * 2.0 ** min(failures - 1, 64)) * (0.5 + share / 2)


def due(entries: Sequence[Entry], by_slab: Mapping[bytes, KeptSlab], now: float) -> tuple[list[Entry], float]:
    """Selects the entries of outcomes that are due for a replay at `now` (Unix seconds).

    Without backoff all are due. The records of an entry are replayed together, after the longest of their
    waits.

    Returns:
        The entries that are due, and the seconds until the next one is; 0 if none waits.
    """
    times = {entry.confirmation: _at(entry, by_slab) for entry in entries}
    soonest = min((at for at in times.values() if at > now), default=now)
    return [entry for entry in entries if times[entry.confirmation] <= now], soonest - now


def overdue(core: Core, spout: str, entries: Sequence[Entry], now: float) -> Operation[float]:
    """Seconds since the first of these entries was due, at `now` (Unix seconds); 0 if each still waits."""
    known = yield from kept_slabs(core, spout, slabs_of(entries))
    return max([0.0, *(now - (_at(entry, known) or entry.at) for entry in entries)])


def _at(entry: Entry, by_slab: Mapping[bytes, KeptSlab]) -> float:
    """The time of the next attempt of an entry's rows (Unix seconds); 0 if it need not wait."""
    waits = [
        delay(place.roots.how, place.roots.number, entry)
        for outcome in entry.slabs
        if (place := by_slab.get(outcome.slab)) is not None
        and place.roots.how.backoff
        and place.fate(entry, outcome) == "replayed"
    ]
    longest = max(waits, default=0.0)
    return entry.at + longest if longest else 0.0
