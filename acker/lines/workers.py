"""Workers: who runs a step of a line in plain Python takes segments, works, and commits.

A worker says every few seconds that it lives. One that does not for `LEASE` seconds loses what it has taken
to the others: a commit that it stores after that has no effect. So a worker that died costs a repeat, and one
that was only paused does no harm.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ReaderFenced, UnreadableRecord
from acker.ledger import ids, once
from acker.ledger.causes import Cause
from acker.ledger.client import Ledger
from acker.ledger.core import Core
from acker.lines.steps import FunctionStep, GatherStep, Read, stage_made
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds, pairs, whole
from acker.streams import downtime, segments, stale, subscriptions
from acker.streams.commits import commit as commits
from acker.streams.commits import giving_back, inputs, vectors
from acker.streams.commits.commit import Commit
from acker.streams.gathers import LAST
from acker.streams.reader import payload_of
from acker.streams.segments import ANCHORS, Segment
from acker.streams.subscriptions import HOLD_TTL, Range, Taken

LEASE = 10.0
"""Seconds after which a worker that does not say that it lives is taken for dead."""
MOST_ROWS = 10_000
"""Rows that a worker takes at a time, about."""
_BEGUN = "!"
_log = logging.getLogger(__name__)

Step: TypeAlias = FunctionStep | GatherStep


class Worker:
    """Runs one step, one batch after another. It is its own reader of the step's subscription.

    once: what it has begun and not committed when it dies is not worked on again: its trees fail for good.
    """

    def __init__(self, ledger: Ledger, step: Step, *, most_rows: int = MOST_ROWS, once: bool = False) -> None:
        self.ledger = ledger
        self._once = once
        self.step = step
        self._most_rows = most_rows
        self._slot = -1
        self._ended = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.reader = segments.new_token()
        self._at = self._number = 0

    def work(self) -> int:
        """Works on what there is now, up to a bounded number of rows; returns of how many segments."""
        try:
            return self.ledger.run(self._work())
        except ReaderFenced as error:
            _log.warning("step %s: %s", self.step.name, error)
            self._begin_anew()
            return 0

    def _work(self) -> Operation[int]:
        core, stream = self.ledger.core, self.step.reads
        if self._slot < 0:
            self._slot = yield from subscriptions.subscribe(core, stream, self.step.name)
        # Before it takes anything: who has taken and does not say that it lives would keep that for ever.
        yield from beat(core, stream, self._slot, self.reader)
        end = yield from subscriptions.claim(
            core, stream, self._slot, self.reader, self._at, rows=self._most_rows
        )
        if end == self._at:
            return 0
        what = Range(stream, self._slot, self.reader, self._at, end)
        found, start = list[Taken](), what.start
        while part := (yield from subscriptions.taken(core, replace(what, start=start))):
            found, start = found + part, part[-1].number
        yield from downtime.take_up(core, stream, self._slot, found)
        members = [one.segment for one in found]
        plan = yield from stale.plan(core, stream, self._slot, members)
        what = replace(what, skipped=plan.token, planned=subscriptions.digest(members))
        payloads = yield from payload_of(self.ledger, stream, members)
        acked = yield from _acked(core, self._slot, members)
        read: list[Read] = []
        for segment, payload, shards in zip(members, payloads, acked, strict=True):
            # What is gone, or cannot be read, is lost: no bundle is whole without it.
            rows: list[pa.RecordBatch] = []
            if payload is not None and segment in plan.members:
                rows = yield from inputs.rows(core, stream, segment, self._slot, payload)
            lost = bool(segment.rows) and not rows
            rows = yield from stale.fresh(core, stream, segment, self._slot, rows, plan.left)
            rows = [_without(one, shards, core.config.ackers) for one in rows] if shards else rows
            read.append(Read(segment, rows, lost))
        if self._once:
            begun = f"{what.start} {what.end} {self._number}"
            yield [
                command(
                    "HSET",
                    keys.Stream(core.config.name, stream).workers(self._slot),
                    _begun(self.reader),
                    begun,
                )
            ]
        made = self.step.run(self._number, read)
        staged = yield from stage_made(core, made, self.step.name, self._number)
        yield from commits.commit(core, self.reader, self._number, Commit(staged, (what,)))
        if self._once:
            yield [
                command(
                    "HDEL", keys.Stream(core.config.name, stream).workers(self._slot), _begun(self.reader)
                )
            ]
        yield from subscriptions.forget(core, replace(what, start=0))  # no batch of it runs again
        self._at, self._number = end, self._number + 1
        return len(found)

    def renew(self) -> None:
        """Says that the worker lives."""
        if self._slot >= 0 and not self._ended:
            self.ledger.run(beat(self.ledger.core, self.step.reads, self._slot, self.reader))

    def recover(self) -> int:
        """Gives back what dead workers of the step have taken; returns how many segments."""
        return self.ledger.run(recover(self.ledger, self.step.reads, self._slot, self.step.name))

    def end(self) -> None:
        """Gives back what the worker has taken and not committed; it works no more."""
        self._ended = True
        if self._slot >= 0:
            self.ledger.run(_end(self.ledger.core, self.step.reads, self._slot, self.reader))


def _acked(core: Core, slot: int, members: Sequence[Segment]) -> Operation[list[set[int]]]:
    """For each segment the shards in which it was acked before, or a segment of the same bundle was.

    A store that was set back gives segments again. Who has acked one has published before what was made of
    all of its bundle: what has no vector to be acked by is not worked on a second time.
    """
    places = [vectors.places(core, segment, slot) for segment in members]
    asked = [place for own in places for place in own]
    replies = (yield [command("EXISTS", key) for key, _ in asked]) if asked else []
    there = {place for place, found in zip(asked, replies, strict=True) if found}
    found: list[set[int]] = []
    bundle: set[int] = set()
    for segment, own in zip(members, places, strict=True):
        bundle.update(shard for key, shard in own if (key, shard) not in there)
        found.append(bundle)
        if not segment.to or segment.to.startswith(LAST):
            bundle = set()
    return found


def _without(rows: pa.RecordBatch, shards: set[int], ackers: int) -> pa.RecordBatch:
    """Rows but for those whose trees are in some shards."""
    if ANCHORS not in rows.schema.names or not pa.types.is_int64(rows.schema.field(ANCHORS).type):
        return rows
    anchors = rows.column(ANCHORS).fill_null(0).to_numpy()
    out = np.isin(ids.shards_of(ids.split(anchors)[0], ackers), list(shards)) & (anchors != 0)
    return rows.filter(pa.array(~out))


def beat(core: Core, stream: str, slot: int, reader: str) -> Operation[None]:
    """Notes by the store's clock until when a worker counts as alive."""
    key = keys.Stream(core.config.name, stream).workers(slot)
    [instant] = yield [Request(key, ["TIME"])]
    until = milliseconds(instant) + round(LEASE * 1000)
    yield [command("HSET", key, reader, until), command("EXPIRE", key, HOLD_TTL)]


