"""A spout in plain Python that keeps its rows in the store: replays and dead letters need no work of it.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; roots are rows of a spout
that were staged together, and get a tree each.
"""

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
from acker.streams.commits.known import AtHand
from acker.streams.log import schemas
from acker.streams.log.segments import conform
from acker.streams.sources.roots import Roots, StagedRoots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import settler
from acker.streams.spouts.replays import emit_recorded
from acker.streams.staging.staging import Staging

MOST_SEGMENTS = 1_000
_log = logging.getLogger(__name__)

Prepared: TypeAlias = tuple[tuple[Roots, ...], Commit, AtHand]
"""The roots of rows, the commit that emits them, and its data at hand."""


class StreamSpout:
    """Emits rows to a stream, tracks them, and keeps them until they are acked or dead letters.

    Some process has to settle the outcomes (`acker.streams.spouts.settler`), as some process has to tick. The
    rows are as durable as the store. The spout itself remembers nothing, so it may die between two writes.

    Args:
        ledger: The ledger of the topology.
        how: The options of the spout.
        compression: lz4, zstd or none.
        ids: The columns that the store keeps beside the stream, message_id among them; () keeps whole rows.
            A row is read again from its source before it is replayed or buried, by a
            `acker.streams.spouts.rereading.Rereader` in some process.
    """

    def __init__(
        self, ledger: Ledger, how: SpoutOptions, *, compression: str = "lz4", ids: Sequence[str] = ()
    ) -> None:
        self.ids = tuple(ids)
        self.ledger = ledger
        self.how = how
        self._staging = Staging(how.stream, compression=compression)
        self._at_work = AtWork.in_this_process()

    def write(self, rows: pa.Table, timeout: float | None = None, *, segments: int = 1) -> tuple[Roots, ...]:
        """Emits rows, all or none; waits for room.

        Args:
            rows: The rows.
            timeout: Seconds to wait for room; None waits up to twice the message timeout.
            segments: The number of segments (1 to 1,000) into which the rows are divided at least. So many
                readers can work on them side by side.

        Returns:
            The roots of the rows.

        Raises:
            ValidationError: A row or an argument is refused.
            SchemaMismatch: The columns are not the columns of the stream.
            SpoutPendingFull: `max_spout_pending` was reached for the whole wait.
            TrackRejected: The topology was over its high-water mark for the whole wait.
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
        """Emits rows if conditions hold, without a wait for room; returns True if they did.

        Args:
            rows: The rows.
            conditions: Scripts that reply 1 or 0, and have the line `@chained`.
            writer: A random name for the commit. After StoreUnavailable, the caller asks by it for the result
                (`acker.streams.commits.commit`).
            segments: See `write`.
            prepared: The result of `prepare` for the rows, if it was called just now.
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
            tracked, work, at_hand = prepared or self.ledger.run(self.prepare(rows, segments))
            prepared = None
            at_hand.conditions = [*asked, *at_hand.conditions]
            at_hand.afterwards = [commit.forget(core, writer)]
            act = partial(commit.commit, core, writer, 0, work, at_hand=at_hand)
            if settler.with_room(self.ledger, lambda act=act: self.ledger.run(act()), timeout):  # type: ignore[misc]
                break
            if asked and not all(self.ledger.store.send(asked)):
                return None
        try:
            self.ledger.run(self._at_work.note_spout(core, self.how.spout, self.how.stream))
        except StoreUnavailable as error:  # the rows are written: the spout's registration is worth less
            _log.warning("spout %r is not registered: %s", self.how.spout, error)
        return tracked

    def prepare(self, rows: pa.Table, segments: int = 1) -> Operation[Prepared]:
        """Prepares `write` for one row or more: reads all the data that it needs. Nothing is emitted yet.

        Args:
            rows: The rows.
            segments: See `write`.

        Returns:
            An operation; its result is for `write_if`.
        """
        staged_roots, into = StagedRoots(), list[Request]()
        most = min(self._staging.rows, -(-rows.num_rows // segments))
        staging, wanted = replace(self._staging, rows=most, into=into), schemas.normal(rows.schema)
        # As readers take them: a value that does not fit into the stream's type could never be read.
        batches = [conform(batch, wanted) for batch in rows.combine_chunks().to_batches()]
        new_roots, staged = yield from emit_recorded(
            self.ledger.core, self.how, staging, batches, staged_roots, self.ids
        )
        return (
            new_roots,
            Commit((staged,), new_roots),
            AtHand(into, conditions=staged_roots.free, rows=staged_roots.rows),
        )
