"""What is known of a commit without a question, and what is asked for it ahead of its steps."""

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
from acker.streams.log.subscriptions import MOST_GIVEN, Range, Taken
from acker.streams.sources import roots, tracking
from acker.streams.sources.kept_rows import Settling
from acker.streams.sources.roots import Roots
from acker.streams.staging import acks, effects, results, skipped, staging, vectors
from acker.streams.staging.skipped import Skipped
from acker.streams.staging.vectors import NO_HEADS, StagedVectors, VectorKey

_KEYS, _FEW_TOKENS = 256, 16


@dataclass(slots=True)
class Ready:
    """Things at hand to whoever commits, and what is to be done besides."""

    staging: Sequence[Request] = ()
    """Requests that stage what the commit publishes, and that were not sent."""
    conditions: Sequence[Request] = ()
    """Scripts of a reply of 1 where the commit may be carried out, and 0 where not.

    Nothing is staged then.
    """
    taken: Mapping[Range, Sequence[Taken]] = field(default_factory=dict)
    """The segments of its inputs. Whoever has them forgets earlier ones himself."""
    heads: Mapping[bytes, Reply] = field(default_factory=lambda: NO_HEADS)
    """What `acker.streams.staging.vectors.head` was answered of the inputs."""
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    """The rows of its roots, by token; their spouts are registered."""
    settling: Settling | None = None
    """What it settles."""
    afterwards: Sequence[Operation[Any]] = ()
    """What is to be done when the commit is, side by side with what it leaves."""
    later: list[Operation[Any]] | None = None
    """Gets all that, for the caller to do with its next question; None: it is done now."""
    sent: bool = False
    """Whether staging and conditions were sent: the commit is stored, or all that it needs is staged."""
    refused: bool = False
    """Whether a condition did not hold; nothing is committed then."""


