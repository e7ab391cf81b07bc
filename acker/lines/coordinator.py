"""The coordinator: when a section is over for all requests of a group, what has gathered at its end goes on.

It reads the outcomes of the sections' trees, notes which requests are over, and releases each group by one
commit: a row for each request and task, then the bundle of the group's segments, and last the gate of the
next section. Any number of coordinators may work side by side, and may die at any point: one commit is stored
for a number, and what of it had happened is known by its keys.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids, once, outcomes, sections, slabs
from acker.ledger import lua as ledger_lua
from acker.ledger.causes import Cause
from acker.ledger.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import Entry, OutcomeReader
from acker.ledger.sections import SPOUT
from acker.lines import definition
from acker.lines.definition import Definition
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, abreast, chain, command
from acker.streams import gathers, lua, retention, segments, subscriptions, waiting
from acker.streams.commits import commit as commits
from acker.streams.commits.at_once import Ready
from acker.streams.commits.contents import Commit
from acker.streams.commits.record import SHARED
from acker.streams.commits.staging import STAGING_TTL, Staged, Staging, stage_deltas, stage_segment
from acker.streams.gathers import FINISHED, LATE_TTL, MOST_SEGMENTS
from acker.streams.segments import ANCHORS, Segment
from acker.streams.subscriptions import StagedFor

WRITER = f"{SHARED}{SPOUT}"
"""The writer of all coordinators' commits: their numbers let one of several win."""
RETAIN = 10.0
"""Seconds after which `retain` is of use again."""
_RELEASE = 64
"""Groups that one commit releases at most."""
_PROGRESS_TTL = LATE_TTL
_PAGE = 1_000
_MOST_GONE = 100_000
"""Groups whose keys wait to be given less time; those of others live as long as they would have."""


@dataclass(frozen=True, slots=True)
class _Arrived:
    """Requests of a group that are over in a section: which, and which of them were acked."""

    line: Definition
    section: int
    slab: bytes
    count: int
    over: Ids
    acked: Ids
    causes: tuple[tuple[Ids, Cause], ...]

    @property
    def group(self) -> str:
        return sections.group_of(self.slab)

    @property
    def stream(self) -> str:
        return self.line.gathers[self.section - 1].stream

    def anchors(self, indexes: Ids, section: int) -> Ids:
        """The trees of requests in a section."""
        own = np.int64(ids.anchor_at(self.slab, 0)) + ids.STEP * indexes
        return sections.within(own, section)


def step(core: Core, reader: OutcomeReader, gone: list[bytes] | None = None) -> Operation[int]:
    """Sees to the outcomes of sections that there are now, a bounded number; returns how many it has read.

    gone: gets what is known of groups that have gone on, for `forget`.
    """
    before = reader.position
    looks: list[Operation[Any]] = [commits.next_number(core, WRITER), reader.read()]
    number, entries = yield from abreast(looks)
    if not entries:
        return 0
    # The number is older than this look at the outcomes. So whoever has confirmed them, and let go of what is
    # known of their groups (`forget`), had a number from here on, and this one is of no use any more.
    looks = [_arrived(core, entries), _there(core, entries)]
    arrived, there = yield from abreast(looks)
    if not there:
        reader.position = before
        return len(entries)
    few = arrived[:_RELEASE]
    looks = [_noted(core, entries, arrived), _over(core, arrived), _waiting(core, few)]
    replies, over, waits = yield from abreast(looks)
    if replies is None:  # the store was set back since
        reader.position = before
        return len(entries)
    yield from _fail_others(core, arrived)
    # A node of a cluster may have a note of an outcome that another one has lost.
    ready = [
        (one, _indexes(reply))
        for one, reply, ended in zip(arrived, replies, over, strict=True)
        if reply is not None and ended
    ]
    places = [entry.receipt for entry in entries]
    last: list[Operation[Any]] = [outcomes.confirm(core, SPOUT, places)]
    for first in range(0, len(ready), _RELEASE):
        part = ready[first : first + _RELEASE]
        if not all(one.slab in waits.segments for one, _ in part):
            waits = yield from _waiting(core, [one for one, _ in part])
        closing = last if part[-1] is ready[-1] else []
        released = yield from _release(core, number, part, waits, entries, closing)
        if released is None:
            reader.position = before  # another coordinator was quicker, or the store was set back: look again
            return len(entries)
        number += released
    yield from abreast(last)
    reader.confirmed(places)
    if gone is not None and len(gone) < _MOST_GONE:
        gone += [_progress(core, one) for one, _ in ready]
    return len(entries)


