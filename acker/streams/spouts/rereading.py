"""Rereading: where ids alone are kept, rows are read again from their source before they are settled.

A process that can ask the source looks for outcomes of rows that have not ended well and were not read again,
asks for these rows, some at a time, and stores the answers beside the ids. From then on any settler replays
or buries them, as it does with rows of the store's own. Until then their outcomes wait, unconfirmed. Any
number of processes may do it at once, and die at any point: the first stored answer for a row counts.

Histories that were looked at, and their ends:

- A process dies between "ids kept" and "rows emitted": the trees are pending, they expire, and come here.
- A source that raises, or hangs, for ever: its rows wait, pending, within the high-water mark. Nobody replays
  or buries them, so no attempt is used up, and the reason is logged and shown. Where it raises, new rows are
  asked for in calls of their own; rows that wait are asked for in turn.
- Two processes read a row and get different rows, or one gets none: the first stored answer is used by all.
- A process dies after an answer is stored, before a commit: the next settler uses the same answer. So does
  the process that finishes a stored commit.
- Two rows of one id and place: the source gives no more than a row for both, and each gets that row.
- The store is set back before an answer: the row is asked for again. A commit that is finished then does not
  settle it, because it cannot tell a replay from a row that was gone: it may be replayed twice, and is not
  lost.
- The store loses all: the ids are gone like rows (docs/spark/spouts.md, "If the store loses what it had").
- The topology is removed, and made anew with a spout of that name: its rows may be another source's. So a
  process that has asked for rows of the removed one asks for none of these.

Terms: a tree is all that comes of one record; roots are rows of a spout that were staged together, and get a
tree each.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python
import pyarrow.compute as pc  # noqa: TID251 - as above

from acker.errors import SchemaMismatch, ValidationError, ValueTooLong, is_interrupt, text_of
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, follow
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader
from acker.ledger.slabs.causes import log_error, said_by
from acker.store import keys, loops
from acker.store.loops import Pace
from acker.store.operation import Operation, Request, abreast
from acker.store.replies import seconds
from acker.streams.log import schemas, segments
from acker.streams.log.segments import ANCHORS
from acker.streams.sources import kept_ids, kept_rows, rereads, roots
from acker.streams.sources.roots import Roots
from acker.streams.spouts import backoff
from acker.streams.spouts.removal_watch import RemovalWatch
from acker.streams.spouts.wait_notes import WaitNote
from acker.streams.spouts.waiting_rows import MOST_ROWS, Row, WaitingRows

Reread: TypeAlias = Callable[[pa.Table], pa.Table]
"""Gets id columns of rows; returns the rows that their source has, with all columns of the spout's rows."""
MOST_IDS = 5_000
"""Most ids that a source is asked for by one call."""
_LOOK = 20_000
_CALLS, _RAISES, _RAISES_AWAY = 32, 8, 2
"""Most calls of the source for rows that wait, in one step; most that may raise, and if it may be away."""
_WAIT, _LONGEST_WAIT = 1.0, 60.0
_ABREAST = 16
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Unread:
    """Rows of one schema of ids that their source was not asked for."""

    ids: list[pa.Table] = field(default_factory=list)
    places: list[Row] = field(default_factory=list)