class Known:
    """What is known of a commit: what is at hand to the caller, and what was asked.

    Steps ask for the rest.
    """

    def __init__(self, core: Core, what: Commit, ready: Ready) -> None:
        self.core, self.what, self.ready = core, what, ready
        self.earlier: dict[Range, Sequence[Taken]] = {}
        """What readers had before their ranges, where that was asked."""
        self.vectors: dict[bytes, StagedVectors] = {}
        self.digests: dict[str, list[bytes]] = {}
        self.times: Sequence[Reply] = ()
        self.spouts = bool(ready.rows)
        """Whether the spouts are registered."""
        self._taken = dict(ready.taken)
        self._rows: dict[str, pa.Table | None] = dict(ready.rows)
        self._skipped: dict[Range, Skipped | None] = {}
        self._failures: dict[str, pa.Table | None] = {}
        self._results: dict[str, list[str]] = {}

    def at_hand(self) -> bool:
        """Whether all is known of what is staged together with the commit: nobody can look at that before."""
        if not self.ready.staging:
            return True
        if self.core.config.traces:  # what is staged tells of which
            return False
        ours, given = self._ours(), self.what.results()
        self.vectors |= vectors.noted_of(ours)
        self._results |= results.noted_of(given)
        return all(key in self.vectors for key, _ in ours) and len(self._results) == len(given)

    def _ours(self) -> list[VectorKey]:
        """Where the commit has staged vectors."""
        gates = [("", one) for one in self.what.gates]
        of_roots = [place for one in self.what.roots() for place in roots.vector_keys(self.core, one)]
        return [*self.places([*self.what.segments(), *gates]), *of_roots]

    def look(self, *, tracks: bool) -> Operation[None]:
        """Asks for what is not at hand, as far as it is little. tracks: the roots are not tracked yet."""
        what, core = self.what, self.core
        tracks = tracks and bool(what.roots())
        ours = self._ours()
        looks: list[Operation[Any]] = [self._look_at(ours[:_KEYS], ours=True)]
        ranges = what.ranges()
        few = sum(one.end - one.start for one in ranges) <= MOST_GIVEN
        looks += [self._look_at_range(one) for one in ranges if few]
        if tracks and not self.spouts:
            looks.append(core.register_spouts(tracking.spouts_of(what.roots())))
            self.spouts = True
        if tracks and sum(one.rows for one in what.roots()) <= chunks.MOST_WEIGHT:
            looks += [self.rows(one) for one in what.roots()]
        looks += [self.failures(token) for token in what.failures()[:_FEW_TOKENS]]
        looks.append(self._look_at_effects())
        looks.append(self.results())
        yield from abreast(looks)

    def _look_at(self, places: Sequence[VectorKey], *, ours: bool = False) -> Operation[None]:
        asked = [place for place in places if place[0] not in self.vectors]
        self.vectors |= yield from vectors.look(asked, self.ready.heads, ours=ours)

    def _look_at_range(self, one: Range) -> Operation[None]:
        own: list[Operation[Any]] = [self.skipped(one), self._look_at_taken(one)]
        if one not in self.ready.taken:
            own.append(self._look_at_earlier(one))
        yield from abreast(own)

    def _look_at_taken(self, one: Range) -> Operation[None]:
        found = yield from self.taken(one)
        if self.what.failed is None and not self.of_others:
            members = [("", piece.segment) for piece in found[: acks.FLIGHT]]
            yield from self._look_at(self.places(members, one.slot)[:_KEYS])

    @property
    def of_others(self) -> bool:
        """Whether segments lie in shards that the process does not know: the topology was made anew."""
        pieces = (piece for found in self._taken.values() for piece in found)
        return any(max(one.segment.shards, default=-1) >= self.core.config.ackers for one in pieces)

    def _look_at_earlier(self, one: Range) -> Operation[None]:
        before = Range(one.stream, one.slot, one.reader, 0, one.start)
        self.earlier[one] = yield from subscriptions.taken(self.core, before)

    def _look_at_effects(self) -> Operation[None]:
        tokens = [token for token, _ in self.what.effects()] + self.what.released()
        if not tokens or len(tokens) > _FEW_TOKENS:
            return
        times = effects.asking_times(self.core)
        asked = [command("GET", keys.effects(self.core.config.name, token)) for token in tokens]
        replies = yield [*times, *asked]
        self.times = replies[: len(times)]
        for token, packed in zip(tokens, replies[len(times) :], strict=True):
            self.digests[token] = effects.parse(packed)

    def taken(self, one: Range) -> Operation[Sequence[Taken]]:
        """The segments of a range."""
        if one not in self._taken:
            self._taken[one] = yield from subscriptions.all_taken(self.core, one)
        return self._taken[one]

    def skipped(self, one: Range) -> Operation[Skipped | None]:
        """What is left out of a range; None where that was lost."""
        if one not in self._skipped:
            self._skipped[one] = yield from skipped.read(self.core, one)
        return self._skipped[one]

    def rows(self, one: Roots) -> Operation[pa.Table | None]:
        """The rows of roots; None where they are gone, or cannot be read."""
        if one.token not in self._rows:
            self._rows[one.token] = yield from roots.kept_rows(self.core, one)
        return self._rows[one.token]

    def failures(self, token: str) -> Operation[pa.Table | None]:
        """Trees that were staged to be failed; None where they are gone."""
        if token not in self._failures:
            self._failures[token] = yield from staging.failures(self.core, token)
        return self._failures[token]

    def results(self) -> Operation[dict[str, list[str]]]:
        """The anchors of the results of functions, by token."""
        if self.what.results() and not self._results:
            self._results = yield from results.look(self.core, self.what.results())
        return self._results

    def places(self, members: Sequence[tuple[str, Segment]], slot: int | None = None) -> list[VectorKey]:
        """Where segments have vectors, for a slot or for all."""
        return [place for _, one in members for place in vectors.keys_of(self.core, one, slot)]

    def drop_rows(self, one: Roots) -> None:
        """Lets go of the rows of roots."""
        self._rows.pop(one.token, None)
