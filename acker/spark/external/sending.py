"""Sending rows to a sink of the user's: each carries a stamp, and the commit of the batch emits its segment.

Before the write the store notes that it has begun, and behind it which segments were sent: a batch that runs
again, whose sink may leave out what it has written before, has them from there.
"""

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import IntegerType, StringType

from acker.errors import AckerError, FailedException, UnreadableRecord, ValidationError, shown
from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name
from acker.spark.external import reports, verdicts
from acker.spark.external.receiving import Received
from acker.spark.external.reports import Report
from acker.spark.external.sinks import WHOLE, Sink, SinkWriter, may_skip
from acker.spark.external.stamping import OWN, Rereader, Stamper, arrow_column, tokens_of
from acker.spark.external.table_writers import writer_of
from acker.spark.queries import batch_inputs, batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.runtime.arrow import map_in_arrow
from acker.store import keys
from acker.store.operation import Operation, Reply, abreast, command
from acker.streams.commits import anchoring
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import HOLD_TTL, Range
from acker.streams.staging.external import declaring, scripts
from acker.streams.staging.external.bits import MOST_POSITIONS
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.rows import sending
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.external.rows.sending import Sending, Written
from acker.streams.staging.staging import Staged

SEGMENT_ROWS = 4_096
"""Rows of a segment by default. A lost row costs its segment: the records of all its rows are replayed.

A segment has 1,000 trees at most, so this many rows cost more records only where a record has several rows.
With 1,000 rows the driver and the store take 2.5 times as long for a batch.
"""
PERSIST = "persist"
"""The field of a stream whose rows are persisted, because a sink has evaluated them twice."""
_TOGETHER = 500
_MOST_LOOKS, _LOOK_BYTES = 256, 1 << 20
_TXN = "spark.databricks.delta.write.txnAppId"
_BEGUN = b"run:"
"""A note of this form says that a run has begun to write, and no more."""
_MOST_RUNS = 16
"""Runs of a batch whose segments are sent together, at most."""


class Inputs(NamedTuple):
    """The inputs of a batch at a call of `emit`.

    Attributes:
        taken: Ranges of streams that the function has taken.
        received: The external rows that it has received.
        job: True for a job.
    """

    taken: Sequence[Range] = ()
    received: Sequence[Received] = ()
    job: bool = False