class Rereader:
    """Asks a source for the rows of a spout that keeps ids.

    Args:
        ledger: The ledger of the topology.
        spout: The spout.
        reread: The function that asks the source, for at most `MOST_IDS` ids. It may raise: then these ids
            wait, the reason is logged and shown among the troubles of the topology, and they are asked for
            again, fewer by a call (`acker.streams.spouts.waiting_rows`). It may return rows of other ids,
            which are left out, and an id several times: the first row counts. A row of an id that it leaves
            out becomes a dead letter at once (`acker.streams.sources.rereads.GONE`).

    Attributes:
        trouble: The reason why rows wait, or "".
    """

    def __init__(self, ledger: Ledger, spout: str, reread: Reread) -> None:
        self.ledger = ledger
        self.spout = spout
        self.reread = reread
        self.trouble = ""
        self._watch = RemovalWatch(f"asks for no rows of its spout {spout!r}")
        self._failures = 0
        self._note = WaitNote("unread", spout, f"rows of spout {spout!r}")
        self._search: _Search | None = None
        self._waiting = WaitingRows(MOST_IDS)
        self._stepping = threading.Lock()

    @property
    def removed(self) -> bool:
        """True once the topology was removed and made anew: it asks for nothing any more."""
        return self._watch.removed

    def step(self) -> int:
        """Asks for some rows; returns the number of stored answers. Errors of the source are logged.

        For any thread: one at a time asks. It asks for nothing if another thread asks for a minute.

        Raises:
            AckerError: The store, or the topology, is away.
        """
        if not self._stepping.acquire(timeout=_LONGEST_WAIT):
            return 0
        try:
            return self._step()
        finally:
            self._stepping.release()

    def _step(self) -> int:
        self.ledger = follow(self.ledger, self.ledger.store, self.ledger.config.name, create=False)
        if not self.ledger.config.ackers:
            return 0
        if self._search is None or self._search.core is not self.ledger.core:
            self._search, self._waiting = _Search(self.ledger.core, self.spout), WaitingRows(MOST_IDS)
        new = list[Row]()
        if len(self._waiting) <= MOST_ROWS - MOST_IDS:
            new = self.ledger.run(self._search.look(self._waiting))
        if self._watch.look(self.ledger):  # behind the search: its rows may be of a topology made since
            return 0
        stored, raised = self._ask_again()
        # New ones by themselves: rows that make their source raise do not keep them.
        answers, of_new = self._ask(new)
        stored, raised = stored + answers, raised or of_new
        self._failures = min(self._failures + 1, 10) if raised and not stored else 0
        if not len(self._waiting):
            self.trouble = ""
        self._note.write(self.ledger, self.trouble)
        return stored

    def _ask_again(self) -> tuple[int, bool]:
        """Asks for rows that wait: the number of stored answers, and True if the source raised."""
        stored, raised = 0, 0
        most = _RAISES_AWAY if self._failures else _RAISES
        for _ in range(_CALLS):
            if raised == most or not (rows := self._waiting.take()):
                break
            answers, failed = self._ask(rows)
            stored, raised = stored + answers, raised + failed
            if not failed:
                self._waiting.succeeded()
        return stored, raised > 0

    def run(self, stop: threading.Event) -> None:
        """Asks repeatedly, until `stop` is set, and waits for a store that is away."""
        loops.run(stop, self._round, Pace(_log, f"rows of spout {self.spout!r} wait", 0.2, 5.0))

    def _round(self) -> float | None:
        done = self.step()
        return 0.0 if done else min(_LONGEST_WAIT, _WAIT * 2.0**self._failures)

    def _ask(self, rows: Sequence[Row]) -> tuple[int, bool]:
        """Asks for rows, and stores the answers: their number, and True if the source raised."""
        stored, raised = 0, False
        for unread in self.ledger.run(_read_ids(self.ledger.core, rows)):
            ids, of_first = pa.concat_tables(unread.ids), unread.places[0][0]
            whole = self.ledger.run(schemas.read(self.ledger.core, of_first.how.stream))
            try:
                with self._note.calling(self.ledger, "`reread`"):
                    found = self.reread(ids)
                answer = _checked(ids, found, whole, of_first.how.attempt)
                given, asked = _keys(answer.select(ids.column_names)), _keys(ids)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                raised = True
                self._failed(error, unread.places)
                continue
            by_key: dict[str, int] = {}
            for at, key in enumerate(given):
                by_key.setdefault(key, at)
            answers: dict[str, tuple[Roots, dict[int, int | None]]] = {}
            for key, (of, place) in zip(asked, unread.places, strict=True):
                answers.setdefault(of.id, (of, {}))[1][place] = by_key.get(key)
            for of, rows_at in answers.values():
                try:
                    stored += self.ledger.run(_store(self.ledger.core, of, rows_at, answer))
                except ValueTooLong as error:  # of these rows, and no others
                    raised = True
                    self._failed(error, [(of, place) for place in rows_at])
        return stored, raised

    def _failed(self, error: BaseException, rows: Sequence[Row]) -> None:
        reason = said_by(error)
        if reason != self.trouble:
            what = text_of(error) or reason
            log_error(
                _log, error, "rows of spout %r wait, and their source is asked again: %s", self.spout, what
            )
        self.trouble = reason
        self._waiting.failed(rows)


def _checked(ids: pa.Table, rows: object, whole: pa.Schema, attempt: str) -> pa.Table:
    """The rows that the source has given, with the columns of the spout.

    whole: the columns of its stream. attempt: the column of the attempt's number.

    Raises ValidationError, SchemaMismatch.
    """
    if not isinstance(rows, pa.Table):
        raise ValidationError(f"reread: expected a table of rows, got {type(rows).__name__}")
    names = [name for name in whole.names if name not in (ANCHORS, attempt)]
    needed = [name for name in names if whole.field(name).metadata != schemas.ADDED]
    missing = [name for name in needed if name not in rows.column_names]
    if missing:
        raise SchemaMismatch(
            f"reread: expected rows with the columns {', '.join(needed)}, got {', '.join(rows.column_names)}"
        )
    wanted = pa.schema(
        [ids.schema.field(name) if name in ids.column_names else whole.field(name) for name in names]
    )
    batches = [segments.conform(batch, wanted) for batch in rows.combine_chunks().to_batches()]
    return pa.Table.from_batches(batches, wanted)


