"""The write of a Spark spout that keeps ids, against one that keeps rows.

    uv run python -m benchmarks.spark --variants kept [--lines 1000000] [--pairs 5]

A job tracks the lines of parquet files and emits them into a stream. The lines have ten words and a text of
1,000 letters, which differs for each. After each job the outcomes of all its trees are open: nobody reads.
"""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import redis
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import Topology
from acker.spark import Acker, files
from benchmarks.external_jobs import pairs
from benchmarks.spark import Bench, Taken, timed

Keep: TypeAlias = Literal["rows", "ids"]


def spout(bench: Bench, source: Path, rows: int, keep: Keep) -> Taken:
    """The job, with the store emptied before."""
    redis.Redis.from_url(bench.url).flushall()
    acker = Acker(bench.url, "kept")
    ids, place = keep == "ids", ["file_path", "row_index"]
    reread = files.reread(str(source)) if ids else None
    named = [F.col(f"_metadata.{name}") for name in place]
    lines = bench.spark.read.parquet(str(source)).select("*", *named)

    def run() -> None:
        with acker.job(bench.spark, "read") as collector:
            tracked = acker.track(
                lines, "lines", message_id="number", keep=keep, reread=reread, place=place if ids else ()
            )
            collector.emit(tracked, "lines")

    settings = {"ackers": 4, "message_timeout": 3600.0, "high_water_mark": 100_000_000}
    with Topology(bench.url, "kept", **settings) as topology:  # type: ignore[arg-type]
        taken = timed([run], 0.0)
        counters = topology.counters()
    if counters["tracked"] != rows:
        raise SystemExit(f"{counters['tracked']} of {rows} trees were tracked: {counters}")
    return taken


def measure(bench: Bench, lines: pa.Table, count: int, *, quiet: bool) -> list[dict[str, Any]]:
    """Measures it, and prints the figure unless it is to be quiet."""
    source = bench.new_directory() / "lines"
    text = F.substring(F.repeat(F.sha2("line", 512), 8), 1, 1000).alias("text")
    table = bench.spark.createDataFrame(lines).select("*", text)
    table.repartition(max(2, lines.num_rows // 100_000)).write.parquet(str(source))
    figure = pairs(
        "a spout that keeps ids against one that keeps rows",
        1.0,
        count,
        lambda: spout(bench, source, lines.num_rows, "ids"),
        lambda: spout(bench, source, lines.num_rows, "rows"),
    )
    shutil.rmtree(source)
    if not quiet:
        print(figure, flush=True)
    return [asdict(figure)]
