"""The data of a settle's commit: a new root and a tuple of the stream for each row that is tried again.

Terms: roots are rows of a spout that were staged together, and get a tree each; staged rows are stored, but
nobody sees them before a commit.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import SchemaMismatch
from acker.ledger.calls.core import Core
from acker.ledger.outcomes.outcomes import Entry
from acker.store.operation import Operation, Request
from acker.streams.commits import chunks
from acker.streams.commits.known import AtHand
from acker.streams.log import schemas
from acker.streams.log.segments import SEGMENT_BYTES
from acker.streams.sources import attempts, kept_rows, roots
from acker.streams.sources.attempts import Attempt
from acker.streams.sources.kept_rows import KeptSlab, Settling
from acker.streams.sources.roots import Roots, StagedRoots
from acker.streams.sources.spout_options import SpoutOptions, outcomes_stream
from acker.streams.spouts.settle_facts import Facts, placed
from acker.streams.staging.staging import STAGING_TTL, Staged, Staging, stage_segment

_MOST_GROUPS = 64
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Group:
    """Rows with the same options and schema, which are replayed together."""

    how: SpoutOptions
    number: int
    batches: list[pa.RecordBatch]
    origin: tuple[str, int] | None = None
    rows: int = 0
    bytes: int = 0
    roots_ids: set[str] = field(default_factory=set)
    first_tracked: int = 0
    ids: tuple[str, ...] = ()


class StagedReplays:
    """Stages the rows of a settle, so that a commit replays them.

    The requests are sent with the commit if they are small, and before it otherwise.

    staged, roots: the contents of the commit. unreadable: ids of roots whose rows are gone, cannot be
    read, or are no longer of use to their stream.
    """

    def __init__(self, core: Core, facts: Facts) -> None:
        self.core, self.facts = core, facts
        self.staged: list[Staged] = []
        self.roots: list[Roots] = []
        self.unreadable: set[str] = set()
        self._into: list[Request] = []
        self._new = StagedRoots()

    def at_hand(self, conditions: Sequence[Request], settling: Settling) -> AtHand:
        """The data at hand for the commit."""
        given = [*conditions, *self._new.free]
        return AtHand(self._into, conditions=given, rows=self._new.rows, settling=settling)

    def stage(self, entries: Sequence[Entry], by_slab: Mapping[bytes, KeptSlab]) -> Operation[None]:
        """Stages each row that is to be tried again."""
        core, groups = self.core, dict[tuple[object, ...], _Group]()
        for old, ended, first_tracked in self._again(entries, by_slab):
            rows = yield from self.facts.rows.rows(old)
            if rows is None:
                self.unreadable.add(old.id)
                continue
            most, places = roots.most_rows(core, old.how), sorted(ended)
            for at in range(0, len(places), most):
                part = attempts.take(rows, {place: ended[place] for place in places[at : at + most]})
                query, batch = old.origin or ("", 0)
                # Rows are counted as tracked with the first of their group: up to a second early.
                second = first_tracked // 1000 if len(groups) < _MOST_GROUPS else 0
                ids = self.facts.rows.ids.get(old.id, ())
                name = (old.how, old.number, part.schema.to_string(), query, second, ids)
                group = groups.get(name)
                if group is not None and group.rows + part.num_rows > most:
                    yield from self._stage_group(groups.pop(name))
                    group = None
                if group is None:
                    group = groups[name] = _Group(old.how, old.number + 1, [], old.origin, ids=ids)
                group.first_tracked = min(group.first_tracked or first_tracked, first_tracked)
                if group.origin is not None:
                    group.origin = query, min(batch, group.origin[1])
                group.batches += part.to_batches()
                group.rows += part.num_rows
                group.bytes += part.nbytes
                group.roots_ids.add(old.id)
                if group.bytes >= SEGMENT_BYTES:
                    yield from self._stage_group(groups.pop(name))
        for group in groups.values():
            yield from self._stage_group(group)

    def _again(
        self, entries: Sequence[Entry], by_slab: Mapping[bytes, KeptSlab]
    ) -> list[tuple[Roots, dict[int, Attempt], int]]:
        """The roots that have rows to be tried again, the ended attempts of these, and their first track."""
        again: dict[str, tuple[Roots, dict[int, Attempt]]] = {}
        first: dict[str, int] = {}
        for entry, outcome, place in placed(entries, by_slab):
            if place.fate(entry, outcome) == "replayed":
                one = Attempt.from_outcome(place.roots.number, entry, outcome, self.facts.expired)
                ended = again.setdefault(place.roots.id, (place.roots, {}))[1]
                ended.update(dict.fromkeys(place.rows(outcome), one))
                at = kept_rows.first_tracked(place.roots, entry, outcome)
                first[place.roots.id] = min(first.get(place.roots.id, at), at)
        return [(old, ended, first[old.id]) for old, ended in again.values()]

    def _stage_group(self, group: _Group) -> Operation[None]:
        """Stages a group, unless its stream was made anew and no longer takes the rows."""
        core, options = self.core, group.how
        schema = attempts.visible(group.batches[0].schema)
        stored, to = self.facts.streams[options.stream]
        try:
            yield from schemas.record_over(
                core, options.stream, roots.anchored_schema(schema, options), stored
            )
        except SchemaMismatch as error:  # the other outcomes of the spout are settled all the same
            _log.error("rows of spout %r are kept, and not tried again: %s", options.spout, error)
            self.unreadable |= group.roots_ids
            return
        staging = Staging(options.stream, to=to, into=self._into)
        line = self.facts.lines[options.line] if options.line and core.config.ackers else None
        new_roots, piece = yield from roots.emit(
            core, options, staging, group.batches, group.number,
            line=line, staged_roots=self._new, first_tracked=group.first_tracked, ids=group.ids,
        )  # fmt: skip
        self.roots += [replace(new, origin=group.origin) for new in new_roots]
        self.staged.append(piece)
        yield from self._send_many()

    def stage_outcomes(self, spout: str, table: pa.Table) -> Operation[None]:
        """Stages outcomes as rows of the stream of outcomes."""
        stream = outcomes_stream(spout)
        stored, to = self.facts.streams[stream]
        yield from schemas.record_over(self.core, stream, table.schema, stored)
        how = Staging(stream, ttl=STAGING_TTL, to=to, into=self._into)
        batches = table.combine_chunks().to_batches()
        self.staged.append(Staged(stream, ((yield from stage_segment(self.core, how, batches)),)))
        yield from self._send_many()

    def _send_many(self) -> Operation[None]:
        """Sends the requests if they are more than one commit takes along."""
        if not chunks.small(self._into):
            yield list(self._into)
            self._into.clear()
            self._new.rows.clear()