def forget(core: Core, gone: list[bytes]) -> Operation[None]:
    """Keeps what is known of groups that have gone on for two message timeouts yet, not for weeks.

    It tells what comes late for them, and coordinators that a group has gone. One of these may have read of
    the group before its outcomes were confirmed, and go on after a pause of any length: so a commit takes
    the number that it has, and nothing of it takes effect.
    """
    if not gone:
        return
    number = yield from commits.next_number(core, WRITER)
    if not (yield from commits.commit(core, WRITER, number, Commit(), ready=Ready())):
        return  # another coordinator was quicker: the next time
    ttl = math.ceil(2 * core.config.message_timeout)
    while gone:
        yield [command("EXPIRE", key, ttl, "LT") for key in gone[:_PAGE]]
        del gone[:_PAGE]


def retain(core: Core) -> Operation[None]:
    """Drops what streams that gather have over their limits: nobody else looks where nobody writes."""
    for one in (yield from definition.lines(core)).values():
        for gather in one.gathers:
            yield from retention.retain(core, gather.stream)


def _arrived(core: Core, entries: Sequence[Entry]) -> Operation[list[_Arrived]]:
    """What outcomes say, by slab. Of what the ledger has forgotten they say nothing any more."""
    by_slab: dict[bytes, list[tuple[Entry, tuple[int, ...] | None]]] = {}
    for entry in entries:
        for outcome in entry.slabs:
            by_slab.setdefault(outcome.slab, []).append((entry, outcome.indexes))
    looks: list[Operation[Any]] = [definition.lines(core), _headers(core, list(by_slab))]
    known, headers = yield from abreast(looks)
    found = []
    for (slab, ended), stored in zip(by_slab.items(), headers, strict=True):
        number, section = sections.place_of(slab)
        header, line = slabs.read(stored), known.get(number)
        if header is None or not header.count or line is None or section > len(line.gathers):
            continue
        over, acked, causes = [], [], []
        for entry, indexes in ended:
            own = np.array(range(header.count) if indexes is None else indexes, dtype=np.int64)
            own = own[own < header.count]
            over.append(own)
            if entry.status == "acked":
                acked.append(own)
            else:
                reason = entry.cause.reason or entry.status
                text = f"in section {line.gathers[section - 1].stream}: {reason}"
                causes.append((own, Cause(text, entry.cause.step, entry.cause.retry, entry.cause.batch)))
        none = np.zeros(0, dtype=np.int64)
        parts = np.concatenate([none, *over]), np.concatenate([none, *acked])
        found.append(_Arrived(line, section, slab, header.count, *parts, tuple(causes)))
    return found


def _headers(core: Core, slabs: Sequence[bytes]) -> Operation[list[Reply]]:
    return (yield [_header(core, slab) for slab in slabs])


def _header(core: Core, slab: bytes) -> Request:
    return command("HGET", core.shards[ids.shard_of(slab, core.config.ackers)].slabs, slab)


def _progress(core: Core, one: _Arrived) -> bytes:
    return keys.Stream(core.config.name, one.stream).progress(one.group)


def _noting(core: Core, one: _Arrived) -> Request:
    progress = _progress(core, one)
    over, acked = _mask(one.over, one.count), _mask(one.acked, one.count)
    return lua.note_arrivals(core.config, progress, one.count, over, acked, _PROGRESS_TTL)


def _mask(indexes: Ids, count: int) -> bytes:
    bits = np.zeros(count, dtype=np.bool_)
    bits[indexes] = True
    return np.packbits(bits, bitorder="little").tobytes()


def _indexes(mask: bytes) -> Ids:
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64)


