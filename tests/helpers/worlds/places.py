"""A topology of which it is noted where each tuple of each tree is, and the answers of `why` and `stuck`."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import reduce
from itertools import count
from operator import xor
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from acker import Topology, Tuple
from acker.inspect.locate.stuck import Stuck, stuck
from acker.inspect.locate.why import IN_NO_STREAM, Why, why
from acker.ledger import ids
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.ledger.tick import tick
from acker.streams import Stream, StreamWriter
from acker.streams.commits.commit import commit as committing
from acker.streams.commits.contents import Commit
from acker.streams.log import segments
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Range
from acker.streams.staging.staging import Staged
from tests.helpers.builders.streaming import commit, delivered, run_cut, slot_of, stage, take, track

HELD = "join.held"
READ = (("lines", "default"), ("words", "count"), ("words", "audit"), (HELD, "default"))
"""The subscriptions. The bolt `join` holds rows in a stream of its own, which it reads under its name."""
HELD_BY = "held by bolt join for a later batch"
Place: TypeAlias = tuple[str, str, str, str, str, int]
"""Stream, subscription, segment, reader or "", its holder or "", and rows of the tree."""
_names = count()


@dataclass(eq=False)
class Piece:
    """A segment that a subscription has not acked. words: the XOR of each tree's tuple ids there."""

    stream: str
    subscription: str
    segment: str
    rows: list[list[int]]
    words: dict[int, int]
    reader: str = ""

    def of(self, anchor: int) -> Place:
        """The piece as a place of a tree."""
        held_by = HELD_BY if self.stream == HELD else ""
        rows = sum(anchor in row for row in self.rows)
        return (self.stream, self.subscription, self.segment, self.reader, held_by, rows)


