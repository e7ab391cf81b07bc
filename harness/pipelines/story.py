"""The verbs of a story, on real Spark and a real store: what the code of a pipeline is run with."""

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.errors import AckerError, FailedException, UnknownStream
from acker.ledger.client import Ledger
from acker.spark import bolt, job, track
from acker.streams import Stream, StreamReader
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from harness.pipelines.ends import CRASH, end_of
from harness.pipelines.operators import APART, KINDS, SCHEMA
from harness.pipelines.plan import ATTEMPTS, Pipeline
from harness.pipelines.verdict import DONE, HUNG, PLANNED, End, Observed, Reported

COLUMNS = ["id", "k", "at", "attempt", "made_of", "_acker"]
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
WITHIN = 120
"""Seconds that a run of a query may take."""
_ROUNDS = 3
_SPARE = ("out", "side")
Start = Callable[[int], DataStreamWriter | None]


class Crash(Exception):
    """A crash that a story causes in a bolt or a task."""


@dataclass(slots=True)
class Story:
    """One pipeline on its way. directory: its own, empty."""

    spark: SparkSession
    ledger: Ledger
    url: str
    directory: Path
    plan: Pipeline
    reported: list[Reported] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    _started: dict[str, int] = field(default_factory=dict)
    _running: dict[str, StreamingQuery] = field(default_factory=dict)
    _put: dict[str, int] = field(default_factory=dict)
    _dies: str = ""

    def tell(self) -> Observed:
        """Runs the pipeline's code and story, lets all come to rest, and returns what there is."""
        names: dict[str, Any] = {
            "URL": self.url, "TOPOLOGY": self.ledger.config.name, "SINK": str(self.directory / "sink"),
            "COLUMNS": COLUMNS, "F": F, "Window": Window, "Thread": Thread, "bolt": bolt, "track": track,
            "ThreadPoolExecutor": ThreadPoolExecutor, "flaky": partial(_flaky, str(self.directory / "armed")),
            "read": self.read, "write": self.write, "files": self.files, "spout": self.spout,
            "options": self.options, "crash_point": self.crash_point, "put": self.put, "run": self.run,
            "keep": self.keep, "restore": self.restore, "forget_offsets": self.forget_offsets,
            "forget_checkpoint": self.forget_checkpoint, "subscribe": self.subscribe,
            "spark": self.spark, "job": job,
            "settle": self.settle, "expire": self.expire, "take_out": self.take_out,
        }  # fmt: skip
        try:
            exec(compile(self.plan.code.text, f"pipeline {self.plan.seed}", "exec"), names)
            for line in self.plan.story:
                exec(line, names)
            self._rest([names[name] for name in names if name.startswith("start_")])
        finally:
            for query in self._running.values():
                query.stop()
        return self._observed()

    # For the code

    def options(self, stream: str, **more: object) -> dict[str, str]:
        """Options of the data source."""
        given = {"url": self.url, "topology": self.ledger.config.name, "stream": stream, **more}
        return {name: str(value) for name, value in given.items()}

    def read(self, stream: str, schema: str | None = None, **more: object) -> DataFrame:
        """A stream as a streaming DataFrame."""
        reader = self.spark.readStream.format("acker").options(**self.options(stream, **more))
        return (reader.schema(schema) if schema else reader).load()

    def write(self, rows: DataFrame, stream: str, **more: object) -> DataStreamWriter:
        """A query that writes rows to a stream by itself."""
        own = {name: value for name, value in more.items() if name not in ("url", "topology")}
        return rows.writeStream.format("acker").options(**self.options(stream, **own))

    def files(self, name: str) -> DataFrame:
        """The files of a spout as a streaming DataFrame."""
        there = self.directory / "files" / name
        there.mkdir(parents=True, exist_ok=True)
        schema = SCHEMA.replace("attempt int, ", "")
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(there))

    def spout(self, name: str) -> dict[str, Any]:
        """The options with which a spout tracks its rows."""
        return {
            "url": self.url, "topology": self.ledger.config.name, "spout": name, "message_id": "id",
            "attempt": "attempt", "attempts": ATTEMPTS,
        }  # fmt: skip

    def crash_point(self, name: str) -> None:
        """Ends a bolt here, where the story wants that."""
        if self._dies == name:
            self._dies = ""
            raise Crash(f"{CRASH} {name}")
        if name == "end" and self._dies == "failed":
            self._dies = ""
            raise FailedException("a batch that fails as a whole")

    # For the story

    def put(self, name: str, count: int) -> None:
        """Makes records: in a stream, or in a file."""
        first = self._put.get(name, 0)
        self._put[name] = first + count
        base = self.plan.code.spouts.index(name) * APART
        rows = [
            {
                "id": base + number,
                "k": (base + number) % KINDS,
                "at": FIRST_DAY + timedelta(minutes=number),
                "made_of": [str(base + number)],
            }
            for number in range(first, first + count)
        ]
        if self.plan.code.source != "stream":
            self.files(name)
            there = self.directory / "files" / name / f"{first}.json"
            hidden = there.with_name(f".{first}")
            lines = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows]  # type: ignore[attr-defined]
            hidden.write_text("\n".join(lines) + "\n")
            hidden.rename(there)
            return
        spout = StreamSpout(self.ledger, SpoutOptions(name, name, "id", ATTEMPTS, "attempt"))
        schema = pa.schema(
            [
                ("id", pa.int64()),
                ("k", pa.int32()),
                ("at", pa.timestamp("us", "UTC")),
                ("made_of", pa.list_(pa.string())),
            ]
        )
        half = (count + 1) // 2
        for part in (rows[:half], rows[half:]):  # two segments
            spout.write(pa.Table.from_pylist(part, schema))

    def run(self, start: Start, dies: str = "", stays: bool = False) -> None:
        """Runs a query until it has worked on all there is; from then on, where it is to stay.

        dies: where its bolt does; "failed": its batch fails as a whole; "task": one of its tasks dies.
        """
        name = start.__name__.removeprefix("start_")
        armed = self.directory / "armed"
        self._dies = "" if dies == "task" else dies
        if dies == "task":
            armed.touch()
        self.ends.append(self._run(name, start, stays))
        armed.unlink(missing_ok=True)
        self._dies = ""

    def _run(self, name: str, start: Start, stays: bool) -> End:
        for _ in range(4):
            try:
                query = self._running.get(name)
                if query is not None and query.isActive:
                    return _worked_off(name, query)
                writer = start(self._started.get(name, 0))
                self._started[name] = self._started.get(name, 0) + 1
                if writer is None:
                    return End(name, DONE)
                writer = writer.option("checkpointLocation", str(self._checkpoint(name)))
                query = (writer if stays else writer.trigger(availableNow=True)).start()
                if stays:
                    self._running[name] = query
                    return _worked_off(name, query)
                if not query.awaitTermination(WITHIN):
                    query.stop()
                    return End(name, HUNG)
                return End(name, DONE)
            except (PySparkException, AckerError, Crash) as error:
                if "worker failed to connect back" in str(error):
                    continue  # Spark's own: a busy machine (docs/spark/reference.md)
                if isinstance(error, UnknownStream) or "UnknownStream" in str(error):
                    return End(name, PLANNED, "nothing was written to its stream yet")
                return end_of(name, error)
        return End(name, PLANNED, "the machine is too busy")

    def _checkpoint(self, name: str) -> Path:
        return self.directory / "checkpoints" / name

    def keep(self, name: str) -> None:
        """Makes a copy of a query's checkpoint."""
        self._stop(name)
        if self._checkpoint(name).exists():
            shutil.copytree(self._checkpoint(name), self._checkpoint(f"{name}-copy"), dirs_exist_ok=True)

    def restore(self, name: str) -> None:
        """Puts the copy of a query's checkpoint back."""
        self._stop(name)
        if self._checkpoint(f"{name}-copy").exists():
            shutil.rmtree(self._checkpoint(name), ignore_errors=True)
            shutil.copytree(self._checkpoint(f"{name}-copy"), self._checkpoint(name))

    def forget_offsets(self, name: str) -> None:
        """Removes the last batch of a query from its checkpoint where it was not committed."""
        self._stop(name)
        offsets = {int(one.name) for one in self._checkpoint(name).glob("offsets/[0-9]*")}
        commits = {int(one.name) for one in self._checkpoint(name).glob("commits/[0-9]*")}
        for number in offsets - commits:
            (self._checkpoint(name) / "offsets" / str(number)).unlink()
            (self._checkpoint(name) / "offsets" / f".{number}.crc").unlink(missing_ok=True)

    def forget_checkpoint(self, name: str) -> None:
        """Removes a query's checkpoint, so that a new query goes on. What the old one had taken comes again
        when it expires.
        """
        self._stop(name)
        shutil.rmtree(self._checkpoint(name), ignore_errors=True)

    def subscribe(self, stream: str, name: str) -> None:
        """Makes a subscription of a stream."""
        Stream(self.ledger, stream).subscribe(name)

    def _stop(self, name: str) -> None:
        query = self._running.pop(name, None)
        if query is not None:
            query.stop()

    def settle(self) -> int:
        """Settles all outcomes that there are; returns how many."""
        settled = 0
        while done := sum(
            settler.settle(self.ledger, name, self._note).all for name in self.plan.code.spouts
        ):
            settled += done
        return settled

    def _note(self, outcomes: pa.Table) -> None:
        sink = self.sink()
        self.reported += [
            Reported(int(row["message_id"]), row["status"], row["attempt"], row["final"], sink)
            for row in outcomes.to_pylist()
        ]

    def expire(self) -> None:
        """Has all trees expire that are pending, and settles."""
        for _ in range(3):
            self.ledger.tick(force=True)
        self.settle()

    def take_out(self) -> None:
        """Takes what the pipeline emits at its end: into the sink, and acked."""
        for stream in _SPARE:
            reader = StreamReader(self.ledger, stream)
            try:
                found = [mark for row in reader.rows() for mark in row.get("made_of") or ()]  # type: ignore[attr-defined]
                if stream == "out":
                    self._taken.update(found)
                reader.ack()
            except UnknownStream:
                continue

    # At the end

    def sink(self) -> frozenset[str]:
        """The marks that are in the sink."""
        found = set(self._taken)
        for file in (self.directory / "sink").glob("*/part-*.json"):
            for line in file.read_text().splitlines():
                found.update(json.loads(line).get("made_of") or ())
        return frozenset(found)

    def _pending(self) -> dict[str, int]:
        counts = [
            self.ledger.run(kept_rows.pending(self.ledger.core, name)) for name in self.plan.code.spouts
        ]
        return {key: sum(one[key] for one in counts) for key in counts[0]}

    def _rest(self, starts: list[Start]) -> None:
        """Runs all, without faults, until each record has an outcome; what is pending still expires."""
        for attempt in range(_ROUNDS):
            for start in starts:
                self.run(start, stays=True)
            self.settle()
            self.take_out()
            self.settle()
            if not self._pending()["pending"] and (attempt or self.plan.code.source == "stream"):
                return
            if self._stuck(len(starts)):
                break
            if attempt:
                self.expire()
        for _ in range(ATTEMPTS + 1):
            self.expire()

    def _stuck(self, queries: int) -> bool:
        return all(end.kind not in (DONE, PLANNED) for end in self.ends[-queries:])

    def _observed(self) -> Observed:
        pending = self._pending()
        letters: list[int] = []
        for name in self.plan.code.spouts:
            page = self.ledger.run(
                dead_letters.page(self.ledger.core, dead_letters.Filter(spout=name), limit=1000)
            )
            letters += [int(one.message_id) for one in page.letters]
        return Observed(
            self.plan.expected(), tuple(self.reported), self.sink(), letters, pending["pending"],
            pending["pending"] + pending["acked"] + pending["dead"], tuple(self.ends),
            self.plan.code.source != "stream",
        )  # fmt: skip


def _worked_off(name: str, query: StreamingQuery) -> End:
    """Waits until a query that goes on has worked on all there is."""
    late = Event()

    def stop() -> None:
        late.set()
        query.stop()

    timer = Timer(WITHIN, stop)
    timer.start()
    try:
        query.processAllAvailable()
    except PySparkException:
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    return End(name, HUNG if late.is_set() else DONE)


def _flaky(armed: str, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Passes rows on; a task that finds the file that arms it removes that, and dies."""
    for frame in frames:
        if Path(armed).exists():
            Path(armed).unlink(missing_ok=True)
            raise Crash(f"{CRASH} task")
        yield frame
