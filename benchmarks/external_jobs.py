"""External streams of Spark: rows in files and in Kafka against the same jobs without acker, and a stream.

    uv run python -m benchmarks.spark --variants external [--lines 1000000] [--pairs 5]

Job one reads lines, and writes their words as rows of so many bytes to files of parquet, or to a topic; job
two reads them into a sink that drops the rows. Pairs, and what is measured of them, are as in
benchmarks/spark.py:

    rows of 25, 500 bytes    tracked, with stamps, against plain Spark; the lines come from a stream, or files
    rows of 100 bytes        the same by a topic of 2 partitions, if Maven is there to fetch Kafka with
    against a stream         tracked, the words as they are in files, against words in the store
    store                    bytes of a row in flight, of 500 random bytes and a tree: in files, in the store
    exchanges                of a driver that receives 100 segments and sends 10 partitions with the store: of
                             a job, and of the second batch of a bolt
"""

import secrets
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import Topology
from acker.spark import Acker, Collector, Sink, kafka
from acker.spark.external.sinks import Write
from acker.streams import StreamWriter
from benchmarks.exchanges import exchanges
from benchmarks.external_segments import Sender
from benchmarks.servers import client
from benchmarks.spark import LINES, VARIANTS, WARM_UP, Bench, Taken, drop, exploded, timed
from tests.helpers.servers import kafka as brokers
from tests.helpers.servers.jars import NO_MAVEN
from tests.helpers.servers.kafka import Broker

STAMPED = "word string, _acker_stamp string"
FLIGHT = 100_000
"""Rows in flight of which the bytes in the store are measured."""
SEGMENTS, PARTITIONS = 100, 10


@dataclass(frozen=True)
class Figure:
    """A figure with acker, the same without, their ratio, and the ratio that is aimed at."""

    name: str
    figure: float
    against: float
    ratio: float
    cpu_ratio: float | None
    asked: float
    unit: str = "s"

    def __str__(self) -> str:
        cpu = f"{self.cpu_ratio:7.3f} x of processor time" if self.cpu_ratio else ""
        return (
            f"{self.name:44}{self.figure:9.2f}{self.against:9.2f} {self.unit:6}{self.ratio:7.3f} x"
            f"{cpu}   (asked: at most {self.asked:.4g})"
        )


