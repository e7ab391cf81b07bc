"""The rows of external streams in a batch: what it has received, and what it sends to sinks."""

from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, LongType

from acker.errors import AckerError, ValidationError
from acker.ledger.settings.config import check_name
from acker.ledger.slabs.causes import texts
from acker.spark.bolts.batch_work import BatchWork, with_anchors
from acker.spark.external import marking, receiving
from acker.spark.external.kafka import with_stamps
from acker.spark.external.receiving import Received
from acker.spark.external.sending import Sends, Write
from acker.spark.external.sinks import Sink
from acker.spark.external.tables.transactions import Transactions
from acker.spark.options.options import Options
from acker.spark.queries import given_rows
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.records.staging import StagedRows
from acker.spark.runtime.arrow import Function
from acker.spark.runtime.scope import in_life
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS
from acker.streams.staging import failed_rows, staging
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.external.rows import receipts
from acker.streams.staging.external.rows.at_once import Given
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.staging import FAILED, Staged

_MOST_FAILS = 100_000
"""Failed rows of a call that are told by their place; further ones fail by their trees."""


class ExternalWork(BatchWork):
    """The received and sent external rows of a batch; `Collector` has its public calls.

    Attributes:
        sends: The rows that the batch sends.
        received: What each call of `receive` has received.
        given: The rows that each of them was given.
        transactions: The named writes of the batch to tables.
    """

    _noted = True

    def _begin(self, options: Options, batch: MicroBatch, *, job: bool) -> None:
        self.sends = Sends(self._ledger, batch)
        self.received: list[Received] = []
        self.given: list[DataFrame] = []
        noted = self._ledger if self._noted else None
        self.transactions = Transactions(noted, batch, self.life, self.received, job=job)
        self._of_rows = options.subscription if options.subscription_named else options.stream

    @in_life
    def receive(self, rows: DataFrame, stream: str, *, duplicates: str | None = None) -> DataFrame:
        """Receives rows of an external stream: the commit acks the rows that the function was given.

        All rows come back, also such as came before, or that have no stamp. The step's name is its
        subscription, unless it names another one. A step that receives for the first time learns of rows that
        are sent from then on: so start it before the rows are sent.

        The rows are evaluated here, in the function, and once more at its end, unless all of them are of
        files, and these did not change meanwhile. A batch of Kafka is persisted until the step has ended, so
        that it is fetched once. If two evaluations could give other rows (`rand`, `limit`, a source that
        grows), they are kept by `localCheckpoint`.

        Args:
            rows: The rows, as they were read, with the column `_acker_stamp`: a text, or an array of texts
                where each row stands for several rows; or with `headers` of Kafka, by includeHeaders.
            stream: The name of the stream.
            duplicates: "mark" adds the text column `_acker_known`, which says what the store knew of a row
                when this was called: `first`, no commit of the subscription has received it; `copy`, one
                has, so it was acked or has failed; `over`, its trees ended without it; `untracked`, it has no
                stamp of the stream. Two copies in one batch are both `first`.

        Returns:
            The rows with the column `_acker`, beside `_acker_stamp`: a bigint; an array if rows have several
            trees. 0 stands for no tree.

        Raises:
            ValidationError: The rows have no column `_acker_stamp`; or have the column `_acker`, so trees of
                their own, which the commit would ack too early; or `duplicates` is another word.
            UnsafePlan: The query of the batch has an operator that leaves out rows, as a filter.
            StreamKindError: The stream is managed.
            SubscriptionInUse: A live step of another name serves the subscription.
        """
        check_name(stream, "stream")
        mark = marking.check(duplicates)
        of_query, rows = rows, with_stamps(rows)
        receiving.check_column(rows, stream)
        at = None if self.job is not None else self._batch
        fixed = not given_rows.are_steady(rows, at)
        files = None if fixed else given_rows.listed_files(rows, at)
        stamps = None if files is None or at is None else given_rows.column_of_files(rows, at, COLUMN)
        with self._of_batch():
            if fixed:
                rows = rows.localCheckpoint(eager=True)
            elif at is not None and given_rows.are_fetched(rows, at):
                rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
                self._cached.append(rows)
            received = receiving.receive(
                self._ledger,
                rows,
                stream,
                self._of_rows,
                self.name,
                fixed=fixed,
                mark=mark,
                files=files,
                stamps=stamps,
            )
        self.received.append(received)
        self.given.append(of_query)
        return received.given()

    def _send(
        self,
        rows: DataFrame,
        stream: str,
        sink: Sink,
        anchored: bool,
        part: str,
        persist: bool | None,
        segment_rows: int,
    ) -> int:
        """Writes rows of an external stream to a sink."""
        self.sends.check(stream, part, segment_rows)
        if not hasattr(self.spark, "sparkContext"):
            raise AckerError(
                f"emit, stream {stream!r}: on Spark Connect no task can tell acker what it has written: "
                "expected classic Spark for emit(..., to=...)"
            )
        if EFFECT in rows.columns:
            raise ValidationError(f"emit, stream {stream!r}: rows of collector.once cannot go to a sink")
        write = Write(self.sends, with_anchors(rows, "emit"), stream, sink, part, persist, segment_rows)
        try:
            with self._of_batch():
                sent = write.run()
        finally:
            self._cached += write.kept
        if not anchored:
            self.sends.staged[-1] = self.sends.staged[-1].as_said_unanchored()
        return sent

    def _stage(
        self,
        rows: DataFrame,
        mapper: Function | None = None,
        *,
        stream: str = "",
        anchored: bool = True,
        **how: Any,
    ) -> StagedRows:
        staged = super()._stage(rows, mapper, stream=stream, anchored=anchored, **how)
        if stream in self.holds or any(one.failures for one in staged.pieces):
            self.transactions.doubt()
        return staged

    def _has_places(self, rows: DataFrame) -> bool:
        return bool(self.received) and COLUMN in rows.columns and EFFECT not in rows.columns

    def _fail(self, rows: DataFrame, why: Column) -> None:
        if not (self._has_places(rows) and self._fail_rows(rows, why)):
            super()._fail(rows, why)

    def _fail_rows(self, rows: DataFrame, why: Column) -> bool:
        """Fails received rows by their places; False if there are too many.

        The fail of a row counts with its bit: a row of an attempt that does not count fails no record. Trees
        in its column `_acker` that its stamp does not have, as after a join, fail by themselves.
        """
        kind = rows.schema[ANCHORS].dataType
        several = isinstance(kind, ArrayType)
        anchor = kind.elementType if isinstance(kind, ArrayType) else kind
        if not isinstance(anchor, LongType):
            return False
        with self._of_batch():
            collected = rows.select(COLUMN, ANCHORS, why.alias(FAILED)).limit(_MOST_FAILS + 1).collect()
        if len(collected) > _MOST_FAILS:
            return False
        causes = texts([row[FAILED] for row in collected], self.name, self._how.batch)
        if collected and self.transactions.names:
            self.transactions.doubt()
        left, reasons = list[list[int | None]](), list[str]()
        for row, cause in zip(collected, causes, strict=True):
            noted, stamps = set[int](), row[COLUMN]
            for text in stamps if isinstance(stamps, list) else [stamps]:
                for received in self.received:
                    noted |= received.fail(text, cause.encode("utf-8", "replace"))
            anchors = (row[ANCHORS] or []) if several else [row[ANCHORS]]
            others = [tree for tree in anchors if tree and tree not in noted]
            if others or not noted:
                left.append(others or anchors)
                reasons.append(row[FAILED])
        if left:
            self._fail_trees(pa.array(left, pa.list_(pa.int64())), reasons)
        return True

    def _fail_trees(self, anchors: pa.Array, reasons: list[str]) -> None:
        """Stages the trees of rows to be failed; rows without anchors are refused by the commit."""
        self.transactions.doubt()
        how, core = self._how, self._ledger.core
        trees, causes = failed_rows.rows_failures(anchors, pa.array(reasons), how.step, how.batch)
        failures = self._ledger.run(staging.stage_failures(core, how.ttl, trees, causes))
        unfailed, treeless = segments.unanchored(anchors), segments.treeless(anchors)
        self.staged.append(Staged("", failures=tuple(failures), unfailed=unfailed, treeless=treeless))

    # For the commit

    def check_transactions(self) -> None:
        """Checks that the named writes of the batch have the records that its commit acks.

        Raises:
            AckerError, FailedException: As in `Transactions.check`.
        """
        given = {id(received): rows for received, rows in zip(self.received, self.given, strict=True)}
        self.transactions.check(
            lambda received: given_rows.may_be_of_batch(given[id(received)]), bool(self.taken)
        )

    def check_given(self) -> None:
        """Checks what a batch that has trees of its own has received.

        Raises:
            AckerError: Received rows may be made of the batch.
        """
        for received, rows in zip(self.received, self.given, strict=True):
            if given_rows.may_be_of_batch(rows):
                raise AckerError(
                    f"receive, stream {received.stream!r}: the rows are made of a batch that has trees of "
                    "its own, of acker.track or of a managed stream. What comes of them is anchored to the "
                    "trees of their stamps alone, and the batch's would be acked before it is processed, so "
                    "nothing was committed: read the external rows by a query, or a frame, of their own"
                )

    def look_again(self) -> None:
        """Looks at received rows once more, before executors free them. The function has returned."""
        with self._of_batch():
            for received in self.received:
                received.worked()

    def receipt(self, failed: str | None = None) -> tuple[Commit, AtHand]:
        """Returns a commit of the rows that are acked, and what is at hand for it.

        Args:
            failed: The cause of a failed batch, whose trees are staged to be failed.
        """
        core, ttl = self._ledger.core, self._how.ttl
        if not self.received:
            return Commit(), AtHand(given=Given())
        with self._of_batch():
            given = receiving.given(self.received)
        staged_id = segments.new_hex_id()
        at_hand = AtHand(staging=[receipts.stage(core, staged_id, given.receipts, ttl)], given=given)
        trees = receiving.trees(self.received)
        if failed is None or not len(trees):
            return Commit(received=(staged_id,)), at_hand
        failures = self._ledger.run(staging.stage_failures(core, ttl, trees, [failed] * len(trees)))
        return Commit((Staged(self.name, failures=tuple(failures)),), received=(staged_id,)), at_hand