@dataclass
class PlacesWorld:
    """A topology, and the places of its tuples. Moves are methods of two numbers and a plan."""

    url: str
    pieces: list[Piece] = field(default_factory=list)
    words_of: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Tree -> the ids of its tuples that are in no stream."""
    trees: dict[int, bool] = field(default_factory=dict)
    """Tree -> True while it is pending."""
    tuples: list[Tuple] = field(default_factory=list)
    taken: defaultdict[tuple[str, str], list[Range]] = field(default_factory=lambda: defaultdict(list))
    slots: dict[tuple[str, str], int] = field(default_factory=dict)
    generation: Counter[str] = field(default_factory=Counter)
    commits: int = 0

    def __post_init__(self) -> None:
        self.topology = Topology(self.url, f"t{next(_names)}", ackers=2, linger=None)
        self.ledger = self.topology.ledger
        for stream, name in READ:
            Stream(self.ledger, stream).subscribe(name)
            self.slots[stream, name] = slot_of(self.ledger, stream, name)
        take(self.ledger, HELD, reader="join")
        self.ledger.run(step_registry.register(self.ledger.core, Step("join", "bolt", "app")))

    # Moves

    def emit(self, rows: int, slab: int, _: list[int]) -> None:
        """A spout tracks rows, and writes them to a stream."""
        writer = StreamWriter(self.ledger, "lines")
        batch = writer.batch(pa.table({"line": [f"line {n}" for n in range(rows)]}))
        anchors = track(self.ledger, batch.ids(), slab)
        writer.publish(batch, anchors)
        self.trees |= dict.fromkeys(anchors.tolist(), True)
        [part] = batch.parts
        segment = Segment(part.id, rows, part.seed, 0, (), batch.slots)
        self._publish("lines", segment, [[anchor] for anchor in anchors.tolist()])

    def take(self, place: int, reader: int, plan: list[int]) -> None:
        """A reader takes segments."""
        stream, name = READ[place % len(READ)]
        named = "join" if stream == HELD else f"r{reader % 2}"
        named += f"-{self.generation[named]}" if self.generation[named] else ""
        batch = take(self.ledger, stream, name, named, segments=1 + len(plan))
        members = {one.segment.id for one in delivered(self.ledger, batch)}
        for piece in self.pieces:
            if (piece.stream, piece.subscription) == (stream, name) and piece.segment in members:
                piece.reader = named
        if members:
            self.taken[stream, name].append(batch)

    def work(self, place: int, cut: int, plan: list[int]) -> None:
        """A bolt acks the rows that were taken, and emits, joins and holds some. Its driver may die once."""
        stream, name = READ[place % len(READ)]
        if not self.taken[stream, name]:
            return
        batch = self.taken[stream, name].pop(0)
        members = {one.segment.id for one in delivered(self.ledger, batch)}
        inputs = [
            piece
            for piece in self.pieces
            if (piece.stream, piece.subscription) == (stream, name) and piece.segment in members
        ]
        out: dict[str, list[list[int]]] = {"words": [], HELD: []}
        rows = [row for piece in inputs for row in piece.rows]
        for number, row in enumerate(rows):
            how = plan[number % len(plan)] if plan else 0
            if how in (1, 2):
                out["words"] += [row] * how
            elif how == 3:
                out[HELD].append(row)
            elif how == 4:
                out["words"].append([*row, *rows[number - 1]])
        staged = {to: stage(self.ledger, kept, to, rows=2) for to, kept in out.items() if kept}
        work = Commit(tuple(staged.values()), (batch,))
        self.commits += 1
        run_cut(self.ledger, committing(self.ledger.core, "writer", self.commits, work), cut)
        self._check_cut(inputs, list(staged.values()))
        commit(self.ledger, self.commits, work)
        self.pieces = [piece for piece in self.pieces if piece not in inputs]
        for to, of in staged.items():
            first = 0
            for segment in of.segments:
                self._publish(to, segment, out[to][first : first + segment.rows])
                first += segment.rows
        self._settle()

    def give_back(self, place: int, reader: int, _: list[int]) -> None:
        """A query is given up: others get what it has taken."""
        stream, name = READ[place % len(READ)]
        readers = sorted({batch.reader for batch in self.taken[stream, name]} - {"join"})
        if not readers:
            return
        gone = readers[reader % len(readers)]
        Stream(self.ledger, stream).give_back(gone, name)
        self.taken[stream, name] = [one for one in self.taken[stream, name] if one.reader != gone]
        self.generation[gone.partition("-")[0]] += 1
        for piece in self.pieces:
            if (piece.stream, piece.subscription, piece.reader) == (stream, name, gone):
                piece.reader = ""

    def plain(self, targets: int, _: int, __: list[int]) -> None:
        """A spout in plain Python emits a record."""
        self.tuples += self.topology.spout("plain").emit(message_id="m", targets=targets)
        self.topology.flush()
        for one in self.tuples[-targets:]:
            for anchor, word in one.edges.items():
                self.trees[anchor] = True
                self.words_of[anchor].append(word)

    def bolt(self, first: int, targets: int, plan: list[int]) -> None:
        """A bolt in plain Python acks some tuples, and emits tuples that are anchored to all of them."""
        if not self.tuples:
            return
        at = [(first + step) % len(self.tuples) for step in range(1 + len(plan))]
        parents = [self.tuples[place] for place in sorted(set(at))]
        self.tuples = [one for one in self.tuples if one not in parents]
        bolt = self.topology.bolt("bolt")
        children = bolt.emit(parents, targets=targets % 3)
        for parent in parents:
            bolt.ack(parent)
            for anchor, word in parent.edges.items():
                self.words_of[anchor].remove(word)
        for child in children:
            for anchor, word in child.edges.items():
                self.words_of[anchor].append(word)
        self.topology.flush()
        self.tuples += children
        self._settle()

    def outside(self, tree: int, _: int, __: list[int]) -> None:
        """A job emits a tuple outside acker."""
        pending = [anchor for anchor, open_ in self.trees.items() if open_]
        if pending:
            anchor, word = pending[tree % len(pending)], ids.new_ids(1)
            self.ledger.update([anchor], word)
            self.words_of[anchor] += word.tolist()

    def fail(self, tree: int, _: int, __: list[int]) -> None:
        """A bolt fails a tree."""
        pending = [anchor for anchor, open_ in self.trees.items() if open_]
        if pending:
            self.ledger.fail([pending[tree % len(pending)]], "bad")
            self.trees[pending[tree % len(pending)]] = False

    def expire(self, _: int, __: int, ___: list[int]) -> None:
        """Time passes, in which nobody acks."""
        for _ in range(4):
            self.ledger.run(tick.tick(self.ledger.core, force=True))
        self.trees = dict.fromkeys(self.trees, False)

    # Notes and checks

    def _publish(self, stream: str, segment: Segment, rows: list[list[int]]) -> None:
        anchors = [anchor for row in rows for anchor in row]
        for name in (name for other, name in READ if other == stream):
            slot = self.slots[stream, name]
            assert slot in segment.slots
            words = defaultdict[int, int](int)
            own = segments.edge_ids(segment.seed, slot, np.arange(len(anchors), dtype=np.int64))
            for anchor, word in zip(anchors, own.tolist(), strict=True):
                words[anchor] ^= word
            self.pieces.append(Piece(stream, name, segment.id, rows, dict(words)))

    def _settle(self) -> None:
        """Trees of which nothing is left are over."""
        left = {anchor for piece in self.pieces for anchor in piece.words} | {
            anchor for anchor, own in self.words_of.items() if own
        }
        self.trees = {anchor: open_ and anchor in left for anchor, open_ in self.trees.items()}

    def ask(self, anchor: int) -> Why:
        return self.ledger.run(why(self.ledger.core, anchor, rows=True))

    def check(self) -> None:
        """Compares all answers with the noted places."""
        found = {(one.stream, one.subscription): _shares(one) for one in self._stuck()}
        known = defaultdict[tuple[str, str], dict[str, tuple[int, int]]](dict)
        for piece in self.pieces:
            own = known[piece.stream, piece.subscription]
            number, rows = own.get(piece.reader, (0, 0))
            own[piece.reader] = number + 1, rows + len(piece.rows)
        assert found == known
        for anchor, is_open in self.trees.items():
            answer = self.ask(anchor)
            if not is_open:
                assert answer.places == ()
                assert answer.tree is None or answer.tree.state == "finished"
                continue
            there = [piece for piece in self.pieces if anchor in piece.words]
            assert _places(answer) == sorted(piece.of(anchor) for piece in there)
            outside = self.words_of[anchor]
            assert answer.tree is not None
            assert answer.tree.value == reduce(xor, [*(piece.words[anchor] for piece in there), *outside])
            assert answer.complete is not bool(outside)
            assert answer.rest == (IN_NO_STREAM if outside else "")

    def _check_cut(self, inputs: list[Piece], staged: list[Staged]) -> None:
        """A commit is under way: the places are the batch's, and of what it emits; other trees stay."""
        new = {segment.id for one in staged for segment in one.segments}
        for anchor, is_open in self.trees.items():
            if not is_open or not any(anchor in piece.words for piece in inputs):
                continue
            answer = self.ask(anchor)
            if answer.tree is None or answer.tree.state != "pending":
                continue
            assert answer.complete is not bool(self.words_of[anchor])
            there = {place.segment for place in answer.places}
            stays = {one.segment for one in self.pieces if anchor in one.words and one not in inputs}
            assert stays <= there
            assert there <= stays | new | {one.segment for one in inputs if anchor in one.words}

    def _stuck(self) -> list[Stuck]:
        return list(self.ledger.run(stuck(self.ledger.core)).stuck)


def _shares(one: Stuck) -> dict[str, tuple[int, int]]:
    return {share.holder.reader if share.holder else "": (share.segments, share.rows) for share in one.shares}


def _places(answer: Why) -> list[Place]:
    return sorted(
        (
            one.stream,
            one.subscription or "",
            one.segment,
            one.taken_by.reader if one.taken_by else "",
            one.held_by,
            one.rows or 0,
        )
        for one in answer.places
    )
