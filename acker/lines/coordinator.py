"""The coordinator: when a section is over for all requests of a group, what has gathered at its end goes on.

It reads the outcomes of the sections' trees, notes which requests are over, and releases each group by one
commit: a row for each request and task, then the bundle of the group's segments, and last the gate of the
next section. Any number of coordinators may work side by side, and may die at any point: one commit is stored
for a number, and what of it had happened is known by its keys.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader
from acker.ledger.slabs import sections
from acker.ledger.slabs.causes import Cause
from acker.ledger.slabs.sections import SPOUT
from acker.lines import arrivals, definition
from acker.lines.arrivals import Arrived, Place
from acker.lines.definition import Definition
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, abreast, command
from acker.store.replies import milliseconds
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import Ready
from acker.streams.commits.record import SHARED
from acker.streams.log import gathers, segments, subscriptions
from acker.streams.log.gathers import FINISHED, MOST_SEGMENTS
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import StagedFor
from acker.streams.staging.staging import STAGING_TTL, Staged, Staging, stage_deltas, stage_segment
from acker.streams.upkeep import gathered, retention

WRITER = f"{SHARED}{SPOUT}"
"""The writer of all coordinators' commits: their numbers let one of several win."""
RETAIN = 10.0
"""Seconds after which `retain` is of use again."""
_RELEASE = arrivals.TOGETHER
"""Groups that one commit releases at most."""
_SHARED = 1.0
"""Seconds for which another coordinator that has committed is taken for being there."""
ABANDONED = 60.0
"""Seconds after which a group that has gone is taken for one whose coordinator has died."""
_PAGE = 1_000
_MOST_GONE = 100_000
"""Groups whose keys wait to be given less time; those of others live as long as they would have."""


@dataclass(slots=True)
class Memory:
    """What a coordinator keeps from one step to the next, so that it has less to ask.

    number: of its next commit, if nobody else has committed since; None: to be asked. shared_till: others
    have, a moment ago (monotonic seconds): it is asked until then. lines: those of the topology.
    """

    number: int | None = None
    shared_till: float = 0.0
    lines: dict[int, Definition] = field(default_factory=dict)


def step(
    core: Core,
    reader: OutcomeReader,
    gone: list[bytes] | None = None,
    memory: Memory | None = None,
    come: Reply = None,
) -> Operation[int]:
    """Sees to the outcomes of sections that there are now, a bounded number; returns how many it has read.

    gone: gets what is known of groups that have gone on, for `forget`. come: what the reader's `blocking` was
    answered just now, else it reads.
    """
    memory = memory or Memory()
    before, number = reader.position, memory.number
    remembered = come is not None and number is not None and time.monotonic() >= memory.shared_till
    if remembered and number is not None:
        entries = reader.take(come)
    else:
        looks: list[Operation[Any]] = [commits.next_number(core, WRITER), reader.read()]
        number, entries = yield from abreast(looks)
        memory.number = number
    if not entries:
        return 0
    # The number is older than this look at the outcomes. So whoever has confirmed them, and let go of what is
    # known of their groups (`forget`), had a number from here on, and this one is of no use any more.
    if (yield from _go_on(core, reader, entries, number, gone, memory)):
        return len(entries)
    reader.position = before  # another coordinator was quicker, or the store was set back: look again
    if not remembered:
        return len(entries)
    memory.shared_till = time.monotonic() + _SHARED
    return (yield from step(core, reader, gone, memory))


