"""Spark jobs have no more rights than they need: deploy/acker.acl."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acker.ledger.client import open_ledger
from acker.spark import Collector, bolt
from acker.store.client import Store
from acker.streams import StreamReader
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.rights import users


def test_a_spout_and_a_bolt_have_roles(spark: SparkSession, new_server: NewServer, tmp_path: Path) -> None:
    with users(new_server, "valkey", tmp_path) as rights:
        ledger = open_ledger(Store(rights.url("spout")), "t", ackers=2)
        spout = Pipeline(spark, ledger, rights.url("spout"), tmp_path)
        rows = spark.createDataFrame([(n, f"line {n}") for n in range(20)], "id int, line string")
        (
            rows.write.format("acker")
            .options(**spout.options("lines", message_id="id", outcomes="true"))
            .mode("append")
            .save()
        )
        job = Pipeline(
            spark, open_ledger(Store(rights.url("executor")), "t"), rights.url("executor"), tmp_path
        )

        @bolt(url=job.url, topology="t", name="split")
        def split(batch: DataFrame, collector: Collector) -> None:
            def upper(row: dict[str, Any]) -> dict[str, Any]:
                if row["line"].endswith("7"):
                    raise ValueError("seven")
                return {"line": row["line"].upper()}

            collector.fail(batch.filter("line LIKE '%3'"), "three")
            collector.emit(collector.map(batch, upper, "line string"), stream="words")

        job.run("split", "lines", split)
        StreamReader(job.ledger, "words").ack_all()
        counters = ledger.counters()
        assert (counters["tracked"], counters["acked"], counters["failed"]) == (20, 16, 4)
        assert rights.denied() == []
