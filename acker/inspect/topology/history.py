"""The history of a topology: readings of its exact counters, kept in streams of four steps.

A reading is cumulative, as the counters are: what happened between two readings is their difference, however
far apart they are. So nothing is lost while no service runs, the points of a series add up to its totals, and
coarser streams need no summing. One reader at a time has the turn to write, however many services run.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import logging
import math
import secrets
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from acker.inspect import scripts
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import latency_histogram
from acker.ledger.outcomes.counts import COUNTERS, Counter
from acker.ledger.trees.buckets import BUCKETS, HOLDING, Clock
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import milliseconds, whole

Window: TypeAlias = Literal["10m", "3h", "1d", "all"]
WINDOWS: tuple[Window, ...] = get_args(Window)

SECONDS: Mapping[Window, int] = {"10m": 600, "3h": 3 * 3600, "1d": 86_400, "all": 30 * 86_400}
"""The length of each window."""
STEPS: Mapping[Window, int] = {"10m": 1, "3h": 10, "1d": 60, "all": 600}
"""Seconds between the readings that are kept for each window."""

MOST_POINTS = 1_500
"""Most points of a range."""

GAUGES = (*BUCKETS, "waiting", "outstanding", "backlog", "high_water_use", "rotation_age")
"""The gauges of a reading, beside `COUNTED`.

Pending trees by bucket, waiting slabs, outstanding trees, rotations that are not drained, the fill of the
fullest shard (1.0: full), and the longest time in seconds since a shard's last rotation (-1: none was used).
"""
_EMITTED = "Tuples emitted: by collectors, and rows into streams, once for each subscription."
COUNTED = COUNTERS | {"emitted": Counter("tuples", _EMITTED)}
"""The counts of a history: the counters of the ledger, and tuples."""
COLUMNS = (*COUNTED, *GAUGES)

_log = logging.getLogger(__name__)
_TURN_MS = 5_000
_PAGE = 1_000
VERSION = 1
HEAD = struct.Struct(f"<BB{len(COLUMNS)}d")
"""The head of a reading: its version, the number of latency buckets, `COLUMNS`.