def _go_on(
    core: Core,
    reader: OutcomeReader,
    entries: Sequence[Entry],
    number: int,
    gone: list[bytes] | None,
    memory: Memory,
) -> Operation[bool]:
    """Releases the groups that are over by outcomes; False where something is not as it was read."""
    guessed, lines = arrivals.wholes(entries, memory.lines)[:_RELEASE], memory.lines
    looks: list[Operation[Any]] = [
        arrivals.arrived(core, entries, lines),
        arrivals.there(core, entries),
        _waiting(core, guessed),
        arrivals.known(core, guessed),
    ]
    arrived, there, waits, known = yield from abreast(looks)
    if not there:
        return False
    fresh = [not noted and one.line in lines.values() for one, noted in zip(guessed, known, strict=True)]
    new = {one.slab for one, first in zip(guessed, fresh, strict=True) if first}
    # What comes as a whole needs no note: nobody has to learn of a part of it.
    at_once = all(one.whole and one.slab in new for one in arrived)
    if at_once:
        ready = [(one, np.unique(one.acked)) for one in arrived]
    else:
        looks = [arrivals.noted(core, entries, arrived), arrivals.are_over(core, arrived)]
        looks.append(_waiting(core, arrived[:_RELEASE]))
        replies, over, waits = yield from abreast(looks)
        if replies is None:  # the store was set back since
            return False
        # A node of a cluster may have a note of an outcome that another one has lost.
        ready = [
            (one, arrivals.indexes_of(reply))
            for one, reply, ended in zip(arrived, replies, over, strict=True)
            if reply is not None and ended
        ]
    yield from _fail_others(core, arrived)
    places = [entry.receipt for entry in entries]
    last: list[Operation[Any]] = [outcomes.confirm(core, SPOUT, places)]
    for first in range(0, len(ready), _RELEASE):
        part = ready[first : first + _RELEASE]
        if not all(one.slab in waits.segments for one, _ in part):
            waits = yield from _waiting(core, [one for one, _ in part])
        conditions = arrivals.looks_of(core, entries, [one for one, _ in part])
        conditions += arrivals.unknown(core, part) if at_once else arrivals.still(core, part)
        closing = last if part[-1] is ready[-1] else []
        released = yield from _release(core, number, part, waits, conditions, closing)
        if released is None:
            return False
        number += released
        memory.number = number
    yield from abreast(last)
    reader.confirmed(places)
    if gone is not None and len(gone) < _MOST_GONE:
        gone += [arrivals.progress(core, one) for one, _ in ready]
    return True


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
    ttl, forgetting = math.ceil(2 * core.config.message_timeout), list[Request]()
    while gone:
        for key in gone[:_PAGE]:
            forgetting.append(command("EXPIRE", key, ttl, "LT"))
            own, _, group = key.rpartition(b"progress:")
            forgetting.append(command("ZREM", own + b"gone", group))
        yield forgetting
        forgetting = []
        del gone[:_PAGE]


def sweep(core: Core) -> Operation[int]:
    """Forgets groups that have gone and that a coordinator knew which has died since; returns how many.

    Their section is not known any more, so all coordinators have confirmed its outcomes.
    """
    left = list[bytes]()
    for line in (yield from definition.lines(core)).values():
        for section, gather in enumerate(line.gathers, 1):
            own = keys.Stream(core.config.name, gather.stream)
            [instant] = yield [Request(own.gone, ["TIME"])]
            oldest = milliseconds(instant) - round(1000 * ABANDONED)
            [found] = yield [command("ZRANGEBYSCORE", own.gone, "-inf", oldest, "LIMIT", 0, _PAGE)]
            groups = [group.decode("ascii", "replace") for group in found]
            slabs = [sections.slab_of(group, section) for group in groups]
            known = yield [
                command("HEXISTS", core.shards[ids.shard_of(slab, core.config.ackers)].slabs, slab)
                for slab in slabs
            ]
            left += [own.progress(group) for group, there in zip(groups, known, strict=True) if not there]
    count = len(left)
    yield from forget(core, left)
    return count - len(left)


def retain(core: Core) -> Operation[None]:
    """Drops what streams that gather have over their limits: nobody else looks where nobody writes."""
    for one in (yield from definition.lines(core)).values():
        for gather in one.gathers:
            yield from retention.retain(core, gather.stream)


