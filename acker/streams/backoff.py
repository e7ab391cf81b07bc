"""Backoff: an outcome whose rows are to be tried again waits, unconfirmed, until its time has come.

So what waits is in the store as any outcome is, and counts as pending and held. How long is told by the
outcome alone: all processes find the same time.
"""

import hashlib
from collections.abc import Mapping, Sequence

from acker import keys
from acker.operations import Core
from acker.outcomes import Entry
from acker.requests import Operation, Request
from acker.streams.kept import Place, places, slabs_of
from acker.streams.roots import Tracking

_FRACTION = 2**64


def delay(how: Tracking, number: int, entry: Entry) -> float:
    """Seconds from the outcome of an attempt to the next: half of what is doubled each time, or up to all."""
    if not how.backoff:
        return 0.0
    most = min(how.max_backoff, how.backoff * 2.0 ** min(number - 1, 64))
    digest = hashlib.sha1(b"%d %s" % (entry.place.shard, entry.place.id), usedforsecurity=False).digest()
    return most * (0.5 + int.from_bytes(digest[:8], "big") / _FRACTION / 2)


def due(
    core: Core, spout: str, entries: Sequence[Entry], known: Mapping[bytes, Place]
) -> Operation[list[Entry]]:
    """The entries whose time has come, by the store's clock: all of a spout without backoff.

    Trees that ended together wait together, for the longest that one of them has to.
    """
    times = {entry.place: _at(entry, known) for entry in entries}
    if not any(times.values()):
        return list(entries)
    [(seconds, micros)] = yield [Request(keys.Spout(core.config.name, spout).kept, ["TIME"])]
    now = int(seconds) + int(micros) / 1e6
    return [entry for entry in entries if times[entry.place] <= now]


def overdue(core: Core, spout: str, entries: Sequence[Entry], now: float) -> Operation[float]:
    """Seconds since the first of these entries was due, at `now` (Unix seconds); 0 where each waits still."""
    known = yield from places(core, spout, slabs_of(entries))
    return max([0.0, *(now - (_at(entry, known) or entry.at) for entry in entries)])


def _at(entry: Entry, known: Mapping[bytes, Place]) -> float:
    """When the next attempt of an entry's rows is due (Unix seconds); 0 where it need not wait."""
    waits = [
        delay(place.roots.how, place.roots.number, entry)
        for told in entry.slabs
        if (place := known.get(told.slab)) is not None and place.fate(entry) == "replayed"
    ]
    longest = max(waits, default=0.0)
    return entry.at + longest if longest else 0.0
