"""Two jobs whose store loses its latest moments, at any exchange: what is reported as acked is in the sink.

Without Spark: what it asks of a source, and what a bolt does with a batch, in its order.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql.types import LongType, StringType, StructField, StructType

from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.slabs import NewSlab
from acker.spark.options.options import Options
from acker.spark.runtime.versions import arrow_schema
from acker.spark.source.partitions import SegmentsPartition
from acker.spark.source.reading import Offset, StreamingReader
from acker.streams import StreamWriter
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.origins import Origin
from acker.streams.log import schemas
from acker.streams.log.subscriptions import Range
from acker.streams.staging import staging
from acker.streams.staging.staging import FAILED, Staged, Staging
from tests.helpers.faults.simulator import HISTORIES, Move, World, histories, run_history
from tests.helpers.servers.sparks import shared_subscriptions

pytestmark = [pytest.mark.damage, shared_subscriptions]

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
        self.options = Options(url=url, topology="t", stream=stream)
        self.bolt = bolt
        self.offsets: list[Offset] = []
        self.committed = 0

    def run(self, ledger: Ledger) -> None:
        """A run of the query, of a few batches."""
        reader = StreamingReader(self.options, LINE)
        for _ in range(4):
            self._step(ledger, reader)

    def _step(self, ledger: Ledger, reader: StreamingReader) -> None:
        start = self.offsets[self.committed - 1] if self.committed else reader.initialOffset()
        if len(self.offsets) == self.committed:
            end = reader.latestOffset(start)
            if end["at"] <= start["at"]:
                return
            self.offsets.append(end)
        end, core = self.offsets[-1], ledger.core
        origin = Origin(frozenset({(end["reader"], start["at"], end["at"])}))
        writer = f"query-of-{self.options.stream}"
        if not ledger.run(commits.finish(core, writer, self.committed, origin)):
            rows, read = self._read(reader, start, end)
            what = Commit(tuple(self.bolt(ledger, rows)), (read,), origin=origin)
            ledger.run(commits.commit(core, writer, self.committed, what))
        self.committed += 1

    @staticmethod
    def _read(reader: StreamingReader, start: Offset, end: Offset) -> tuple[Rows, Range]:
        parts = reader.partitions(start, end)
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        [read] = {part.batch for part in parts if isinstance(part, SegmentsPartition)}
        assert read is not None
        return rows, read


class PipelineWorld(World):
    """A source of lines, a job that makes words of them, and one that puts these into a sink."""

    actors: ClassVar = ("source", "split", "count")
    events: ClassVar = ("tick",)
    scripts: ClassVar = (
        "claim_segments",
        "begin_commit",
        "apply_staged",
        "publish",
        "note_segments",
        "chain",
    )
    settings: ClassVar = {"ackers": 1}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.sink: set[tuple[str, str]] = set()
        self.lines: dict[str, str] = {}
        self.slabs: dict[bytes, list[str]] = {}
        self.false_acks: list[str] = []
        self.acked: set[str] = set()
        self.ticks = 0
        for stream in ("lines", "words"):
            self.ledger.run(schemas.record(self.ledger.core, stream, arrow_schema(LINE)))
        self.queries = Query(url, "lines", self._split), Query(url, "words", self._count)
        for query in self.queries:  # they subscribe
            query.run(self.ledger)
        self._emit(self.ledger)

    def source(self, ledger: Ledger) -> None:
        """Emits, and takes outcomes."""
        self._emit(ledger)
        self._take(ledger)

    def _take(self, ledger: Ledger) -> None:
        outcomes = OutcomeReader(ledger.core, "source")
        for entry in ledger.outcomes(outcomes):
            for one in entry.slabs:
                names = self.slabs.get(one.slab, [])
                for index in one.indexes_in(len(names)) if entry.status == "acked" else ():
                    self._check(names[index])
            ledger.confirm("source", [entry.confirmation])

    def split(self, ledger: Ledger) -> None:
        """A run of the first job."""
        self.queries[0].run(ledger)

    def count(self, ledger: Ledger) -> None:
        """A run of the second job."""
        self.queries[1].run(ledger)

    def _check(self, name: str) -> None:
        self.acked.add(name)
        if missing := [word for word in self.lines[name].split() if (name, word) not in self.sink]:
            self.false_acks.append(f"{name} without {missing}")

    def _emit(self, ledger: Ledger) -> None:
        first = len(self.lines)
        new = {f"m{n}": f"a{n} b{n}" + f" {POISON}" * (n % 4 == 0) for n in range(first, first + 3)}
        self.lines |= new
        writer = StreamWriter(ledger, "lines")
        batch = writer.batch(pa.table({"message_id": list(new), "line": list(new.values())}))
        anchors = ids.new_anchors(len(new))
        self.slabs[ids.slab_of(int(anchors[0]))] = list(new)
        slab = NewSlab(anchors, batch.ids(), [name.encode() for name in new])
        ledger.track_slabs([slab], spout="source")
        writer.publish(batch, anchors)

    def tick(self) -> None:
        """Rotates the buckets: what is in flight then expires soon."""
        self.ticks += 1
        self.ledger.tick(force=True)

    def check(self) -> None:
        """Checks that each acked record is in the sink, and every record where nothing was lost."""
        for _ in range(6):
            for act in (*(query.run for query in self.queries), self._take):
                with suppress(AckerError):
                    act(self.ledger)
        assert not self.false_acks
        assert self.acked >= {"m1", "m2"} or self.simulator.losses or self.ticks > 2

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


@HISTORIES
@given(history=histories(PipelineWorld, backs=("back", "part")))
def test_a_store_that_is_set_back_at_any_exchange_reports_nothing_as_acked_that_is_not_done(
    valkey_url: str, history: list[Move]
) -> None:
    run_history(PipelineWorld, valkey_url, history)
