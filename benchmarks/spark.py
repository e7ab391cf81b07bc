"""The cost of tracking for Spark jobs that hand records to each other.

    uv run python -m benchmarks.spark [--variants words,...] [--lines 1000000] [--pairs 5] [--untuned]

A pair is the same work done twice, one right after the other in one Spark session: tracked, and not. The
order changes from pair to pair (A B, B A, ...), so that noise hits both alike. Each pair is printed as it is
measured; the first two (--warm-up) of a variant do not count. A variant's figure is the median of its pairs'
ratios: of seconds, and of processor seconds of all processes (Linux only), which other load hardly changes.

Job one reads lines from a stream and emits their words, ten to a line, to another; job two reads the words
into a sink that drops them. As it derives nothing from them, it reads them without the column `_acker`, which
an ack has no need of. Measured is from the start of the first query to the end of the last, so queries'
starts, checkpoints, commits and acks are part of it. The lines are there before: making and tracking them is
not measured, but reported ("spout"). After each tracked run all trees must be acked. Both halves have the
settings of `acker.spark.tuned`, or with --untuned Spark's own.

The untracked half is the same bolts on the same transport with the same rows, options and server, in a
topology without ackers, and reads the lines without the column `_acker`; "plain" has neither acker nor Redis.

    words         the words are emitted as they come
    anchors       the same, and job two reads `_acker`, too, as one does that emits or fails rows
    shuffled      they are shuffled by word before they are emitted
    multi-anchor  lines are paired by a shuffle first; each word is anchored to both lines of its pair
    aggregate     job one emits the groups of equal words, each anchored to all its lines; without tracking
                  nothing is to be gathered, just counted
    map           `Collector.emit_map` with a Python function for each line, against a mapInArrow that calls
                  the same function, both emitted; job one only
    marks         words, tracked with marks of the steps that acked, against tracked without them
    plain         words, against streaming queries with parquet files between them
    external      only if it is asked for: benchmarks/external_jobs.py
    kept          likewise: benchmarks/kept_spouts.py
"""

import argparse
import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.spark import Collector, bolt, register, tuned
from acker.streams import StreamWriter
from benchmarks.options import Number
from benchmarks.processes import cpu_seconds

WORDS_A_LINE = 10
VOCABULARY = 20_000
SEGMENT = 100_000
WARM_UP = 2
LINES = "number bigint, line string"
Function = Callable[[DataFrame, Collector], None]


@dataclass(frozen=True)
class Variant:
    """Job one, tracked and not; None for plain Spark. asked: the ratio that is aimed at.

    words, anchors: what job one emits. reads_anchors: job two does. jobs: how many of the two are measured.
    marks: the other half is tracked, too, but without marks.
    """

    tracked: Function
    untracked: Function | None
    asked: float | None
    words: str = "word string"
    anchors: str = "bigint"
    reads_anchors: bool = False
    jobs: int = 2
    marks: bool = False


def lines_table(lines: int, seed: int) -> pa.Table:
    """Lines of ten words each, numbered."""
    words = np.array([f"word{number}" for number in range(VOCABULARY)], dtype=object)
    picked = words[np.random.default_rng(seed).integers(0, VOCABULARY, (lines, WORDS_A_LINE))]
    return pa.table({"number": np.arange(lines), "line": [" ".join(row) for row in picked]})


def exploded(batch: DataFrame) -> DataFrame:
    """The words of lines, with their anchors where they have some."""
    kept = [name for name in batch.columns if name == "_acker"]
    return batch.select(F.explode(F.split("line", " ")).alias("word"), *kept)


def words(batch: DataFrame, collector: Collector) -> None:
    """Emits the words of a batch."""
    collector.emit(exploded(batch), "words")


def shuffled(batch: DataFrame, collector: Collector) -> None:
    """Emits them after a shuffle."""
    collector.emit(exploded(batch).repartition(2, "word"), "words")


def paired(batch: DataFrame, collector: Collector) -> None:
    """Emits the words of pairs of lines, each anchored to both."""
    found = [F.concat_ws(" ", F.collect_list("line")).alias("line")]
    if "_acker" in batch.columns:
        found.append(F.collect_list("_acker").alias("_acker"))
    pairs = batch.groupBy(F.expr("number div 2").alias("pair")).agg(*found)
    collector.emit(exploded(pairs), "words")


def aggregated(batch: DataFrame, collector: Collector) -> None:
    """Emits each word with how often it is there, anchored to all lines that it is in."""
    found = [F.count("*").alias("n")]
    if "_acker" in batch.columns:
        found.append(F.collect_list("_acker").alias("_acker"))
    collector.emit(exploded(batch).groupBy("word").agg(*found), "words")


def split_line(record: dict[str, object]) -> list[tuple[str]]:
    """The words of one record, in Python."""
    return [(word,) for word in str(record["line"]).split(" ")]


def mapped(batch: DataFrame, collector: Collector) -> None:
    """Splits in Python, record by record."""
    collector.emit_map(batch, split_line, "word string", "words")


