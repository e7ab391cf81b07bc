"""The coordinator: releases a group when a section is over for all its requests.

It reads the outcomes of the sections' trees, records the requests that are over, and releases each group by
one commit: a row for each request and task, then the bundle of the group's segments, and last the gate of the
next section. Any number of coordinators may run side by side, and may die at any point: a number has one
stored commit, whose keys record its progress.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a slot is the random number of a
subscription; a bundle is the rows that have gathered for one task of a group; a gate is an id that keeps a
tree open until rows may come into it; a group is requests of a line that were tracked together.
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
from acker.streams.commits.known import AtHand
from acker.streams.commits.record import SHARED
from acker.streams.log import gathers, segments, subscriptions
from acker.streams.log.gathers import FINISHED, MOST_SEGMENTS
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import StagedFor
from acker.streams.staging.staging import STAGING_TTL, Staged, Staging, stage_deltas, stage_segment
from acker.streams.upkeep import gathered, retention

WRITER = f"{SHARED}{SPOUT}"
"""The writer of all coordinators' commits, whose numbers let only one of several win."""
RETAIN = 10.0
"""Seconds after which `retain` is useful again."""
_RELEASE = arrivals.TOGETHER
"""Most groups that one commit releases."""
_SHARED = 1.0
"""Seconds for which another coordinator that has committed counts as present."""
ABANDONED = 60.0
"""Seconds after which the coordinator of a released group counts as dead."""
_PAGE = 1_000
_MOST_GONE = 100_000
"""Most groups whose keys wait for a shorter time to live; keys of others keep theirs."""