def _fail_others(core: Core, arrived: Sequence[_Arrived]) -> Operation[None]:
    """Fails what failed or expired in one section in all others that the ledger has still."""
    failing: list[tuple[bytes, Ids, Cause]] = []
    for one in arrived:
        for indexes, cause in one.causes:
            for section in range(1, len(one.line.gathers) + 2):
                if section != one.section and len(indexes):
                    anchors = one.anchors(indexes, section)
                    failing.append((ids.slab_of(int(anchors[0])), anchors, cause))
    there = yield [_header(core, slab) for slab, _, _ in failing]
    submissions = [
        core.fail(anchors, cause.encode())
        for (_, anchors, cause), header in zip(failing, there, strict=True)
        if header is not None
    ]
    yield from once.submit(core, [call for one in submissions for call in one.calls])


def _there(core: Core, entries: Sequence[Entry]) -> Operation[bool]:
    """Whether the store still has the outcomes: one that was set back since they were read may not."""
    return all((yield _looks(core, entries)))


def _looks(core: Core, entries: Sequence[Entry]) -> list[Request]:
    """Requests that are answered 1 where the store still has the outcomes of a shard, else 0."""
    by_shard: dict[int, list[tuple[bytes, bytes]]] = {}
    for entry in entries:
        by_shard.setdefault(entry.receipt.shard, []).append((entry.receipt.id, entry.receipt.digest))
    return [
        ledger_lua.check_outcomes(core.shards[shard].outcomes(SPOUT), own) for shard, own in by_shard.items()
    ]


@dataclass(frozen=True, slots=True)
class _Waits:
    """By slab how many segments wait in each task; for which slots segments of a stream are staged."""

    segments: Mapping[bytes, Sequence[int]]
    staged_for: Mapping[str, StagedFor]


def _noted(
    core: Core, entries: Sequence[Entry], arrived: Sequence[_Arrived]
) -> Operation[list[Reply] | None]:
    """Notes what has arrived, and tells by group which requests were acked, where all are over.

    One server notes it where it has the outcomes still, by one script: so what it has noted, it has. None
    where it has lost some.
    """
    notes, looks = list[Reply](), list[list[Request]]()
    parts = [arrived[first : first + _RELEASE] for first in range(0, len(arrived), _RELEASE)]
    for part in parts:  # its outcomes stand in no more shards than it has groups: 128 scripts at most
        shards = {ids.shard_of(one.slab, core.config.ackers) for one in part}
        looks.append(_looks(core, [entry for entry in entries if entry.receipt.shard in shards]))
    both = list(zip(looks, parts, strict=True))
    found = yield [chain([*own, *(_noting(core, one) for one in part)]) for own, part in both]
    for (own, part), replies in zip(both, found, strict=True):
        if replies is None:  # a cluster
            notes += yield [_noting(core, one) for one in part]
        elif len(replies) < len(own) + len(part):
            return None
        else:
            notes += replies[len(own) :]
    return notes


def _over(core: Core, arrived: Sequence[_Arrived]) -> Operation[list[bool]]:
    """Of groups whether the ledger says that all their requests are over in a section."""
    asked = _partial(arrived)
    replies = yield [_ended(core, one) for one in asked]
    pending = {one.slab for one, reply in zip(asked, replies, strict=True) if reply != 1}
    return [one.slab not in pending for one in arrived]


def _partial(arrived: Sequence[_Arrived]) -> list[_Arrived]:
    """Groups of which other requests were over before; of the rest, the outcomes that arrive say it all."""
    return [one for one in arrived if len(np.unique(one.over)) < one.count]


def _still(core: Core, going: Sequence[tuple[_Arrived, Ids]]) -> list[Request]:
    """Requests that are answered 1 where groups are over still, and as was noted; else 0."""
    acked = {one.slab: indexes for one, indexes in going}
    checks = list[Request]()
    for one in _partial([one for one, _ in going]):
        everything = np.arange(one.count, dtype=np.int64)
        masks = _mask(everything, one.count), _mask(acked[one.slab], one.count)
        checks += [_ended(core, one), lua.check_noted(_progress(core, one), *masks)]
    return checks