def _keys(ids: pa.Table) -> list[str]:
    """A text of each row: equal rows have equal texts, also where Python has no such value."""
    return list(map(repr, zip(*(_plain(column).to_pylist() for column in ids.columns), strict=True)))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as bytes, times as numbers, and a single zero."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_temporal(kind):
        return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return pc.add(column, 0.0) if pa.types.is_floating(kind) else column


class _Search:
    """A search for rows whose outcomes are due, and that were not read again yet.

    It goes through all outcomes, and then begins with the oldest again. For one thread.
    """

    def __init__(self, core: Core, spout: str) -> None:
        self.core = core
        self.spout = spout
        self._reader = OutcomeReader(core, spout)
        self._states = rereads.KnownStates()
        self._began, self._passed, self._ended = 0.0, 0, True

    def look(self, waiting: WaitingRows) -> Operation[list[Row]]:
        """The next of these rows, without rows that wait."""
        now = time.monotonic()
        pause = max(_WAIT, self._passed / _LOOK) if self._passed else 0.0
        if self._ended and now >= self._began + pause:
            self._reader.begin_again(range(len(self.core.shards)))
            self._states.turn()
            self._began, self._passed = now, 0
        rows: list[Row] = []
        looked = 0
        while len(rows) < MOST_IDS and looked < _LOOK:
            before = self._reader.offset
            entries = yield from self._reader.read()
            self._ended = not entries
            if not entries:
                break
            looked += len(entries)
            yield from self._add(entries, waiting, rows)
            if len(rows) > MOST_IDS:  # the next look reads these entries again
                self._reader.offset = before
        return rows[:MOST_IDS]

    def _add(self, entries: Sequence[Entry], waiting: WaitingRows, rows: list[Row]) -> Operation[None]:
        """Adds the unread rows of entries to `rows`."""
        bad = [entry for entry in entries if entry.status != "acked"]
        self._passed += len(bad)
        by_slab = yield from kept_rows.kept_slabs(self.core, self.spout, kept_rows.slabs_of(bad))
        [instant] = yield [Request(keys.Spout(self.core.config.name, self.spout).kept, ["TIME"])]
        due, _ = backoff.due(bad, by_slab, seconds(instant))
        states = rereads.States()
        yield from rereads.read_states(self.core, due, by_slab, states, self._states)
        for entry in due:
            for outcome in entry.slabs:
                place = by_slab.get(outcome.slab)
                if place is None or (state := states.get(place.roots.id)) is None:
                    continue
                rows += (
                    (place.roots, row)
                    for row in place.rows(outcome)
                    if state[row] == kept_ids.UNREAD and not waiting.wait(place.roots.id, row)
                )


def _read_ids(core: Core, rows: Iterable[Row]) -> Operation[list[_Unread]]:
    """The ids of the rows that are unread still, by their schema."""
    by_roots: dict[str, tuple[Roots, list[int]]] = {}
    for of, row in rows:
        by_roots.setdefault(of.id, (of, []))[1].append(row)
    unread: dict[str, _Unread] = {}
    every = list(by_roots.values())
    for first in range(0, len(every), _ABREAST):
        part = every[first : first + _ABREAST]
        tables = yield from abreast([roots.kept_rows(core, of) for of, _ in part])
        for (of, places), kept in zip(part, tables, strict=True):
            if kept is None:
                continue
            state = kept_ids.states(kept)
            places = [row for row in places if state[row] == kept_ids.UNREAD]
            if places:
                ids = kept.select(kept_ids.id_columns(kept)).take(pa.array(places))
                group = unread.setdefault(f"{of.how.stream} {ids.schema.to_string()}", _Unread())
                group.ids.append(ids)
                group.places += [(of, row) for row in places]
    return list(unread.values())


def _store(core: Core, of: Roots, answers: Mapping[int, int | None], rows: pa.Table) -> Operation[int]:
    """Stores the first answers of rows of some roots; returns their number."""
    used: Sequence[int] = [at for at in answers.values() if at is not None]
    at_of = {place: None if at is None else number for place, at, number in _numbered(answers)}
    part = rows.take(pa.array(used, pa.int64()))

    def change(kept: pa.Table) -> pa.Table | None:
        state = kept_ids.states(kept)
        new = {place: at for place, at in at_of.items() if state[place] == kept_ids.UNREAD}
        stored.update(new)
        return kept_ids.filled(kept, new, part) if new else None

    stored = dict[int, int | None]()
    return len(stored) if (yield from rereads.fill(core, of, change)) else 0


def _numbered(answers: Mapping[int, int | None]) -> Iterable[tuple[int, int | None, int]]:
    """The answers, each with the number of rows before it."""
    number = 0
    for place, at in answers.items():
        yield place, at, number
        number += at is not None