def sized(batch: DataFrame, size: int) -> DataFrame:
    """The words of lines as rows of so many bytes; 0 for the words as they are."""
    rows = exploded(batch)
    if not size:
        return rows
    text = F.concat("word", F.repeat(F.sha2("word", 512), 1 + size // 128))
    return rows.withColumn("word", text.substr(1, size))


class Files:
    """Words in parquet files."""

    def __init__(self, base: Path) -> None:
        self.where = str(base / "words")

    def sink(self) -> Write:
        """Returns the files as a sink of rows with stamps."""
        return lambda writer: writer.mode("append").parquet(self.where)

    def write(self, words: DataFrame) -> None:
        """Writes words without acker."""
        words.write.mode("append").parquet(self.where)

    def read(self, spark: SparkSession, *, stamped: bool) -> DataFrame:
        """Returns a stream of the words."""
        return spark.readStream.schema(STAMPED if stamped else "word string").parquet(self.where)


class Topic:
    """Words in a topic of Kafka."""

    def __init__(self, broker: Broker) -> None:
        self.servers, self.name = broker.servers, broker.topic(2)

    def sink(self) -> Sink:
        """Returns the topic as a sink of rows with stamps."""
        to = kafka.to(self.servers, self.name)
        with_headers = to.prepare
        assert with_headers is not None
        return replace(to, prepare=lambda rows: with_headers(rows.withColumnRenamed("word", "value")))

    def write(self, words: DataFrame) -> None:
        """Writes words without acker."""
        to = {"kafka.bootstrap.servers": self.servers, "topic": self.name}
        words.select(F.col("word").alias("value")).write.format("kafka").options(**to).save()

    def read(self, spark: SparkSession, *, stamped: bool) -> DataFrame:
        """Returns a stream of the words."""
        of = {"kafka.bootstrap.servers": self.servers, "subscribe": self.name}
        of |= {"startingOffsets": "earliest", "includeHeaders": str(stamped)}
        return spark.readStream.format("kafka").options(**of).load()


Place = Callable[[Path], Files | Topic]
"""Makes a place for the words of a run, whose directory it gets."""


def tracked(bench: Bench, lines: pa.Table, size: int, place: Place = Files) -> Taken:
    """The two jobs, with acker."""
    redis.Redis.from_url(bench.url).flushall()
    base = bench.new_directory()
    there, name = place(base), base.name  # of its own: this process knows the streams of earlier ones
    acker = Acker(bench.url, name)

    @acker.bolt("split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(sized(batch, size), "words", to=there.sink())

    @acker.bolt("read", receives="words")
    def read(batch: DataFrame, _: Collector) -> None:
        drop(batch.drop("_acker", "_acker_stamp"))

    def first() -> None:
        frame = acker.read_stream(bench.spark, "lines", schema=f"{LINES}, _acker bigint")
        bench.finish(frame.writeStream.foreachBatch(split))

    def second() -> None:
        bench.finish(there.read(bench.spark, stamped=True).writeStream.foreachBatch(read))

    settings = {"ackers": 4, "message_timeout": 3600.0, "high_water_mark": 100_000_000}
    with Topology(bench.url, name, **settings) as topology:  # type: ignore[arg-type]
        topology.incoming("words", subscription="read")
        taken = timed([first, second], bench.publish(topology, lines, True))
        counters = topology.counters()
    shutil.rmtree(base, ignore_errors=True)
    if counters["acked"] != lines.num_rows:
        raise SystemExit(f"{counters['acked']} of {lines.num_rows} trees were acked: {counters}")
    return taken


def plain(bench: Bench, lines: pa.Table, size: int, place: Place = Files) -> Taken:
    """The two jobs of Spark alone."""
    base = bench.new_directory()
    source, there = str(base / "lines"), place(base)
    bench.spark.createDataFrame(lines).repartition(max(2, lines.num_rows // 100_000)).write.parquet(source)

    def first() -> None:
        frame = bench.spark.readStream.schema(LINES).parquet(source)
        bench.finish(frame.writeStream.foreachBatch(lambda batch, _: there.write(sized(batch, size))))

    def second() -> None:
        frame = there.read(bench.spark, stamped=False)
        bench.finish(frame.writeStream.foreachBatch(lambda batch, _: drop(batch)))

    taken = timed([first, second], 0.0)
    shutil.rmtree(base)
    return taken


def pairs(
    name: str, asked: float, count: int, one: Callable[[], Taken], other: Callable[[], Taken]
) -> Figure:
    """The medians of so many pairs, whose order changes by turns; the first ones warm up."""
    found = list[tuple[Taken, Taken]]()
    for turn in range(1 - WARM_UP, count + 1):
        second = other() if turn % 2 else None
        first = one()
        pair = first, second or other()
        if turn > 0:
            found.append(pair)
        print(f"{name}: {pair[0]}   against {pair[1]}", file=sys.stderr, flush=True)
    median = statistics.median
    return Figure(
        name,
        median(first.seconds for first, _ in found),
        median(second.seconds for _, second in found),
        median(first.seconds / second.seconds for first, second in found),
        median(first.cpu / second.cpu for first, second in found),
        asked,
    )


def store(bench: Bench) -> Figure:
    """Bytes in the store of rows in flight beside their trees: in files, and in a stream."""
    redis.Redis.from_url(bench.url).flushall()
    sender = Sender.begin(bench.url, "t")
    trees = sender.trees(FLIGHT)
    with client(bench.url) as raw:
        writer = StreamWriter(sender.ledger, "managed")
        before = set(raw.scan_iter("acker:*", count=1000))

        def grown() -> float:
            names = set(raw.scan_iter("acker:*", count=1000)) - before
            before.update(names)
            return sum(raw.memory_usage(name, samples=0) or 0 for name in names) / FLIGHT

        sender.send(np.split(trees, FLIGHT // 1_000))
        external = grown()
        for anchors in np.split(trees, FLIGHT // 1_000):
            rows = pa.table({"value": [secrets.token_bytes(500) for _ in anchors]})
            writer.publish(writer.batch(rows), anchors)
        managed = grown()
    return Figure(
        "store of a row of 500 bytes in flight", external, managed, external / managed, None, 1 / 40, "B"
    )


def flights(bench: Bench) -> list[Figure]:
    """Exchanges of a driver with the store that receives 100 segments and sends 10 partitions.

    They are counted for the second of two jobs, and for the second batch of a bolt: the first one shows its
    scripts to the server. Of a job's, `acker.job` has four before its first call.
    """
    redis.Redis.from_url(bench.url).flushall()
    base, acker = bench.new_directory(), Acker(bench.url, "t")
    jobs, batches = list[list[list[str]]](), list[list[list[str]]]()

    def send(where: str) -> None:
        with acker.job(bench.spark, "send") as collector:
            numbers = bench.spark.range(0, SEGMENTS * 10, 1, 4).selectExpr("string(id) value")
            rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
            collector.emit(rows, "first", to=lambda w: w.mode("append").parquet(where), segment_rows=10)

    def work(rows: DataFrame, collector: Collector) -> None:
        target = str(base / secrets.token_hex(8))
        collector.emit(rows.repartition(PARTITIONS), "second", to=lambda w: w.parquet(target))

    bolt = acker.bolt("work", receives="first")(work)

    def counted(batch: DataFrame, number: int) -> None:
        with exchanges() as found:
            bolt(batch, number)
        batches.append(found)

    with Topology(bench.url, "t", ackers=1) as topology:
        for stream in ("first", "second"):
            topology.incoming(stream, subscription="work")
        for run in range(2):
            source = str(base / f"first{run}")
            send(source)
            with exchanges() as found, acker.job(bench.spark, "work") as collector:
                work(collector.receive(bench.spark.read.parquet(source), "first"), collector)
            jobs.append(found)
        for _ in range(2):
            send(str(base / "first"))
        files = bench.spark.readStream.schema("value string, _acker_stamp string")
        rows = files.option("maxFilesPerTrigger", 4).parquet(str(base / "first"))
        bench.finish(rows.writeStream.foreachBatch(counted))
    figures = list[Figure]()
    for name, found in (("job", jobs[1]), ("bolt's batch", batches[1])):
        count = len(found)
        print(f"exchanges of a {name}:", file=sys.stderr)
        for number, requests in enumerate(found):
            each = ", ".join(f"{count} {name}" for name, count in Counter(requests).items())
            print(f"    {number + 1}: {each}", file=sys.stderr)
        label = f"exchanges of a {name}: {SEGMENTS} segments, {PARTITIONS} partitions"
        figures.append(Figure(label, count, 8, count / 8, None, 1, ""))
    return figures


def measure(bench: Bench, lines: pa.Table, count: int, *, quiet: bool) -> list[dict[str, Any]]:
    """Measures all of it, and prints each figure unless it is to be quiet."""
    measured = list[Figure]()

    def add(figure: Figure) -> None:
        measured.append(figure)
        if not quiet:
            print(figure, flush=True)

    add(store(bench))
    for figure in flights(bench):
        add(figure)

    def against_spark(name: str, size: int, asked: float, place: Place = Files) -> None:
        one, other = partial(tracked, bench, lines, size, place), partial(plain, bench, lines, size, place)
        add(pairs(f"{name}, rows of {size} bytes, against plain Spark", asked, count, one, other))

    against_spark("parquet", 25, 1.6)
    against_spark("parquet", 500, 1.2)
    add(
        pairs(
            "words in parquet against words in the store",
            1.0,
            count,
            lambda: tracked(bench, lines, 0),
            lambda: bench.acker(lines, True, VARIANTS["words"]),
        )
    )
    connector = brokers.connector()
    if connector is None or brokers.jars() is None:
        print(NO_MAVEN.format("Kafka"), file=sys.stderr)
        return [asdict(figure) for figure in measured]
    for jar in connector:
        bench.spark.sql(f"ADD JAR '{jar}'")
    with brokers.broker(bench.directory / "broker") as broker:
        against_spark("Kafka", 100, 1.3, lambda _: Topic(broker))
    return [asdict(figure) for figure in measured]
