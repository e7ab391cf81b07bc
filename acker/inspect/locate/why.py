"""Reasons of an incomplete tree: the places of its tuples, their subscriptions, readers and ages.

The answer proves itself: if the XOR of the places' tuples equals the tree's ack value, nothing is missing. A
tuple that is in no stream is in a bolt in plain Python, or was lost.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece; a gate is an id that keeps a tree open until rows may come into it.
"""

import functools
import operator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from acker.inspect.locate import drops, place, search
from acker.inspect.locate.place import Place
from acker.inspect.locate.search import SearchCursor
from acker.inspect.trees import clocks, failures, traces
from acker.inspect.trees.failure import Failure, TreeOutcome
from acker.inspect.trees.traces import TraceEvent
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Count, Cursor, Id
from acker.ledger.slabs import sections
from acker.ledger.steps import held, step_registry, step_totals
from acker.ledger.steps.held import Held
from acker.ledger.steps.step_totals import Seen
from acker.ledger.trees import trees
from acker.ledger.trees.trees import Tree
from acker.ledger.trees.trees import tree as tree_of
from acker.store.operation import Operation
from acker.streams.log import gathers

_TRIES = 3
IN_NO_STREAM = (
    "some of its tuples are in no stream: a bolt in plain Python has them and has not said so, a job has "
    "emitted them outside acker, or they were lost, as by a stream's limits"
)
BESIDE = f"beside these, or in place of one that was acked since its bolt said so, {IN_NO_STREAM}"
GATED = "it goes on when all requests of its group are done with the section before"
OVER = "its section is over: the request goes on when all of its group are done with it"
MOVED = "the tree has gone on while it was looked at, each time: ask again"
MANY = (
    f"more than {search.MOST_SEEN} segments of it were on their way into streams when the look began: "
    "whether all was found is not known, ask again"
)
NO_TRACK = "its track has not come yet"
UNKNOWN = "the store knows no such tree: it was acked long ago, or never tracked, or the store has lost it"


@dataclass(frozen=True, slots=True)
class Why:
    """The places of a tree. The answer proves itself: its XOR is the ack value of the tree."""

    anchor: Id
    tree: Annotated[Tree | None, "null where the ledger does not know it (any more)."]
    ended: Annotated[Failure | None, HIDDEN] = None
    places: tuple[Place, ...] = ()
    complete: Annotated[
        bool | None,
        "Whether these are all of its tuples, with the places of all pages before; null where that is not "
        "known.",
    ] = None
    rest: Annotated[
        str,
        "Where not complete: what else there may be, for people. Of a section of a line: that the one before "
        "is not over.",
    ] = ""
    looked_at: Annotated[Count, "Segments looked at, on all pages so far."] = 0
    segments: Annotated[Count, "Segments that there are, about."] = 0
    cursor: Cursor = None
    held: Annotated[
        tuple[Held, ...], "Tuples that bolts in plain Python said to have, the oldest first."
    ] = ()
    seen: Annotated[tuple[Seen, ...], "Of a tree in flight, the latest first; none in slabs of one."] = ()
    trace: Annotated[tuple[TraceEvent, ...], "What became of it so far, where it is traced."] = ()

    @property
    def outcome(self) -> Annotated[TreeOutcome | None, "How it has failed or expired, where that is kept."]:
        """Returns the outcome of a failed or expired tree, if it is kept."""
        return None if self.ended is None else self.ended.outcome


def why(core: Core, anchor: int, *, rows: bool = False, cursor: str | None = None) -> Operation[Why]:
    """Finds the places of a tree's tuples. Changes nothing.

    rows: reads the segments, and counts the tree's rows in the first 100 of them, or 64 MiB. One call reads
    10,000 segments, or finds 1,000 places; the next call continues with its `cursor`. If the tree goes on
    meanwhile, the search is repeated, three times at most. Raises ValidationError.
    """
    anchor = ids.check_id(anchor, "anchor")
    walk = None if cursor is None else SearchCursor.parse(cursor, anchor)
    answer = yield from _looked(core, anchor, rows, walk)
    events = yield from traces.trace(core, anchor)
    tree = None if answer.tree is None else (yield from clocks.with_waits(core, [answer.tree]))[0]
    return replace(answer, tree=tree, trace=tuple(traces.with_end(events, answer.ended)))