def _fail_others(core: Core, arrived: Sequence[Arrived]) -> Operation[None]:
    """Fails what failed or expired in one section in all others that the ledger has still."""
    failing: list[tuple[bytes, Ids, Cause]] = []
    for one in arrived:
        for indexes, cause in one.causes:
            for section in range(1, len(one.line.gathers) + 2):
                if section != one.section and len(indexes):
                    anchors = one.anchors(indexes, section)
                    failing.append((ids.slab_of(int(anchors[0])), anchors, cause))
    there = yield [arrivals.header_of(core, slab) for slab, _, _ in failing]
    known = [one for one, header in zip(failing, there, strict=True) if header is not None]
    if known:
        causes = [text for _, anchors, cause in known for text in [cause.encode()] * len(anchors)]
        every = np.concatenate([anchors for _, anchors, _ in known])
        yield from idempotence.submit(core, core.fail_each(every, causes).calls)


@dataclass(frozen=True, slots=True)
class _Waits:
    """By slab how many segments wait in each task; for which slots segments of a stream are staged."""

    segments: Mapping[bytes, Sequence[int]]
    staged_for: Mapping[str, StagedFor]


def _waiting(core: Core, ready: Sequence[Place]) -> Operation[_Waits]:
    streams = list(dict.fromkeys(one.stream for one in ready))
    looks: list[Operation[Any]] = [_lengths(core, ready)]
    looks += [subscriptions.staged_for(core, stream) for stream in streams]
    waits, *found = yield from abreast(looks)
    lengths = iter(waits)
    by_slab = {one.slab: [next(lengths) for _ in range(one.tasks)] for one in ready}
    return _Waits(by_slab, dict(zip(streams, found, strict=True)))


def _release(
    core: Core,
    number: int,
    ready: Sequence[tuple[Arrived, Ids]],
    waits: _Waits,
    conditions: Sequence[Request],
    last: list[Operation[Any]],
) -> Operation[int | None]:
    """Releases groups by one commit; returns how many it took, None where another coordinator was quicker.

    conditions: scripts that are answered 1 where the groups are as was read; None, too, where one is not.
    last: what is to be done when all is released; emptied where that was done.
    """
    going: list[tuple[Arrived, Ids]] = []
    dropped: list[Arrived] = []
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
        at_hand = Ready(staging, conditions=conditions, afterwards=afterwards)
        what = Commit(tuple(made), gates=tuple(gates))
        if not (yield from commits.commit(core, WRITER, number, what, ready=at_hand)):
            return None
        if afterwards:
            last.clear()
    for one in dropped:
        yield from gathered.close(core, one.stream, one.group, one.tasks)
    return int(bool(going))


def _lengths(core: Core, ready: Sequence[Place]) -> Operation[list[int]]:
    """How many segments wait for each group, task by task."""
    lengths: list[int] = yield [
        command("XLEN", own.gathered(one.group, task))
        for one in ready
        for own in [keys.Stream(core.config.name, one.stream)]
        for task in range(one.tasks)
    ]
    return lengths


def _stage_last(core: Core, staging: Staging, one: Arrived, acked: Ids) -> Operation[Staged]:
    """Stages the rows that end the bundles of a group: one for each request and task."""
    anchors = one.anchors(acked, one.section + 1)
    rows = pa.RecordBatch.from_pydict({ANCHORS: pa.array(anchors), FINISHED: pa.array([True] * len(anchors))})
    made = yield from abreast(
        [
            stage_segment(core, staging, [rows], gathers.destination(one.group, task, one.section, last=True))
            for task in range(one.tasks)
        ]
    )
    return Staged(one.stream, tuple(made))


def _gates(core: Core, one: Arrived, acked: Ids, into: list[Request]) -> Segment:
    """The gates of the next section of requests. into: gets what stages them."""
    anchors, token = one.anchors(acked, one.section + 1), segments.new_token()
    requests, shards = stage_deltas(
        core, STAGING_TTL, anchors, sections.gates(anchors, one.line.mark), token, 0, "1"
    )
    into += requests
    return Segment(token, len(anchors), 0, 0, shards, (0,))