@dataclass(slots=True)
class Sends:
    """The external rows that a batch has sent.

    Attributes:
        ledger: The ledger.
        batch: The batch, or the job.
        sent: The segments, for the commit.
        staged: Facts about the anchors of the rows, for the check of the commit.
        inputs: The inputs of the batch at the last call.
        looks: Replies to `acker.streams.commits.anchoring.look` for the vectors of sent segments.
    """

    ledger: Ledger
    batch: MicroBatch
    sent: list[Sending] = field(default_factory=list)
    staged: list[Staged] = field(default_factory=list)
    inputs: Inputs = field(default_factory=Inputs)
    looks: dict[bytes, Reply] = field(default_factory=dict)
    _thread: int = field(default_factory=threading.get_ident)
    _given: set[tuple[str, str]] = field(default_factory=set)
    _places: dict[str, str] = field(default_factory=dict)
    _noted: set[bytes] = field(default_factory=set)

    def check(self, stream: str, part: str, segment_rows: int) -> None:
        """Checks a call. Raises AckerError and ValidationError."""
        check_name(stream, "stream")
        if part:
            check_name(part, "part")
        if isinstance(segment_rows, bool) or not isinstance(segment_rows, int):
            raise ValidationError(f"segment_rows: expected a whole number, got {shown(segment_rows)}")
        if not 1 <= segment_rows <= MOST_POSITIONS:
            raise ValidationError(f"segment_rows: expected 1 to {MOST_POSITIONS:,}, got {segment_rows:,}")
        if threading.get_ident() != self._thread:
            raise AckerError(
                f"emit, stream {stream!r}: rows go to a sink in the thread of the function only: Spark "
                "tells acker by thread what a write belongs to: call it there"
            )
        if (stream, part) in self._given:
            raise AckerError(
                f"emit, stream {stream!r}: the batch has sent rows to it before, as part {part!r}: "
                'give each such call a name of its own, part="name", the same in each run of the batch'
            )
        self._given.add((stream, part))

    def check_place(self, stream: str, place: str) -> None:
        """Raises AckerError for a second sink of a stream."""
        first = self._places.setdefault(stream, place)
        if first != place:
            raise AckerError(
                f"emit, stream {stream!r}: its rows went to {first!r} before, and go to {place!r} now: one "
                "stream is one place. Give the other place a stream of its own"
            )

    # Notes of the store, so that a batch that runs again knows

    def _field(self, stream: str, part: str) -> str:
        return f"{self.batch.number}:{stream}:{part}"

    def begin(self, stream: str, part: str) -> Operation[tuple[bool, Written | None, bool]]:
        """Notes that a write begins.

        Returns if an earlier run of the batch has begun it, what that has sent, if it came so far, and if
        the rows of the stream are to be persisted.
        """
        core = self.ledger.core
        key, name = keys.external(core.config.name, "sent", self.batch.query), self._field(stream, part)
        stream_keys, run = keys.Stream(core.config.name, stream), _BEGUN + secrets.token_hex(16).encode()
        _, text, _, persist, noted = yield [
            command("HSETNX", key, name, run),
            command("HGET", key, name),
            command("EXPIRE", key, HOLD_TTL),
            command("HGET", stream_keys.subscriptions, PERSIST),
            command("HKEYS", key),
        ]
        self._noted |= {one for one in noted if int(one.partition(b":")[0]) <= self.batch.number}
        self._noted.add(name.encode())
        before = _written(text)
        if before is not None and not (yield from sending.hold(core, before.sent)):
            before = None
        return text != run, before, persist is not None

    def persist(self, stream: str) -> None:
        """Notes that the rows of a stream are persisted in later runs."""
        stream_keys = keys.Stream(self.ledger.core.config.name, stream)
        self.ledger.store.send([scripts.note_persist(stream_keys, PERSIST)])

    def digest(self, spark: SparkSession) -> str:
        """A digest of the inputs of the batch, except rows that it tracks; "" if Spark does not tell them."""
        taken, received, job = self.inputs
        origin = None if job else batch_inputs.origin_of(spark, self.batch)
        if origin is None and not job:
            return ""
        return verdicts.digest(
            () if origin is None else (sorted(origin.ranges), origin.others),
            sorted((one.place, one.planned) for one in taken),
            [(one.stream, one.slot, sorted(one.look.rows.items()), sorted(one.over)) for one in received],
        )

    def note(self, stream: str, part: str, written: Written) -> Operation[None]:
        """Holds segments that were sent, and notes them. Raises AckerError if one is gone.

        Then the note counts as none: `begin` looks for its segments. Rows that the batch tracks get new trees
        in each run, so no other run has the same inputs then.
        """
        core = self.ledger.core
        key, name = keys.external(core.config.name, "sent", self.batch.query), self._field(stream, part)
        texts = written.dump(), replace(written, inputs="").dump()
        noting = scripts.note_write(key, batch_roots.key_of(core, self.batch), name, texts, HOLD_TTL)
        asked: list[Operation[Any]] = [sending.hold(core, written.sent, noting), self._look(written.sent)]
        held, _ = yield from abreast(asked)
        if not held:
            raise AckerError(
                f"stream {stream!r}: stamps were made over {core.config.stamp_ttl:,} s before their write "
                "ended, or the store has lost them: nothing of the batch takes effect. Raise the setting "
                "stamp_ttl of the topology if a write takes so long"
            )

    def _look(self, sent: Sequence[Sending]) -> Operation[None]:
        """Reads the vectors of sent segments for the commit and its check, if they are few."""
        places = [key for key, _ in sending.places(self.ledger.core, sent)]
        size = sum(segment.bytes * len(segment.slots) for one in sent for segment, _ in one.segments)
        if places and len(self.looks) + len(places) <= _MOST_LOOKS and size <= _LOOK_BYTES:
            self.looks.update(zip(places, (yield [anchoring.look(key) for key in places]), strict=True))

    def forgetting(self) -> Operation[None]:
        """Deletes the notes of a batch that is committed, and of batches before it."""
        key, names = keys.external(self.ledger.core.config.name, "sent", self.batch.query), list(self._noted)
        parts = [names[at : at + _TOGETHER] for at in range(0, len(names), _TOGETHER)]
        if parts:
            yield [command("HDEL", key, *part) for part in parts]