def _begun(reader: str) -> str:
    """The field of what a worker has begun, beside that of its own time."""
    return f"{_BEGUN}{reader}"


def _fail_begun(
    ledger: Ledger, stream: str, slot: int, reader: str, step: str, begun: bytes
) -> Operation[None]:
    """Fails the trees of what a dead worker has begun and not committed: nobody works on them again."""
    core = ledger.core
    start, end, number = (whole(word, f"what worker {reader} has begun") for word in begun.split(b" "))
    if (yield from commits.known(core, reader, number)):
        return
    what = Range(stream, slot, reader, start, end)
    while found := (yield from subscriptions.taken(core, what)):
        members = [one.segment for one in found]
        payloads = yield from payload_of(ledger, stream, members)
        for segment, payload in zip(members, payloads, strict=True):
            if payload is not None:
                rows = yield from inputs.rows(core, stream, segment, slot, payload)
                anchors = [np.unique(segments.edges(one.column(ANCHORS))[0]) for one in rows]
                cause = Cause(f"worker died in {step}", step, retry=False)
                for part in anchors:
                    yield from once.submit(core, core.fail(part[part != 0], cause.encode()).calls)
        what = replace(what, start=found[-1].number)


def recover(ledger: Ledger, stream: str, slot: int, step: str) -> Operation[int]:
    """Gives back what workers have taken whose time is over; returns how many segments."""
    core = ledger.core
    if slot < 0:
        return 0
    key, back = keys.Stream(core.config.name, stream).workers(slot), 0
    [known, instant] = yield [command("HGETALL", key), Request(key, ["TIME"])]
    begun = {name[1:]: found for name, found in pairs(known).items() if name.startswith(_BEGUN.encode())}
    for reader, until in pairs(known).items():
        if reader.startswith(_BEGUN.encode()):
            continue
        try:
            over = whole(until, f"stream {stream!r}, until when a worker lives") < milliseconds(instant)
        except UnreadableRecord as error:
            _log.error("%s: %s", core.config.name, error)
            over = True
        if over and reader in begun:
            name = reader.decode("utf-8", "replace")
            yield from _fail_begun(ledger, stream, slot, name, step, begun[reader])
        if over:
            back += yield from _end(core, stream, slot, reader.decode("utf-8", "replace"))
    return back


def _end(core: Core, stream: str, slot: int, reader: str) -> Operation[int]:
    back = yield from giving_back.give_back(core, stream, slot, reader)
    yield [command("HDEL", keys.Stream(core.config.name, stream).workers(slot), reader, _begun(reader))]
    yield from commits.forget(core, reader)
    return back
