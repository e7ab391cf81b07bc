"""The history of a topology: readings of its exact counters, kept in streams of four steps.

A reading is cumulative, as the counters are: what happened between two readings is their difference, however
far apart they are. So nothing is lost while no service runs, the points of a series add up to its totals, and
coarser streams need no summing. One reader at a time has the turn to write, however many services run.
"""

import logging
import math
import secrets
import struct
from bisect import bisect_left
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
"""How far back each window goes."""
STEPS: Mapping[Window, int] = {"10m": 1, "3h": 10, "1d": 60, "all": 600}
"""Seconds between the readings that are kept for each window."""

GAUGES = (*BUCKETS, "waiting", "held", "backlog", "high_water_use", "rotation_age")
"""What a reading holds beside `COUNTED`: trees pending by bucket, slabs that wait, trees held, rotations not
drained, how full the fullest shard is (1.0: full), and the longest time in seconds since a shard's last
rotation (-1: none was used)."""
_EMITTED = "Tuples emitted: by collectors, and rows into streams, once for each subscription."
COUNTED = COUNTERS | {"emitted": Counter("tuples", _EMITTED)}
"""What a history counts: the counters of the ledger, and tuples."""
COLUMNS = (*COUNTED, *GAUGES)

_log = logging.getLogger(__name__)
_TURN_MS = 5_000
_PAGE = 1_000
VERSION = 1
HEAD = struct.Struct(f"<BB{len(COLUMNS)}d")
"""How a reading begins: its version, how many latency buckets follow, `COLUMNS`. Then come the numbers of the
buckets, a byte each, and their counts, 8 bytes each."""


class Reading(NamedTuple):
    """One reading: when (ms, by the store's clock), and what was read, packed (series.py unpacks many).

    packed: empty for the one that stands for the time before the history began, in which all was zero.
    """

    at: int
    packed: bytes = b""

    @property
    def first(self) -> bool:
        """Whether it stands for the time before the history."""
        return not self.packed

    def value(self, column: str) -> float:
        """The value of one of `COLUMNS`."""
        if self.first:
            return 0.0
        found: float = HEAD.unpack_from(self.packed)[2 + COLUMNS.index(column)]
        return found


def record(core: Core) -> Operation[int | None]:
    """Reads all counters of a topology and writes them to its history, if nobody else has the turn.

    Returns when, in ms by the store's clock; None where somebody else has the turn, tracking is off, or
    the topology is gone.
    """
    if not core.config.ackers:
        return None
    turn, token = keys.turn(core.config.name), secrets.token_hex(8)
    # The turn comes before the reading, so no reading is written after one that was begun later.
    [taken] = yield [command("SET", turn, token, "NX", "PX", _TURN_MS)]
    if taken is None:
        return None
    values, latencies = yield from read(core)
    kept = {STEPS[window]: SECONDS[window] // STEPS[window] + 1 for window in WINDOWS}
    [at] = yield [scripts.record_history(core.config.name, token, pack(values, latencies), kept)]
    return int(at) or None


def window(
    core: Core, name: Window, step: int = 1, known: dict[Window, list[Reading]] | None = None
) -> Operation[list[Reading]]:
    """The readings of a window, oldest first, with `step` seconds or more between them.

    Before them comes the last one before the window, if there is one; after them the newest of all.
    known: keeps what was read for the next time, which reads what is new then. It is some MB when full.
    """
    finest = keys.history(core.config.name, STEPS["10m"])
    [newest] = yield [command("XREVRANGE", finest, "+", "-", "COUNT", 1)]
    found = yield from _kept(core, name, known.get(name, []) if known else [])
    if known is not None:
        known[name] = found
    if not found:
        return []
    found = found + [reading for reading in _parse(newest) if reading.at > found[-1].at]
    slots = np.array([reading.at for reading in found]) // (step * 1000)
    return list(compress(found, [True, *(slots[1:-1] != slots[2:]).tolist(), True]))


def _kept(core: Core, name: Window, known: list[Reading]) -> Operation[list[Reading]]:
    """All readings of a window, after the last one before it. known: readings that were read before."""
    stream = keys.history(core.config.name, STEPS[name])
    last = f"{known[-1].at}-0" if known else "0-0"
    instant, same = yield [Request(stream, ["TIME"]), command("XRANGE", stream, last, last)]
    start = int(instant[0]) * 1000 - SECONDS[name] * 1000
    if not known or _parse(same) != known[-1:]:  # the store lost it, or it is of another topology
        [entries] = yield [command("XREVRANGE", stream, f"({start}-0", "-", "COUNT", 1)]
        known = _parse(entries)
    new = yield from after(core, known[-1].at if known else start - 1, step=STEPS[name])
    found = known + new
    return found[max(0, bisect_left(found, start, key=lambda reading: reading.at) - 1) :]


def after(core: Core, at: int, *, step: int = 1, most: int = 1 << 20) -> Operation[list[Reading]]:
    """The readings of a step later than `at` (ms), oldest first, at most `most` of them."""
    stream = keys.history(core.config.name, step)
    found: list[Reading] = []
    while len(found) < most:
        count = min(_PAGE, most - len(found))
        [entries] = yield [command("XRANGE", stream, f"({at}-{2**64 - 1}", "+", "COUNT", count)]
        found += _parse(entries)
        if len(entries) < count:
            break
        at = _at(entries[-1][0])
    return found


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
    waiting = held = backlog = emitted = 0
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
        waiting, held = waiting + numbers[4], held + numbers[5]
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
    return [*counters, emitted, *trees, waiting, held, backlog, use, age], latencies


def _emitted(core: Core) -> Operation[int]:
    """Tuples emitted into all streams of a topology."""
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    streams = [keys.Stream(core.config.name, name.decode("utf-8", "replace")) for name in names]
    replies = yield [command("HGET", stream.subscriptions, "emitted") for stream in streams]
    return sum(whole(reply, "a stream's count of tuples") for reply in replies)


def pack(values: Sequence[float], latencies: Mapping[int, int]) -> bytes:
    """What `read` gives, as a `Reading` holds it."""
    buckets = sorted(latencies)
    head = HEAD.pack(VERSION, len(buckets), *values)
    return head + bytes(buckets) + struct.pack(f"<{len(buckets)}Q", *(latencies[one] for one in buckets))


def _at(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])


def _parse(entries: Reply) -> list[Reading]:
    """Readings; what cannot be read is passed over: the next one has its counts, too."""
    found = [Reading(_at(entry_id), fields[1]) for entry_id, fields in entries]
    kept = [reading for reading in found if _readable(reading.packed)]
    if len(kept) < len(found):
        _log.error("%d of %d readings of the history are not readable", len(found) - len(kept), len(found))
    return kept


def _readable(packed: bytes) -> bool:
    if not packed:
        return True
    if packed[0] != VERSION or len(packed) < HEAD.size or len(packed) != HEAD.size + 9 * packed[1]:
        return False
    return math.isfinite(sum(HEAD.unpack_from(packed)))