@dataclass(slots=True)
class Write:
    """A write of rows to a sink, by one call of `emit`.

    Attributes:
        rows: The rows, with the column `_acker`.
        persist: True if the rows are persisted; None if their format decides.
        kept: Rows that were persisted.
    """

    sends: Sends
    rows: DataFrame
    stream: str
    sink: Sink
    part: str
    persist: bool | None
    segment_rows: int
    kept: list[DataFrame] = field(default_factory=list)
    _external: External | None = None
    _calls: list[str] = field(default_factory=list)
    _accumulator: Any = None
    _filled: dict[int, str] | None = None

    def run(self) -> int:
        """Writes the rows, and notes what was sent; returns the number of rows.

        Raises:
            TwoLists: The sink has evaluated the rows twice, and they differed.
            FailedException: Nobody knows what the sink has: the trees of the batch fail.
        """
        ledger, stream = self.sends.ledger, self.stream
        context = self.rows.sparkSession.sparkContext
        beginning: list[Operation[Any]] = [
            declaring.read(ledger.core, stream),
            self.sends.begin(stream, self.part),
        ]
        external, (begun, before, remembered) = ledger.run(abreast(beginning))
        self._external = external
        if remembered:
            self.persist = True
        writer = writer_of(self.sink, self._rows_for)
        stamping, reading = "", ""
        try:
            (stamping, self._accumulator), (reading, _) = reports.begin(context), reports.begin(context)
            self._calls = [stamping, reading]
            self.sink.function(writer)
        finally:
            stamped, read = reports.end(stamping), reports.end(reading)
        try:
            by_partition = verdicts.lists(stamped, stream)
            seen = verdicts.lists(read, stream)
            self._check_read(seen)
        except verdicts.TwoLists:
            self.sends.persist(stream)
            raise
        inputs = self.sends.digest(self.rows.sparkSession)
        if before is not None and batch_roots.sources(ledger, self.sends.batch):
            inputs = ""  # no other run has the trees of rows that it tracks
        chosen = verdicts.choose(
            whole=self._is_whole(writer, by_partition, seen),
            begun=begun,
            skips=self._may_skip(writer),
            same=before is not None and inputs != "" and before.inputs == inputs,
        )
        if chosen is None or (before is not None and chosen.before and len(before.sent) > _MOST_RUNS):
            raise FailedException(self._unknown(begun))
        counts = [(report.unanchored, report.treeless, report.rows) for report in by_partition.values()]
        unanchored, treeless, rows = map(sum, zip(*counts, strict=True)) if counts else (0, 0, 0)
        written = Written((), inputs)
        if chosen.found:
            written = Written((_sending(stream, external, by_partition),), inputs, unanchored, treeless)
        if before is not None and chosen.before:
            unanchored, treeless = written.unanchored + before.unanchored, written.treeless + before.treeless
            written = Written((*before.sent, *written.sent), inputs, unanchored, treeless)
        ledger.run(self.sends.note(stream, self.part, written))
        if before is not None and not chosen.before:
            ledger.run(sending.release(ledger.core, before.sent))
        self.sends.sent += written.sent
        self.sends.staged.append(Staged(stream, unanchored=written.unanchored, treeless=written.treeless))
        return rows

    def _rows_for(self, writer: SinkWriter) -> DataFrame:
        """The rows that a writer writes, stamped; persisted unless its format evaluates them once."""
        self.sends.check_place(self.stream, writer.place)
        if writer.source == "kafka" and self.sink.prepare is None:
            raise ValidationError(
                f"emit, stream {self.stream!r}: Spark's Kafka sink leaves out column {COLUMN}: expected "
                "to=kafka.to(servers, topic) (from acker.spark import kafka), which puts the stamp into the "
                "header acker-stamp"
            )
        assert self._external is not None
        calls, accumulator = self._calls, self._accumulator
        stamper = Stamper(
            self.sends.ledger, self.stream, self._external, self.segment_rows, calls[0], accumulator
        )
        kind = self.rows.schema[ANCHORS].dataType
        plain = self.rows.drop(COLUMN)
        stamp = arrow_column(stamper, [kind, IntegerType()], F.col(ANCHORS), F.spark_partition_id())
        stamped = plain.withColumn(COLUMN, stamp).drop(ANCHORS)
        if self.persist or writer.source not in WHOLE:
            stamped = self._kept(stamped, Rereader(calls[1], accumulator))
        return stamped if self.sink.prepare is None else self.sink.prepare(stamped)

    def _kept(self, stamped: DataFrame, rereader: Rereader) -> DataFrame:
        """Rows that are evaluated once, and kept; what evaluates them reports that."""
        kept = stamped.persist(StorageLevel.MEMORY_AND_DISK)
        self.kept.append(kept)
        named = kept.select(COLUMN, F.spark_partition_id().alias(OWN))
        filled = map_in_arrow(named, tokens_of, f"{OWN} int, tokens string").collect()
        self._filled = {row[OWN]: row["tokens"] for row in filled}
        again = arrow_column(rereader, [StringType(), IntegerType()], F.col(COLUMN), F.spark_partition_id())
        return kept.withColumn(COLUMN, again)

    def _check_read(self, seen: dict[int, Report]) -> None:
        """Raises TwoLists if kept rows were lost, and made anew."""
        for own, report in seen.items():
            if self._filled is not None and self._filled.get(own) != repr(list(report.segments)):
                verdicts.lists([report, report._replace(segments=())], self.stream)

    def _is_whole(self, writer: SinkWriter, by_partition: dict[int, Report], seen: dict[int, Report]) -> bool:
        """True if the sink has evaluated all rows: then it has them."""
        if not writer.done:
            return False
        if self._filled is not None:
            return set(self._filled) <= by_partition.keys() and set(self._filled) <= seen.keys()
        if not by_partition:
            return self._is_empty(writer)
        stages = sorted({report.stage for report in by_partition.values()})
        return verdicts.is_whole(by_partition, reports.tasks(self.rows.sparkSession.sparkContext, stages))

    def _is_empty(self, writer: SinkWriter) -> bool:
        """True if no task has reported because there was none.

        Raises AckerError if tasks of a sink that writes each time have not reported.
        """
        if self.rows.rdd.getNumPartitions() == 0:
            return True
        if self._may_skip(writer):
            return False
        if self.sink.prepare is None:
            self.sends.persist(self.stream)
        raise AckerError(
            f"emit, stream {self.stream!r}: no task has stamped its rows: nothing of the batch takes effect. "
            f"A sink with `prepare` must use the column {COLUMN} of its rows. Without one, the reports of "
            "tasks were lost: the next run of the batch persists the rows"
        )

    def _may_skip(self, writer: SinkWriter) -> bool:
        """True if the sink may leave out rows that it has written before."""
        conf: Any = self.rows.sparkSession.conf
        return may_skip(self.sink, writer, txn=conf.get(_TXN, None) is not None)

    def _unknown(self, begun: bool) -> str:
        why = (
            "an earlier run of the batch has begun to write them, and the sink may have left them out now"
            if begun
            else "the sink has not evaluated all of them"
        )
        return (
            f"nobody knows which rows for stream {self.stream!r} the sink has: {why}. The records of the "
            "batch are replayed"
        )


def _written(text: bytes | None) -> Written | None:
    """The note of an earlier run; None if it has only begun, or cannot be read."""
    if text is None or text.startswith(_BEGUN):
        return None
    try:
        return Written.load(text)
    except UnreadableRecord:
        return None


def _sending(stream: str, external: External, by_partition: dict[int, Report]) -> Sending:
    pieces = tuple(
        (Segment.load(record), begun)
        for _, report in sorted(by_partition.items())
        for record, begun in report.segments
    )
    return Sending(stream, external.number, external.key, pieces)