def _looked(core: Core, anchor: int, rows: bool, walk: SearchCursor | None) -> Operation[Why]:
    tree = yield from tree_of(core, anchor)
    tries = 0
    while True:
        if tree is None or tree.state == "finished":
            return (yield from _ended(core, anchor, tree))
        tries += 1
        begun = walk or SearchCursor(tree.value)
        streams, at_work = (yield from search.streams(core)), (yield from step_registry.steps(core))
        located, more = yield from search.look(core, tree, begun, streams, at_work)
        tree = yield from tree_of(core, anchor)
        moved = tree is None or tree.value != begun.value
        if not moved or more or walk is not None or tries == _TRIES:
            break
    if tree is None or tree.state == "finished":
        return (yield from _ended(core, anchor, tree))
    shown = yield from place.shown(core, anchor, located, streams, at_work, rows)
    in_python: tuple[Held, ...] = ()
    complete, rest = None, MANY if walk is not None and not walk.value else MOVED
    most = max(streams.segments, begun.looked)
    if more:
        rest = f"looked at {begun.looked:,} of about {most:,} segments"
    elif not moved:
        left = begun.xor ^ begun.value
        gated = left != 0 and left == (yield from _gate(core, anchor))
        if left and not gated:
            in_python = tuple((yield from held.of_tree(core, anchor)))
            left ^= functools.reduce(operator.xor, (one.own for one in in_python), 0)
        complete = left == 0 or gated
        lost = BESIDE if in_python else IN_NO_STREAM
        rest = GATED if gated else "" if complete else NO_TRACK if tree.state == "waiting" else lost
        if rest == lost and (lately := (yield from drops.since(core, streams.named, tree.age))):
            rest = f"{rest}: {lately.text()}"
    next_page = begun.text(anchor) if more else None
    [seen] = yield from step_totals.seen(core, core.shards[tree.shard], [ids.slab_of(anchor)])
    return Why(
        anchor, tree, None, shown, complete, rest, begun.looked, most, next_page, in_python, tuple(seen)
    )


def _gate(core: Core, anchor: int) -> Operation[int]:
    """Returns the gate that keeps a tree open until the section before is over; 0 if there is none."""
    anchors = np.array([anchor], np.int64)
    line = int(sections.lines(anchors)[0])
    if not line or sections.sections(anchors)[0] == 1:
        return 0
    mark = (yield from gathers.marks(core)).get(line)
    return 0 if mark is None else int(sections.gates(anchors, mark)[0])


def _ended(core: Core, anchor: int, tree: Tree | None) -> Operation[Why]:
    ended = yield from failures.find(core, anchor)
    if ended is not None:
        rest = ": ".join(filter(None, (f"it has {ended.status}", ended.cause.reason)))
    elif tree is not None:
        rest = OVER if tree.spout == sections.SPOUT else "it is over: its outcome waits for its spout"
    else:
        later = yield from _goes_on(core, anchor)
        rest = UNKNOWN if later is None else f"its section is over: the request goes on as tree {later}"
    return Why(anchor, tree, ended, rest=rest)


def _goes_on(core: Core, anchor: int) -> Operation[int | None]:
    """Returns the tree of the section that a request is in, after an earlier section is over."""
    anchors = np.array([anchor], np.int64)
    if not sections.lines(anchors)[0]:
        return None
    first = int(sections.sections(anchors)[0])
    later = [int(sections.within(anchors, number)[0]) for number in range(first + 1, sections.SECTIONS + 1)]
    there = yield from trees.trees_at(core, later)
    return min((one.anchor for one in there if one.state == "pending"), default=None)
