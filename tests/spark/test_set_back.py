"""Two jobs whose store loses its latest moments, at any exchange: what is reported as acked is in the sink.

Without Spark: what it asks of a source, and what a bolt does with a batch, in its order. So chance finds in a
minute what a whole cluster would show in days.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark.sql.types import LongType, StringType, StructField, StructType

from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.slabs import NewSlab
from acker.spark.options.options import Options
from acker.spark.runtime.versions import arrow_schema
from acker.spark.source.partitions import SegmentsPartition
from acker.spark.source.reading import Offset, StreamingReader
from acker.store.client import Store
from acker.streams import StreamWriter
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.origins import Origin
from acker.streams.log import schemas
from acker.streams.log.subscriptions import Range
from acker.streams.staging import staging
from acker.streams.staging.staging import FAILED, Staged, Staging
from tests.helpers.faults.turns import Turns
from tests.helpers.servers.sparks import shared_subscriptions

pytestmark = [pytest.mark.slow, shared_subscriptions]

LINE = StructType(
    [
        StructField("message_id", StringType()),
        StructField("line", StringType()),
        StructField("_acker", LongType()),
    ]
)
POISON = "poison"
Rows = list[dict[str, Any]]


class Query:
    """A streaming query: its checkpoint, and what it does with a batch: which stages rows of the batch."""

    def __init__(self, url: str, stream: str, bolt: Callable[[Ledger, Rows], list[Staged]]) -> None:
        self.ledger = open_ledger(Store(url), "t")
        self.options = Options(url=url, topology="t", stream=stream)
        self.bolt = bolt
        self.offsets: list[Offset] = []
        self.committed = 0
        self.reader: StreamingReader | None = None

    def step(self) -> None:
        """Runs a batch, if there is one; after an error another run of the query does."""
        try:
            self._step(self.reader or StreamingReader(self.options, LINE))
        except AckerError:
            self.reader = None

    def _step(self, reader: StreamingReader) -> None:
        self.reader = reader
        start = self.offsets[self.committed - 1] if self.committed else reader.initialOffset()
        if len(self.offsets) == self.committed:
            end = reader.latestOffset(start)
            if end["at"] <= start["at"]:
                return
            self.offsets.append(end)
        end, core = self.offsets[-1], self.ledger.core
        origin = Origin(frozenset({(end["reader"], start["at"], end["at"])}))
        writer = f"query-of-{self.options.stream}"
        if not self.ledger.run(commits.finish(core, writer, self.committed, origin)):
            rows, read = self._read(reader, start, end)
            what = Commit(tuple(self.bolt(self.ledger, rows)), (read,), origin=origin)
            self.ledger.run(commits.commit(core, writer, self.committed, what))
        self.committed += 1

    @staticmethod
    def _read(reader: StreamingReader, start: Offset, end: Offset) -> tuple[Rows, Range]:
        parts = reader.partitions(start, end)
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        [read] = {part.batch for part in parts if isinstance(part, SegmentsPartition)}
        assert read is not None
        return rows, read


class Pipeline:
    """A source of lines, a job that makes words of them, and one that puts these into a sink."""

    def __init__(self, url: str, turns: Turns, pause: int) -> None:
        self.turns = turns
        self.pause = pause
        self.sink: set[tuple[str, str]] = set()
        self.lines: dict[str, str] = {}
        self.slabs: dict[bytes, list[str]] = {}
        self.false_acks: list[str] = []
        self.acked = 0
        self.ledger = open_ledger(Store(url), "t", ackers=1)
        self.ticker = open_ledger(Store(url), "t")
        for stream in ("lines", "words"):
            self.ledger.run(schemas.record(self.ledger.core, stream, arrow_schema(LINE)))
        self.writer = StreamWriter(self.ledger, "lines")
        self.outcomes = OutcomeReader(self.ledger.core, "source")
        self.split = Query(url, "lines", self._split)
        self.count = Query(url, "words", self._count)

    def source(self) -> None:
        """Takes outcomes, and emits."""
        try:
            for entry in self.ledger.outcomes(self.outcomes):
                for one in entry.slabs:
                    names = self.slabs.get(one.slab, [])
                    for index in one.of(len(names)) if entry.status == "acked" else ():
                        self._check(names[index])
                self.ledger.confirm("source", [entry.receipt])
            if not self.turns.calm and len(self.lines) < 45:
                self._emit()
        except AckerError:
            pass

    def _check(self, name: str) -> None:
        self.acked += 1
        if missing := [word for word in self.lines[name].split() if (name, word) not in self.sink]:
            self.false_acks.append(f"{name} without {missing}")

    def _emit(self) -> None:
        first = len(self.lines)
        new = {f"m{n}": f"a{n} b{n}" + f" {POISON}" * (n % 4 == 0) for n in range(first, first + 3)}
        self.lines |= new
        batch = self.writer.batch(pa.table({"message_id": list(new), "line": list(new.values())}))
        anchors = ids.new_anchors(len(new))
        self.slabs[ids.slab_of(int(anchors[0]))] = list(new)
        slab = NewSlab(anchors, batch.ids(), [name.encode() for name in new])
        self.ledger.track_slabs([slab], spout="source")
        self.writer.publish(batch, anchors)

    def tick(self) -> None:
        """Rotates the buckets now and then: what is in flight then expires soon."""
        for _ in range(self.turns.chance.randrange(self.pause)):
            self.turns.wait()
        self.ticker.tick(force=True)

    @staticmethod
    def _split(ledger: Ledger, rows: Rows) -> list[Staged]:
        words = [{**row, "line": word} for row in rows for word in row["line"].split()]
        return [_stage(ledger, words)] if words else []

    def _count(self, ledger: Ledger, rows: Rows) -> list[Staged]:
        self.sink |= {(row["message_id"], row["line"]) for row in rows if row["line"] != POISON}
        poison = [{**row, FAILED: POISON} for row in rows if row["line"] == POISON]
        return [_stage(ledger, poison)] if poison else []


def _stage(ledger: Ledger, rows: Rows) -> Staged:
    schema = arrow_schema(LINE)
    schema = schema.append(pa.field(FAILED, pa.string())) if FAILED in rows[0] else schema
    table = pa.Table.from_pylist(rows, schema)
    return ledger.run(staging.stage(ledger.core, Staging("words"), table.to_batches()))


def test_a_store_that_is_set_back_at_any_exchange_reports_nothing_as_acked_that_is_not_done(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    """Half of the runs are hasty: nearly all that they do expires, in what the store loses.

    In half of the runs it loses only what lies on some nodes.
    """
    acked = losses = 0
    for seed in range(80):
        hasty = seed % 2
        valkey_raw.flushall()
        spans = (13, 34, 55) if hasty else (1, 2, 3, 5, 8, 13, 21, 34)
        turns = Turns(seed, valkey_raw, 900, spans, whole=seed % 4 < 2)
        pipeline = Pipeline(valkey_url, turns, 15 if hasty else 25)
        actors = {
            "source": pipeline.source,
            "split": pipeline.split.step,
            "count": pipeline.count.step,
            "ticker": pipeline.tick,
        }
        turns.run(actors, rounds=6)
        assert not pipeline.false_acks, seed
        acked, losses = acked + pipeline.acked, losses + turns.losses
    assert acked > 20
    assert losses > 300