@dataclass(slots=True)
class Memory:
    """Memory of a coordinator between two steps, which saves it requests.

    number: the number of its next commit, if no other coordinator has committed since; None if unknown.
    shared_till: monotonic seconds until which the number is read each time, because others have committed
    just now. lines: the lines of the topology.
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
    """Handles a bounded number of the present outcomes of sections; returns the number of outcomes read.

    gone: gets the keys of released groups, for `forget`. come: the reply to the reader's `blocking`, if there
    is one; otherwise the outcomes are read.
    """
    memory = memory or Memory()
    before, number = reader.offset, memory.number
    remembered = come is not None and number is not None and time.monotonic() >= memory.shared_till
    if remembered and number is not None:
        entries = reader.take(come)
    else:
        looks: list[Operation[Any]] = [commits.next_number(core, WRITER), reader.read()]
        number, entries = yield from abreast(looks)
        memory.number = number
    if not entries:
        return 0
    # The number is read before the outcomes. A coordinator that confirms them, and shortens the life of their
    # groups' keys (`forget`), has this number or a later one; so this number is then taken.
    if (yield from _go_on(core, reader, entries, number, gone, memory)):
        return len(entries)
    reader.offset = before  # another coordinator was quicker, or the store was set back: look again
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
    """Releases the groups that are over by outcomes; False if the store has changed since they were read."""
    guessed, lines = arrivals.wholes(entries, memory.lines)[:_RELEASE], memory.lines
    looks: list[Operation[Any]] = [
        arrivals.arrived(core, entries, lines),
        arrivals.there(core, entries),
        _waiting(core, guessed),
        arrivals.known(core, guessed),
    ]
    arrived, there, waits, recorded = yield from abreast(looks)
    if not there:
        return False
    fresh = [
        not noted and group.line in lines.values() for group, noted in zip(guessed, recorded, strict=True)
    ]
    new = {group.slab for group, first in zip(guessed, fresh, strict=True) if first}
    # A group that ends as a whole needs no record: there are no parts to remember.
    at_once = all(group.whole and group.slab in new for group in arrived)
    if at_once:
        ready = [(group, np.unique(group.acked)) for group in arrived]
    else:
        looks = [arrivals.noted(core, entries, arrived), arrivals.are_over(core, arrived)]
        looks.append(_waiting(core, arrived[:_RELEASE]))
        replies, over, waits = yield from abreast(looks)
        if replies is None:  # the store was set back since
            return False
        # A node of a cluster may have a note of an outcome that another one has lost.
        ready = [
            (group, arrivals.indexes_of(reply))
            for group, reply, ended in zip(arrived, replies, over, strict=True)
            if reply is not None and ended
        ]
    yield from _fail_others(core, arrived)
    places = [entry.confirmation for entry in entries]
    last: list[Operation[Any]] = [outcomes.confirm(core, SPOUT, places)]
    for first in range(0, len(ready), _RELEASE):
        part = ready[first : first + _RELEASE]
        if not all(group.slab in waits.segments for group, _ in part):
            waits = yield from _waiting(core, [group for group, _ in part])
        conditions = arrivals.looks_of(core, entries, [group for group, _ in part])
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
        gone += [arrivals.progress(core, group) for group, _ in ready]
    return True


def forget(core: Core, gone: list[bytes]) -> Operation[None]:
    """Limits the life of released groups' keys to two message timeouts, instead of weeks.

    The keys identify late arrivals, and tell coordinators that a group was released. A coordinator may have
    read of the group before its outcomes were confirmed, and continue after a pause of any length. So a
    commit takes its number, and nothing of it takes effect.
    """
    if not gone:
        return
    number = yield from commits.next_number(core, WRITER)
    if not (yield from commits.commit(core, WRITER, number, Commit(), at_hand=AtHand())):
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
    """Deletes the keys of released groups whose coordinator has died; returns their number.

    Their section is no longer in the ledger, so all coordinators have confirmed its outcomes.
    """
    left = list[bytes]()
    for line in (yield from definition.lines(core)).values():
        for section, gather in enumerate(line.gathers, 1):
            stream = keys.Stream(core.config.name, gather.stream)
            [instant] = yield [Request(stream.gone, ["TIME"])]
            oldest = milliseconds(instant) - round(1000 * ABANDONED)
            [found] = yield [command("ZRANGEBYSCORE", stream.gone, "-inf", oldest, "LIMIT", 0, _PAGE)]
            groups = [group.decode("ascii", "replace") for group in found]
            slabs = [sections.slab_of(group, section) for group in groups]
            owners = yield [
                command("HEXISTS", core.shards[ids.shard_of(slab, core.config.ackers)].slabs, slab)
                for slab in slabs
            ]
            left += [stream.progress(group) for group, there in zip(groups, owners, strict=True) if not there]
    count = len(left)
    yield from forget(core, left)
    return count - len(left)


def retain(core: Core) -> Operation[None]:
    """Applies the limits of streams that gather: without writers, no other process does."""
    for one in (yield from definition.lines(core)).values():
        for gather in one.gathers:
            yield from retention.retain(core, gather.stream)


def _fail_others(core: Core, arrived: Sequence[Arrived]) -> Operation[None]:
    """Fails requests that failed or expired in a section in all other sections of the ledger."""
    failing: list[tuple[bytes, Ids, Cause]] = []
    for group in arrived:
        for indexes, cause in group.causes:
            for section in range(1, len(group.line.gathers) + 2):
                if section != group.section and len(indexes):
                    anchors = group.anchors(indexes, section)
                    failing.append((ids.slab_of(int(anchors[0])), anchors, cause))
    there = yield [arrivals.header_of(core, slab) for slab, _, _ in failing]
    present = [group for group, header in zip(failing, there, strict=True) if header is not None]
    if present:
        causes = [text for _, anchors, cause in present for text in [cause.encode()] * len(anchors)]
        every = np.concatenate([anchors for _, anchors, _ in present])
        yield from idempotence.submit(core, core.fail_each(every, causes).calls)


@dataclass(frozen=True, slots=True)
class _Waits:
    """Waiting segments of each task by slab, and the slots for which segments of a stream are staged."""

    segments: Mapping[bytes, Sequence[int]]
    staged_for: Mapping[str, StagedFor]


def _waiting(core: Core, ready: Sequence[Place]) -> Operation[_Waits]:
    streams = list(dict.fromkeys(place.stream for place in ready))
    looks: list[Operation[Any]] = [_lengths(core, ready)]
    looks += [subscriptions.staged_for(core, stream) for stream in streams]
    waits, *staged_for = yield from abreast(looks)
    lengths = iter(waits)
    by_slab = {place.slab: [next(lengths) for _ in range(place.tasks)] for place in ready}
    return _Waits(by_slab, dict(zip(streams, staged_for, strict=True)))


def _release(
    core: Core,
    number: int,
    ready: Sequence[tuple[Arrived, Ids]],
    waits: _Waits,
    conditions: Sequence[Request],
    last: list[Operation[Any]],
) -> Operation[int | None]:
    """Releases groups by one commit; returns their number, or None if another coordinator was quicker.

    conditions: requests whose reply is 1 if the groups are unchanged; if one is not, None is returned, too.
    last: work for after the release; emptied when it is done.
    """
    going: list[tuple[Arrived, Ids]] = []
    dropped: list[Arrived] = []
    for group, acked in ready:
        longest = max(waits.segments[group.slab])
        if len(acked) and longest > MOST_SEGMENTS:
            reason = (
                f"stream {group.stream} gathered {longest:,} segments of a group for one task, over "
                f"{MOST_SEGMENTS}: take smaller groups, or more tasks"
            )
            yield from _fail_others(core, [replace(group, causes=((acked, Cause(reason)),))])
            dropped.append(group)
        elif len(acked):
            going.append((group, acked))
        else:
            dropped.append(group)
    if going:
        staging = list[Request]()
        stages = [
            _stage_last(
                core, Staging(group.stream, to=waits.staged_for[group.stream], into=staging), group, acked
            )
            for group, acked in going
        ]
        staged = yield from abreast(stages)
        gates = [_gates(core, group, acked, staging) for group, acked in going]
        afterwards = [] if dropped else list(last)
        at_hand = AtHand(staging, conditions=conditions, afterwards=afterwards)
        what = Commit(tuple(staged), gates=tuple(gates))
        if not (yield from commits.commit(core, WRITER, number, what, at_hand=at_hand)):
            return None
        if afterwards:
            last.clear()
    for group in dropped:
        yield from gathered.close(core, group.stream, group.group, group.tasks)
    return int(bool(going))


def _lengths(core: Core, ready: Sequence[Place]) -> Operation[list[int]]:
    """Returns the number of waiting segments of each group, task by task."""
    lengths: list[int] = yield [
        command("XLEN", stream_keys.gathered(place.group, task))
        for place in ready
        for stream_keys in [keys.Stream(core.config.name, place.stream)]
        for task in range(place.tasks)
    ]
    return lengths


def _stage_last(core: Core, staging: Staging, group: Arrived, acked: Ids) -> Operation[Staged]:
    """Stages the rows that end the bundles of a group: a row for each request and task."""
    anchors = group.anchors(acked, group.section + 1)
    rows = pa.RecordBatch.from_pydict({ANCHORS: pa.array(anchors), FINISHED: pa.array([True] * len(anchors))})
    pieces = yield from abreast(
        [
            stage_segment(
                core, staging, [rows], gathers.destination(group.group, task, group.section, last=True)
            )
            for task in range(group.tasks)
        ]
    )
    return Staged(group.stream, tuple(pieces))


def _gates(core: Core, group: Arrived, acked: Ids, into: list[Request]) -> Segment:
    """Returns the gates of the next section of requests. into: gets the requests that stage them."""
    anchors, segment_id = group.anchors(acked, group.section + 1), segments.new_hex_id()
    requests, shards = stage_deltas(
        core, STAGING_TTL, anchors, sections.gates(anchors, group.line.mark), segment_id, 0, "1"
    )
    into += requests
    return Segment(segment_id, len(anchors), 0, 0, shards, (0,))