The numbers of the buckets follow, a byte each, and their counts, 8 bytes each.
"""


class Reading(NamedTuple):
    """A reading: its time (ms, by the store's clock), and its values, packed (series.py unpacks many).

    packed: empty for the reading that stands for the time before the history, with all values zero.
    """

    at: int
    packed: bytes = b""

    @property
    def first(self) -> bool:
        """True if the reading stands for the time before the history began."""
        return not self.packed

    def value(self, column: str) -> float:
        """The value of one of `COLUMNS`."""
        if self.first:
            return 0.0
        found: float = HEAD.unpack_from(self.packed)[2 + COLUMNS.index(column)]
        return found


def record(core: Core) -> Operation[int | None]:
    """Reads all counters of a topology and writes them to its history, if no other process has the turn.

    Returns the time, in ms by the store's clock; None if another process has the turn, tracking is off, or
    the topology is gone.
    """
    if not core.config.ackers:
        return None
    turn, writer = keys.turn(core.config.name), secrets.token_hex(8)
    # The turn comes before the reading, so no reading is written after one that was begun later.
    [before] = yield [command("SET", turn, writer, "NX", "PX", _TURN_MS, "GET")]
    if before not in (None, writer.encode()):  # its own where the call was sent again
        return None
    values, latencies = yield from read(core)
    kept = {STEPS[window]: SECONDS[window] // STEPS[window] + 1 for window in WINDOWS}
    [at] = yield [scripts.record_history(core.config.name, writer, pack(values, latencies), kept)]
    return int(at) or None


def window(
    core: Core, name: Window, step: int = 1, cache: dict[Window, list[Reading]] | None = None
) -> Operation[list[Reading]]:
    """Returns the readings of a window, oldest first, with `step` seconds or more between them.

    Before them comes the last reading before the window, if there is one; after them the newest of all.
    cache: keeps the readings for the next call, which reads only new ones. It is some MB when full.
    """
    finest = keys.history(core.config.name, STEPS["10m"])
    [newest] = yield [command("XREVRANGE", finest, "+", "-", "COUNT", 1)]
    readings = yield from _kept(core, name, cache.get(name, []) if cache else [])
    if cache is not None:
        cache[name] = readings
    if not readings:
        return []
    newest = [reading for reading in _parse(newest) if reading.at > readings[-1].at]
    return _thinned(readings + newest, step)


class Range(NamedTuple):
    """A range of the history: the window that holds it, the seconds between its points, and its readings."""

    window: Window
    step: int
    readings: list[Reading]


def span(
    core: Core,
    seconds: float,
    until: float | None = None,
    step: int = 1,
    cache: dict[Window, list[Reading]] | None = None,
) -> Operation[Range]:
    """Reads a range of the history from the finest window that holds it, `MOST_POINTS` points or fewer.

    Args:
        core: The topology.
        seconds: The length of the range.
        until: Its end (Unix seconds, by the store's clock); by default the present.
        step: Least seconds between two readings.
        cache: As of `window`.
    """
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    now = milliseconds(instant)
    end = now if until is None else min(now, int(1000 * until))
    start = end - int(1000 * seconds)
    name = next((one for one in WINDOWS if 1000 * SECONDS[one] >= now - start), WINDOWS[-1])
    step = max(step, STEPS[name], math.ceil(seconds / MOST_POINTS))
    readings = yield from window(core, name, cache=cache)
    first = bisect_left(readings, start, key=lambda reading: reading.at)
    last = bisect_right(readings, end, key=lambda reading: reading.at)
    return Range(name, step, _thinned(readings[max(0, first - 1) : last], step))


def _thinned(readings: list[Reading], step: int) -> list[Reading]:
    """Returns the first, the last, and of each `step` seconds in between the last reading."""
    slots = np.array([reading.at for reading in readings]) // (step * 1000)
    return list(compress(readings, [True, *(slots[1:-1] != slots[2:]).tolist(), True]))


def _kept(core: Core, name: Window, cached: list[Reading]) -> Operation[list[Reading]]:
    """Returns all readings of a window, after the last one before it. cached: earlier readings."""
    stream = keys.history(core.config.name, STEPS[name])
    last = f"{cached[-1].at}-0" if cached else "0-0"
    instant, same = yield [Request(stream, ["TIME"]), command("XRANGE", stream, last, last)]
    start = int(instant[0]) * 1000 - SECONDS[name] * 1000
    if not cached or _parse(same) != cached[-1:]:  # the store lost it, or it is of another topology
        [entries] = yield [command("XREVRANGE", stream, f"({start}-0", "-", "COUNT", 1)]
        cached = _parse(entries)
    new = yield from after(core, cached[-1].at if cached else start - 1, step=STEPS[name])
    found = cached + new
    return found[max(0, bisect_left(found, start, key=lambda reading: reading.at) - 1) :]


def after(core: Core, at: int, *, step: int = 1, most: int = 1 << 20) -> Operation[list[Reading]]:
    """The readings of a step later than `at` (ms), oldest first, at most `most` of them."""
    stream = keys.history(core.config.name, step)
    readings: list[Reading] = []
    while len(readings) < most:
        count = min(_PAGE, most - len(readings))
        [entries] = yield [command("XRANGE", stream, f"({at}-{2**64 - 1}", "+", "COUNT", count)]
        readings += _parse(entries)
        if len(entries) < count:
            break
        at = _at(entries[-1][0])
    return readings


def before(core: Core, at: int, step: int) -> Operation[Reading | None]:
    """The last reading of a step up to `at` (ms)."""
    stream = keys.history(core.config.name, step)
    [entries] = yield [command("XREVRANGE", stream, f"{at}-{2**64 - 1}", "-", "COUNT", 1)]
    return next(iter(_parse(entries)), None)


def latest(core: Core, most: int) -> Operation[list[Reading]]:
    """The newest readings, oldest first."""
    stream = keys.history(core.config.name, STEPS["10m"])
    [entries] = yield [command("XREVRANGE", stream, "+", "-", "COUNT", most)]
    return _parse(entries)[::-1]


def read(core: Core) -> Operation[tuple[list[float], dict[int, int]]]:
    """The columns of a reading as they are now, and acked trees by latency bucket."""
    counters = [0] * len(COUNTERS)
    trees = [0] * len(BUCKETS)
    latencies: dict[int, int] = {}
    waiting = outstanding = backlog = emitted = 0
    use, age = 0.0, -1.0
    requests = []
    for shard in core.shards:
        requests += [
            Request(shard.clock, ["TIME"]),
            command("HMGET", shard.clock, "rotations", "rotated_at", "drained"),
            command("HMGET", shard.counters, *HOLDING, *COUNTERS, "emitted"),
            command("HGETALL", shard.latency),
        ]
    replies = yield requests
    for place in range(0, len(replies), 4):
        instant, clock, counts, stored = replies[place : place + 4]
        now = milliseconds(instant)
        rotations, rotated_at, drained = (
            whole(value, "a shard's clock", default) for value, default in zip(clock, (0, -1, 0), strict=True)
        )
        clock = Clock(now, rotations, rotated_at, drained)
        numbers = [whole(value, "a shard's counter") for value in counts]
        for age_of, _ in enumerate(BUCKETS[:3]):
            trees[age_of] += numbers[(clock.rotations - age_of) % 3]
        trees[3] += numbers[3]
        waiting, outstanding = waiting + numbers[4], outstanding + numbers[5]
        backlog = max(backlog, clock.rotations - clock.drained)
        use = max(use, numbers[5] / core.config.shard_limit)
        if clock.rotated_at >= 0:
            age = max(age, max(0, now - clock.rotated_at) / 1000)
        emitted += numbers.pop()
        for number, value in enumerate(numbers[6:]):
            counters[number] += value
        for bucket, count in latency_histogram.counts(stored):
            latencies[bucket] = latencies.get(bucket, 0) + count
    emitted += yield from _emitted(core)
    return [*counters, emitted, *trees, waiting, outstanding, backlog, use, age], latencies


def _emitted(core: Core) -> Operation[int]:
    """Tuples emitted into all streams of a topology."""
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    streams = [keys.Stream(core.config.name, name.decode("utf-8", "replace")) for name in names]
    replies = yield [command("HGET", stream.subscriptions, "emitted") for stream in streams]
    return sum(whole(reply, "a stream's count of tuples") for reply in replies)


def pack(values: Sequence[float], latencies: Mapping[int, int]) -> bytes:
    """Packs the results of `read` for a `Reading`."""
    buckets = sorted(latencies)
    head = HEAD.pack(VERSION, len(buckets), *values)
    return head + bytes(buckets) + struct.pack(f"<{len(buckets)}Q", *(latencies[one] for one in buckets))


def _at(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])


def _parse(entries: Reply) -> list[Reading]:
    """Yields readings; unreadable ones are passed over, because the next reading has their counts, too."""
    readings = [Reading(_at(entry_id), fields[1]) for entry_id, fields in entries]
    kept = [reading for reading in readings if _readable(reading.packed)]
    if len(kept) < len(readings):
        _log.error(
            "%d of %d readings of the history are not readable", len(readings) - len(kept), len(readings)
        )
    return kept


def _readable(packed: bytes) -> bool:
    if not packed:
        return True
    if packed[0] != VERSION or len(packed) < HEAD.size or len(packed) != HEAD.size + 9 * packed[1]:
        return False
    return math.isfinite(sum(HEAD.unpack_from(packed)))
