"""A spout that keeps its rows in the store, for plain Python: replays and dead letters need nothing of it."""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import StoreUnavailable
from acker.ledger.client import Ledger
from acker.ledger.settings.settings import check_number
from acker.ledger.steps.registration import AtWork
from acker.store.operation import Operation, Request
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import Ready
from acker.streams.log import schemas
from acker.streams.log.segments import conform
from acker.streams.sources.roots import Drawn, Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import settler
from acker.streams.spouts.replays import emit_recorded
from acker.streams.staging.staging import Staging

MOST_SEGMENTS = 1_000
_log = logging.getLogger(__name__)

Prepared: TypeAlias = tuple[tuple[Roots, ...], Commit, Ready]
"""The roots of rows, what emits them, and what is at hand for that."""


class StreamSpout:
    """Emits rows to a stream, tracks them, and keeps them until they are acked or dead letters.

    how: `acker.streams.SpoutOptions`. Somebody has to settle (`acker.streams.spouts.settler`), as
    to tick. Its rows are as durable as the store. It remembers nothing itself, so it may die between two
    writes.
    """

    def __init__(self, ledger: Ledger, how: SpoutOptions, *, compression: str = "lz4") -> None:
        self.ledger = ledger
        self.how = how
        self._staging = Staging(how.stream, compression=compression)
        self._at_work = AtWork.here()

    def write(self, rows: pa.Table, timeout: float | None = None, *, segments: int = 1) -> tuple[Roots, ...]:
        """Emits rows, all or none; waits for room, by default up to twice the message timeout.

        segments: into how many they are divided, where one could have them all (1 or more): as many readers
        can work on them side by side. Raises ValidationError, SchemaMismatch, SpoutPendingFull and
        TrackRejected.
        """
        return self._write(rows, timeout, segments, secrets.token_hex(16)) or ()

    def write_if(
        self,
        rows: pa.Table,
        conditions: Sequence[Request],
        writer: str,
        *,
        segments: int = 1,
        prepared: Prepared | None = None,
    ) -> bool:
        """As `write`, without a wait for room, where conditions hold; returns whether they did.

        conditions: scripts that are answered 1 or 0, and have the line `@chained`. writer: random, names the
        commit: who gets StoreUnavailable asks by it what became of that (`acker.streams.commits.commit`).
        prepared: what `prepare` has returned for the rows just now.
        """
        return self._write(rows, 0.0, segments, writer, conditions, prepared) is not None

    def _write(
        self,
        rows: pa.Table,
        timeout: float | None,
        segments: int,
        writer: str,
        asked: Sequence[Request] = (),
        prepared: Prepared | None = None,
    ) -> tuple[Roots, ...] | None:
        check_number(segments, "segments", 1, MOST_SEGMENTS, int)
        core = self.ledger.core
        if not rows.num_rows:
            return ()
        while True:
            made, what, ready = prepared or self.ledger.run(self.prepare(rows, segments))
            prepared = None
            ready.conditions = [*asked, *ready.conditions]
            ready.afterwards = [commit.forget(core, writer)]
            act = partial(commit.commit, core, writer, 0, what, ready=ready)
            if settler.with_room(self.ledger, lambda act=act: self.ledger.run(act()), timeout):  # type: ignore[misc]
                break
            if asked and not all(self.ledger.store.send(asked)):
                return None
        try:
            self.ledger.run(self._at_work.note_spout(core, self.how.spout, self.how.stream))
        except StoreUnavailable as error:  # the rows are written: who has written them is worth less
            _log.warning("spout %r is not registered: %s", self.how.spout, error)
        return made

    def prepare(self, rows: pa.Table, segments: int = 1) -> Operation[Prepared]:
        """Looks at all that `write` has to know for rows, of which there are some. Nothing is emitted yet."""
        drawn, into = Drawn(), list[Request]()
        most = min(self._staging.rows, -(-rows.num_rows // segments))
        staging, wanted = replace(self._staging, rows=most, into=into), schemas.normal(rows.schema)
        # As readers take them: a value that has no place in the type of the stream could never be read.
        batches = [conform(one, wanted) for one in rows.combine_chunks().to_batches()]
        made, staged = yield from emit_recorded(self.ledger.core, self.how, staging, batches, drawn)
        return made, Commit((staged,), made), Ready(into, conditions=drawn.free, rows=drawn.rows)