def split_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same without acker: what a user of mapInArrow writes."""
    for batch in batches:
        found = [word for record in batch.to_pylist() for (word,) in split_line(record)]
        yield pa.RecordBatch.from_pydict({"word": pa.array(found, pa.string())})


def mapped_untracked(batch: DataFrame, collector: Collector) -> None:
    """Splits with mapInArrow and the same function."""
    collector.emit(batch.mapInArrow(split_batches, "word string"), "words")


def drop(batch: DataFrame, _: Collector | None = None) -> None:
    """Reads all of a batch."""
    batch.write.format("noop").mode("overwrite").save()


VARIANTS = {
    "words": Variant(words, words, 1.10),
    "anchors": Variant(words, words, None, reads_anchors=True),
    "shuffled": Variant(shuffled, shuffled, 1.20),
    "multi-anchor": Variant(paired, paired, 1.35, anchors="array<bigint>"),
    "aggregate": Variant(
        aggregated, aggregated, None, words="word string, n bigint", anchors="array<bigint>"
    ),
    "map": Variant(mapped, mapped_untracked, 1.10, jobs=1),
    "marks": Variant(words, words, 1.02, marks=True),
    "plain": Variant(words, None, 1.5),
}


APART = {"external": "external_jobs", "kept": "kept_spouts"}
"""Variants that a module of their own measures."""


@dataclass
class Taken:
    """The cost of half a pair: seconds of each job, processor seconds of all, and seconds of the spout."""

    jobs: list[float]
    cpu: float
    spout: float

    @property
    def seconds(self) -> float:
        """Of all jobs."""
        return sum(self.jobs)

    def __str__(self) -> str:
        jobs = " + ".join(f"{job:.2f}" for job in self.jobs)
        return f"{self.seconds:.2f} s = {jobs}, cpu {self.cpu:.2f} s, spout {self.spout:.2f} s"


class Bench:
    """One server and one Spark session for all pairs."""

    def __init__(self, spark: SparkSession, url: str, directory: Path) -> None:
        self.spark = spark
        self.url = url
        self.directory = directory
        self.runs = 0

    def new_directory(self) -> Path:
        """A directory that no query has used."""
        self.runs += 1
        return self.directory / f"run{self.runs}"

    def finish(self, writer: DataStreamWriter) -> None:
        """Runs a query over all that there is."""
        query = writer.option("checkpointLocation", str(self.new_directory()))
        query.trigger(availableNow=True).start().awaitTermination()

    def job(self, topology: str, stream: str, schema: str, name: str, function: Function) -> None:
        """Runs a bolt over all that a stream has."""
        reader = self.spark.readStream.format("acker").schema(schema)
        frame = reader.options(url=self.url, topology=topology, stream=stream).load()
        run = bolt(url=self.url, topology=topology, name=name)(function)
        self.finish(frame.writeStream.foreachBatch(run))

    def acker(self, lines: pa.Table, tracked: bool, variant: Variant, marks: str = "slabs") -> Taken:
        """The jobs over acker's streams."""
        redis.Redis.from_url(self.url).flushall()
        name, anchors = ("tracked", ", _acker bigint") if tracked else ("untracked", "")
        first = variant.tracked if tracked else variant.untracked
        assert first is not None
        with Topology(
            self.url,
            name,
            ackers=4 if tracked else 0,
            message_timeout=3600.0,
            high_water_mark=100_000_000,
            marks=marks,
        ) as topology:
            spout = self.publish(topology, lines, tracked)
            # What comes out of job one has its own columns, and anchors of its own kind.
            own = anchors.replace("bigint", variant.anchors) if variant.reads_anchors else ""
            schemas = [LINES + anchors, variant.words + own]
            steps: list[Callable[[], None]] = [
                lambda: self.job(name, "lines", schemas[0], "split", first),
                lambda: self.job(name, "words", schemas[1], "read", drop),
            ]
            taken = timed(steps[: variant.jobs], spout)
            for step in steps[variant.jobs :]:
                step()
            counters = topology.counters()
        if tracked and counters["acked"] != lines.num_rows:
            raise SystemExit(f"{counters['acked']} of {lines.num_rows} trees were acked: {counters}")
        return taken

    def publish(self, topology: Topology, lines: pa.Table, tracked: bool) -> float:
        """Writes the lines to their stream; returns the seconds."""
        start = time.perf_counter()
        writer = StreamWriter(topology.ledger, "lines")
        spout = topology.spout("lines", max_spout_pending=lines.num_rows)
        for at in range(0, lines.num_rows, SEGMENT):
            batch = writer.batch(lines.slice(at, SEGMENT))
            anchors = None
            if tracked:
                ids = [b"%d" % number for number in range(at, at + batch.rows.num_rows)]
                anchors, _ = spout.emit_many(ids, values=batch.ids())
            writer.publish(batch, anchors)
        return time.perf_counter() - start

    def plain(self, lines: pa.Table) -> Taken:
        """Both jobs with parquet files between them."""
        base = self.new_directory()
        found = str(base / "words")
        start = time.perf_counter()
        frame = self.spark.createDataFrame(lines).repartition(max(2, lines.num_rows // SEGMENT))
        frame.write.parquet(str(base / "lines"))
        spout = time.perf_counter() - start

        def job(name: str, schema: str, function: Callable[[DataFrame, int], None]) -> None:
            frame = self.spark.readStream.schema(schema).parquet(str(base / name))
            self.finish(frame.writeStream.foreachBatch(function))

        taken = timed(
            [
                lambda: job("lines", LINES, lambda batch, _: exploded(batch).write.parquet(found)),
                lambda: job("words", "word string", lambda batch, _: drop(batch)),
            ],
            spout,
        )
        shutil.rmtree(base)
        return taken

    def pair(self, variant: Variant, lines: pa.Table, turn: int) -> tuple[Taken, Taken]:
        """Tracked and not tracked, in this order or the other by turns."""

        def untracked() -> Taken:
            if variant.marks:
                return self.acker(lines, True, variant, marks="off")
            return self.acker(lines, False, variant) if variant.untracked else self.plain(lines)

        if turn % 2:
            second = untracked()
            return self.acker(lines, True, variant), second
        return self.acker(lines, True, variant), untracked()

    def variant(self, name: str, lines: pa.Table, pairs: int, warm_up: int) -> dict[str, Any]:
        """Measures a variant, and tells of each pair; the pairs that warm up do not count."""
        variant = VARIANTS[name]
        found = []
        for turn in range(1 - warm_up, pairs + 1):
            tracked, other = self.pair(variant, lines, turn)
            if turn > 0:
                found.append((tracked, other))
            print(
                f"{name} {turn if turn > 0 else 'warm-up'}: {tracked.seconds / other.seconds:.3f}, cpu "
                f"{tracked.cpu / other.cpu:.3f}   tracked {tracked}   without {other}   load "
                f"{os.getloadavg()[0]:.1f}",
                file=sys.stderr,
                flush=True,
            )
        measured = [
            {
                "tracked": tracked.seconds,
                "without": other.seconds,
                "ratio": tracked.seconds / other.seconds,
                "cpu_ratio": tracked.cpu / other.cpu,
            }
            for tracked, other in found
        ]
        medians = {key: statistics.median(pair[key] for pair in measured) for key in measured[0]}
        return {**medians, "asked": variant.asked, "pairs": measured}


def timed(steps: Sequence[Callable[[], None]], spout: float) -> Taken:
    """Runs jobs, one after the other."""
    cpu, jobs = cpu_seconds(), []
    for step in steps:
        start = time.perf_counter()
        step()
        jobs.append(time.perf_counter() - start)
    return Taken(jobs, cpu_seconds() - cpu, spout)


def session(tune: bool) -> SparkSession:
    """Two cores in one JVM, nothing shown."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    return (
        (tuned(builder, local_checkpoints=True, pip_workers=True) if tune else builder)
        .appName("acker benchmark")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )


def names(text: str) -> list[str]:
    """Names of variants, from a list with commas."""
    found, known = text.split(","), [*VARIANTS, *APART]
    if unknown := [name for name in found if name not in known]:
        raise argparse.ArgumentTypeError(f"no such variant: {', '.join(unknown)} (known: {', '.join(known)})")
    return found


def main() -> None:
    """Measures the variants and prints their figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variants", type=names, default=list(VARIANTS), help="some of them, with commas")
    parser.add_argument("--lines", type=Number(), default=1_000_000)
    parser.add_argument("--pairs", type=Number(), default=5)
    parser.add_argument("--warm-up", type=Number(least=0), default=WARM_UP, help="pairs that do not count")
    parser.add_argument("--untuned", action="store_true", help="Spark's settings as they come")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    ensure_java()
    table = dict[str, dict[str, Any]]()
    with ExitStack() as stack:
        url = stack.enter_context(EmbeddedServer(append_only=False)).url
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = session(not asked.untuned)
        stack.callback(spark.stop)
        register(spark)
        bench, lines = Bench(spark, url, directory), lines_table(asked.lines, 1)
        for name in asked.variants:
            if name in APART:
                apart = importlib.import_module(f"benchmarks.{APART[name]}")  # which needs this module
                table[name] = {"figures": apart.measure(bench, lines, asked.pairs, quiet=asked.json)}
                continue
            table[name] = row = bench.variant(name, lines, asked.pairs, asked.warm_up)
            if not asked.json:
                aim = f"asked: at most {row['asked']}" if row["asked"] else "nothing asked"
                print(
                    f"{name:13}{row['tracked']:7.2f} s{row['without']:7.2f} s{row['ratio']:7.3f} x"
                    f"{row['cpu_ratio']:7.3f} x of processor time   ({aim})",
                    flush=True,
                )
    if asked.json:
        print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