def _ended(core: Core, one: _Arrived) -> Request:
    own = core.shards[ids.shard_of(one.slab, core.config.ackers)]
    return ledger_lua.check_over(own.slabs, own.vector(one.slab), one.slab)


def _waiting(core: Core, ready: Sequence[_Arrived]) -> Operation[_Waits]:
    streams = list(dict.fromkeys(one.stream for one in ready))
    looks: list[Operation[Any]] = [_lengths(core, ready)]
    looks += [subscriptions.staged_for(core, stream) for stream in streams]
    waits, *found = yield from abreast(looks)
    lengths = iter(waits)
    by_slab = {one.slab: [next(lengths) for _ in range(_tasks(one))] for one in ready}
    return _Waits(by_slab, dict(zip(streams, found, strict=True)))


def _release(
    core: Core,
    number: int,
    ready: Sequence[tuple[_Arrived, Ids]],
    waits: _Waits,
    entries: Sequence[Entry],
    last: list[Operation[Any]],
) -> Operation[int | None]:
    """Releases groups by one commit; returns how many it took, None where another coordinator was quicker.

    entries: the outcomes that it goes by; None, too, where the store has them no more, or a request is not
    over any more. last: what is to be done when all is released; emptied where that was done.
    """
    going: list[tuple[_Arrived, Ids]] = []
    dropped: list[_Arrived] = []
    for one, acked in ready:
        longest = max(waits.segments[one.slab])
        if len(acked) and longest > MOST_SEGMENTS:
            reason = (
                f"stream {one.stream} gathered {longest:,} segments of a group for one task, over "
                f"{MOST_SEGMENTS}: take smaller groups, or more tasks"
            )
            yield from _fail_others(core, [replace(one, causes=((acked, Cause(reason)),))])
            dropped.append(one)
        elif len(acked):
            going.append((one, acked))
        else:
            dropped.append(one)
    if going:
        staging = list[Request]()
        stages = [
            _stage_last(core, Staging(one.stream, to=waits.staged_for[one.stream], into=staging), one, acked)
            for one, acked in going
        ]
        made = yield from abreast(stages)
        gates = [_gates(core, one, acked, staging) for one, acked in going]
        afterwards = [] if dropped else list(last)
        conditions = _looks(core, entries) + _still(core, going)
        at_hand = Ready(staging, conditions=conditions, afterwards=afterwards)
        what = Commit(tuple(made), gates=tuple(gates))
        if not (yield from commits.commit(core, WRITER, number, what, ready=at_hand)):
            return None
        if afterwards:
            last.clear()
    for one in dropped:
        yield from waiting.close(core, one.stream, one.group, _tasks(one))
    return int(bool(going))


def _tasks(one: _Arrived) -> int:
    return one.line.gathers[one.section - 1].tasks


def _lengths(core: Core, ready: Sequence[_Arrived]) -> Operation[list[int]]:
    """How many segments wait for each group, task by task."""
    lengths: list[int] = yield [
        command("XLEN", own.gathered(one.group, task))
        for one in ready
        for own in [keys.Stream(core.config.name, one.stream)]
        for task in range(_tasks(one))
    ]
    return lengths


def _stage_last(core: Core, staging: Staging, one: _Arrived, acked: Ids) -> Operation[Staged]:
    """Stages the rows that end the bundles of a group: one for each request and task."""
    anchors = one.anchors(acked, one.section + 1)
    rows = pa.RecordBatch.from_pydict({ANCHORS: pa.array(anchors), FINISHED: pa.array([True] * len(anchors))})
    made = yield from abreast(
        [
            stage_segment(core, staging, [rows], gathers.destination(one.group, task, last=True))
            for task in range(_tasks(one))
        ]
    )
    return Staged(one.stream, tuple(made))


def _gates(core: Core, one: _Arrived, acked: Ids, into: list[Request]) -> Segment:
    """The gates of the next section of requests. into: gets what stages them."""
    anchors, token = one.anchors(acked, one.section + 1), segments.new_token()
    requests, shards = stage_deltas(core, STAGING_TTL, anchors, sections.gates(anchors), token, 0, "1")
    into += requests
    return Segment(token, len(anchors), 0, 0, shards, (0,))
