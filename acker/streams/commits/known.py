"""Data of a commit: the caller's, and replies that were asked for ahead of its steps.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece; a vector has a number for each tree, the XOR of tuple ids; a slot is the random number of a
subscription; roots are rows of a spout that were staged together, and get a tree each; staged rows are
stored, but nobody sees them before a commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, abreast, command
from acker.streams.commits import chunks
from acker.streams.commits.contents import Commit
from acker.streams.log import subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import MOST_GIVEN, Delivery, Range
from acker.streams.sources import roots, tracking
from acker.streams.sources.kept_rows import Settling
from acker.streams.sources.roots import Roots
from acker.streams.staging import acks, effects, results, skipped, staging, vectors
from acker.streams.staging.external.rows.at_once import Given
from acker.streams.staging.skipped import Skipped
from acker.streams.staging.vectors import NO_HEADS, StagedVectors, VectorKey

_KEYS, _FEW_IDS = 256, 16


@dataclass(slots=True)
class AtHand:
    """Data that the caller already has, and work that goes with the commit. It saves the commit its reads."""

    staging: Sequence[Request] = ()
    """Unsent requests that stage the data that the commit publishes."""
    conditions: Sequence[Request] = ()
    """Scripts that reply 1 if the commit may be carried out, and 0 if not. Nothing is staged then."""
    delivered: Mapping[Range, Sequence[Delivery]] = field(default_factory=dict)
    """The segments of its inputs. A caller that gives them forgets earlier segments itself."""
    heads: Mapping[bytes, Reply] = field(default_factory=lambda: NO_HEADS)
    """The replies to `acker.streams.staging.vectors.head` for the inputs."""
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    """The rows of its roots, by id; their spouts are registered."""
    given: Given | None = None
    """The received rows of external streams, if any. With it, one server carries out at once all that the
    commit sends and receives of such streams. `heads` has the vectors of sent segments then.
    """
    settling: Settling | None = None
    """The outcomes that the commit settles."""
    afterwards: Sequence[Operation[Any]] = ()
    """Operations to run when the commit is complete, side by side with its own last ones.

    They begin when its late acks were reported.
    """
    later: list[Operation[Any]] | None = None
    """Gets these operations, so that the caller runs them with its next request; None: the commit runs them.
    """
    sent: bool = False
    """True if staging and conditions were sent: the commit is stored, or all its data is staged."""
    refused: bool = False
    """True if a condition did not hold, so nothing was committed."""


class Known:
    """The data of a commit: the caller's, and replies of the store.

    Each step reads the rest by itself.
    """

    def __init__(self, core: Core, work: Commit, at_hand: AtHand) -> None:
        self.core, self.work, self.at_hand = core, work, at_hand
        self.earlier: dict[Range, Sequence[Delivery]] = {}
        """The segments that readers had taken before their ranges, if they were read."""
        self.vectors: dict[bytes, StagedVectors] = {}
        self.digests: dict[str, list[bytes]] = {}
        self.times: Sequence[Reply] = ()
        self.spouts = bool(at_hand.rows)
        """True if the spouts are registered."""
        self._delivered = dict(at_hand.delivered)
        self._rows: dict[str, pa.Table | None] = dict(at_hand.rows)
        self._skipped: dict[Range, Skipped | None] = {}
        self._failures: dict[str, pa.Table | None] = {}
        self._results: dict[str, list[str]] = {}

    def is_sufficient(self) -> bool:
        """True if the data staged together with the commit is at hand: it cannot be read before."""
        if not self.at_hand.staging:
            return True
        if self.core.config.traces:  # the staged data names the traced trees
            return False
        ours, given = self._ours(), self.work.results()
        self.vectors |= vectors.noted_of(ours)
        self._results |= results.noted_of(given)
        return all(key in self.vectors for key, _ in ours) and len(self._results) == len(given)

    def _ours(self) -> list[VectorKey]:
        """The keys of vectors that the commit has staged."""
        gates = [("", one) for one in self.work.gates]
        of_roots = [place for one in self.work.roots() for place in roots.vector_keys(self.core, one)]
        return [*self.places([*self.work.segments(), *gates]), *of_roots]

    def look(self, *, tracks: bool) -> Operation[None]:
        """Reads the data that is not at hand, as far as it is little. tracks: the roots are not tracked."""
        work, core = self.work, self.core
        tracks = tracks and bool(work.roots())
        ours = self._ours()
        looks: list[Operation[Any]] = [self._look_at(ours[:_KEYS], ours=True)]
        ranges = work.ranges()
        few = sum(item.end - item.start for item in ranges) <= MOST_GIVEN
        looks += [self._look_at_range(item) for item in ranges if few]
        if tracks and not self.spouts:
            looks.append(core.register_spouts(tracking.spouts_of(work.roots())))
            self.spouts = True
        if tracks and sum(item.rows for item in work.roots()) <= chunks.MOST_WEIGHT:
            looks += [self.rows(item) for item in work.roots()]
        looks += [self.failures(staged_id) for staged_id in work.failures()[:_FEW_IDS]]
        looks.append(self._look_at_effects())
        looks.append(self.results())
        yield from abreast(looks)

    def _look_at(self, places: Sequence[VectorKey], *, ours: bool = False) -> Operation[None]:
        asked = [place for place in places if place[0] not in self.vectors]
        self.vectors |= yield from vectors.read_staged(asked, self.at_hand.heads, ours=ours)

    def _look_at_range(self, read_range: Range) -> Operation[None]:
        looks: list[Operation[Any]] = [self.skipped(read_range), self._look_at_taken(read_range)]
        if read_range not in self.at_hand.delivered:
            looks.append(self._look_at_earlier(read_range))
        yield from abreast(looks)

    def _look_at_taken(self, read_range: Range) -> Operation[None]:
        delivered = yield from self.delivered(read_range)
        if self.work.failed is None and not self.of_others:
            members = [("", piece.segment) for piece in delivered[: acks.FLIGHT]]
            yield from self._look_at(self.places(members, read_range.slot)[:_KEYS])

    @property
    def of_others(self) -> bool:
        """True if segments lie in unknown shards, because the topology was made anew."""
        pieces = (piece for found in self._delivered.values() for piece in found)
        return any(max(one.segment.shards, default=-1) >= self.core.config.ackers for one in pieces)

    def _look_at_earlier(self, read_range: Range) -> Operation[None]:
        before = Range(read_range.stream, read_range.slot, read_range.reader, 0, read_range.start)
        self.earlier[read_range] = yield from subscriptions.delivered(self.core, before)

    def _look_at_effects(self) -> Operation[None]:
        staged_ids = [staged_id for staged_id, _ in self.work.effects()] + self.work.released()
        if not staged_ids or len(staged_ids) > _FEW_IDS:
            return
        times = effects.asking_times(self.core)
        asked = [command("GET", keys.effects(self.core.config.name, staged_id)) for staged_id in staged_ids]
        replies = yield [*times, *asked]
        self.times = replies[: len(times)]
        for staged_id, packed in zip(staged_ids, replies[len(times) :], strict=True):
            self.digests[staged_id] = effects.parse(packed)

    def delivered(self, read_range: Range) -> Operation[Sequence[Delivery]]:
        """The segments of a range."""
        if read_range not in self._delivered:
            self._delivered[read_range] = yield from subscriptions.all_delivered(self.core, read_range)
        return self._delivered[read_range]

    def skipped(self, read_range: Range) -> Operation[Skipped | None]:
        """The rows that are left out of a range; None if the store has lost the note of them."""
        if read_range not in self._skipped:
            self._skipped[read_range] = yield from skipped.read(self.core, read_range)
        return self._skipped[read_range]

    def rows(self, tracked: Roots) -> Operation[pa.Table | None]:
        """The rows of roots; None if they are gone, or cannot be read."""
        if tracked.id not in self._rows:
            self._rows[tracked.id] = yield from roots.kept_rows(self.core, tracked)
        return self._rows[tracked.id]

    def failures(self, staged_id: str) -> Operation[pa.Table | None]:
        """Trees that were staged to be failed; None if they are gone."""
        if staged_id not in self._failures:
            self._failures[staged_id] = yield from staging.failures(self.core, staged_id)
        return self._failures[staged_id]

    def results(self) -> Operation[dict[str, list[str]]]:
        """The anchors of the results of functions, by id."""
        if self.work.results() and not self._results:
            self._results = yield from results.read_anchors(self.core, self.work.results())
        return self._results

    def places(self, members: Sequence[tuple[str, Segment]], slot: int | None = None) -> list[VectorKey]:
        """The keys of segments' vectors, for a slot or for all."""
        return [place for _, one in members for place in vectors.keys_of(self.core, one, slot)]

    def drop_rows(self, tracked: Roots) -> None:
        """Forgets the rows of roots."""
        self._rows.pop(tracked.id, None)
