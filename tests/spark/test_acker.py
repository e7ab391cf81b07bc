"""The object that names the store and the topology once (acker/spark/acker.py)."""

import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

import acker.spark
from acker import TopologyConfigError, UnknownTopology, ValidationError
from acker.errors import UnknownStream
from acker.spark import Acker, Collector
from acker.spark.options import keywords
from acker.spark.options.options import BATCH_WRITE, OPTIONS, READ, STEP, TRACK, WRITE
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow

NAMED = {"url", "topology", "stream", "run", "dead_letters"}
"""Options that calls have as arguments of their own, or stand for."""


def test_a_pipeline_names_its_topology_once(spark: SparkSession, valkey_url: str, tmp_path: Path) -> None:
    acker = Acker(valkey_url, "shop", ackers=2, message_timeout=600)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.json").write_text('{"id": 1, "price": "2"}\n{"id": 2, "price": "free"}\n')
    files = spark.readStream.schema("id long, price string").json(str(tmp_path / "in"))

    @acker.bolt("parse", segment_rows=10)
    def parse(batch: DataFrame, collector: Collector) -> None:
        collector.emit_map(batch, _price, "price double", stream="prices")

    @acker.bolt("double")
    def double(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.select((F.col("price") * 2).alias("price"), "_acker"), stream="doubled")

    def finish(name: str, writer: Any) -> None:
        Pipeline.finish(writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True))

    orders = acker.track(files, "orders", message_id="id", attempts=1, outcomes=True)
    finish("parse", orders.writeStream.foreachBatch(parse))
    finish("double", acker.read_stream(spark, "prices").writeStream.foreachBatch(double))
    copied = acker.read_stream(spark, "doubled", schema="price double, _acker bigint")
    finish("copy", acker.write_stream(copied, "copied", compression="zstd"))
    assert [row.price for row in acker.read(spark, "copied").collect()] == [4.0]
    with acker.job(spark, "total", run="monday", subscription="default") as collector:
        assert [row.price for row in collector.take("copied").collect()] == [4.0]
    assert acker.settle() == Stepped(acked=1, dead=1)
    assert sorted(row.status for row in acker.outcomes(spark, "orders", streaming=False).collect()) == [
        "acked",
        "failed",
    ]
    [letter] = acker.dead_letters(spark, "orders").collect()
    assert "could not convert" in letter.reason
    assert acker.replay(letter.id)
    with acker.open() as topology:
        assert topology.config.message_timeout == 600.0
        assert topology.counters()["tracked"] == 3
        known = {(step.kind, step.name): step for step in topology.steps()}
        done = {one.step: (one.tuples, one.failed) for one in topology.step_totals()}
    assert set(known) == {
        ("spout", "orders"),
        ("bolt", "parse"),
        ("bolt", "double"),
        ("writer", "copied"),
        ("job", "total"),
    }
    assert done == {"parse": (2, 1), "double": (1, 0), "copied": (1, 0), "total": (1, 0)}
    assert {step.application for step in known.values()} == {"acker tests"}
    assert all(step.application_id for step in known.values())
    [source] = known["spout", "orders"].reads
    assert source.startswith("FileSource[")
    assert source.endswith("/in]")
    assert known["spout", "orders"].query_id == known["bolt", "parse"].query_id
    rows = spark.createDataFrame([(7,)], "n long")
    for _ in range(2):
        acker.write(rows, "numbers", run="once")
    assert acker.read(spark, "numbers").count() == 1


def _price(record: dict[str, Any]) -> float:
    return float(record["price"])


def test_what_is_wrong_is_reported_by_acker_itself(spark: SparkSession, valkey_url: str) -> None:
    with pytest.raises(ValidationError, match="topology: expected 1 to 64"):
        Acker(valkey_url, "two words")
    with pytest.raises(ValidationError, match="url: expected redis"):
        Acker("http://localhost", "shop")
    with pytest.raises(ValidationError, match="option ackers: expected a whole number"):
        Acker(valkey_url, "shop", ackers=-1)
    assert (
        repr(Acker("redis://user:secret@localhost:1/0", "shop")) == "Acker('redis://localhost:1/0', 'shop')"
    )
    acker = Acker(valkey_url, "unopened")
    for schema in (None, "n long"):
        with pytest.raises(UnknownTopology):
            acker.read_stream(spark, "orders", schema=schema)
    acker.open().close()
    with pytest.raises(UnknownStream):
        acker.read_stream(spark, "orders")
    with pytest.raises(TopologyConfigError):
        Acker(valkey_url, "unopened", ackers=7).watermark("orders")


def test_each_option_is_a_keyword_where_it_is_of_use() -> None:
    of = {
        READ: keywords.ReadOptions,
        WRITE: keywords.WriteOptions,
        TRACK: keywords.TrackOptions,
        STEP: keywords.BoltOptions,
    }
    stores = set(get_type_hints(keywords.StoreOptions))
    known = {use: set(get_type_hints(kind)) for use, kind in of.items()}
    bolts = set(get_type_hints(keywords.BoltOptions)) | set(get_type_hints(keywords.JobOptions))
    assert stores.union(bolts, *known.values()) - {"receives"} == set(OPTIONS) - NAMED
    for name, uses in ((name, one.uses) for name, one in OPTIONS.items() if one.uses):
        assert STEP in uses or name not in bolts
        for use in of.keys() - uses:
            assert name in NAMED or name not in known[use] or (use, name) == (TRACK, "message_id")
    assert BATCH_WRITE not in of


WRONG = """
from pyspark.sql import DataFrame, SparkSession
from acker.spark import Acker, Collector

acker = Acker("redis://localhost", "shop", acker=2)
acker.bolt("split", max_rows=3)
acker.bolt("split", compression="gzip")


def jobs(spark: SparkSession, rows: DataFrame) -> None:
    acker.track(rows, "orders", message_id="id", attempt=3)
    acker.read_stream(spark, "lines", subscribtion="audit")
    with acker.job(spark, "nightly") as collector:
        fine: Collector = collector
        bad: int = collector


@acker.bolt("fine", stateless=True)
def fine(batch: DataFrame, collector: Collector) -> None: ...
"""


@pytest.mark.slow
def test_a_type_checker_refuses_other_options(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    root = Path(acker.spark.__file__).parent.parent.parent
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", root / "pyproject.toml", program],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error:" in line]
    assert lines == [5, 6, 7, 11, 12, 15], run.stdout + run.stderr


def test_the_module_shows_its_public_names_before_and_after_their_use() -> None:
    program = """
import acker.spark
before = dir(acker.spark)
assert before == sorted(acker.spark.__all__), before
for name in before:
    getattr(acker.spark, name)
assert dir(acker.spark) == before
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_session_hears_of_the_source_once(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    # Spark warns through its log, which goes to stderr.
    spark.sparkContext.setLogLevel("WARN")
    try:
        acker.spark.register(spark)
        acker.spark.register(spark)
    finally:
        spark.sparkContext.setLogLevel("OFF")
    assert "replaced" not in capfd.readouterr().err
