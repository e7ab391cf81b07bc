"""The newest rows of a batch, and a sink that keeps the newest of all batches."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import ValidationError
from acker.spark import job
from acker.spark.records.newest import newest_rows
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow

UPSERT = """
    insert into gold values (?, ?, ?) on conflict (id) do update
    set version = excluded.version, word = excluded.word where excluded.version > gold.version
"""


SCHEMA = "name string, id string, version int, word string"


ALL = "select * from gold order by id"


def run_sql(at: str, statement: str, rows: list[tuple[Any, ...]] | None = None) -> list[tuple[Any, ...]]:
    """Runs a statement, once or for each row; returns what it selects."""
    with closing(sqlite3.connect(at)) as database, database:
        if rows is None:
            return database.execute(statement).fetchall()
        database.executemany(statement, rows)
        return []


@pytest.mark.parametrize("keep", ["rows", "ids"])
def test_a_replay_that_comes_behind_a_newer_row_changes_no_table(pipeline: Pipeline, keep: str) -> None:
    spark, at = pipeline.spark, str(pipeline.directory / "gold.db")
    written = [
        ("a1", "a", 1, "flaky"), ("a3", "a", 3, "third"), ("b0", "b", 0, "late"), ("a2", "a", 2, "second"),
        ("b1", "b", 1, "first"),
    ]  # fmt: skip
    source = spark.createDataFrame(written, SCHEMA).coalesce(1)
    kept: dict[str, Any] = {"keep": "ids", "reread": lambda ids: source} if keep == "ids" else {}
    run_sql(at, "create table gold (id text primary key, version int, word text)")

    def merge(rows: DataFrame, run: str, *, killed: bool = False) -> list[tuple[Any, ...]]:
        """A job that merges rows and the replays of earlier ones; the newest ones among them."""
        with job(spark, url=pipeline.url, topology="t", name="merge", run=run) as collector:
            how = {"message_id": "name", "attempts": 2, "attempt": "attempt", "version": "version", **kept}
            batch = pipeline.tracked(rows, **how)
            flaky = "word = 'flaky' and attempt = 1"
            collector.fail(batch.filter(flaky), "not now")
            newest = collector.newest(batch.filter(f"not ({flaky})").drop("attempt"), "id")
            merged = sorted(map(tuple, newest.select("id", "version", "word").collect()))
            run_sql(at, UPSERT, merged)
            if killed:
                raise RuntimeError("killed before the commit")
        return merged

    with pytest.raises(RuntimeError, match="killed before the commit"):
        merge(source, "monday", killed=True)
    assert pipeline.counters() == {}, "rows that were left out wait for the commit"
    whole = [("a", 3, "third"), ("b", 1, "first")]
    assert merge(source, "monday") == run_sql(at, ALL) == whole
    assert pipeline.counters() == {"tracked": 5, "acked": 4, "failed": 1}
    replayed = 0
    while not replayed:  # the thread of the spout asks the source meanwhile
        replayed = settler.settle(pipeline.ledger).replayed
    assert merge(source.limit(0), "tuesday") == [("a", 1, "flaky")]
    assert run_sql(at, ALL) == whole
    assert pipeline.counters() == {"tracked": 6, "acked": 5, "failed": 1}
    assert settler.settle(pipeline.ledger) == Stepped(acked=1)


def test_the_newest_rows_are_the_same_ones_in_each_run_and_what_has_no_order_fails(
    pipeline: Pipeline,
) -> None:
    rows = [
        ("a", -0.0, 1.0, "older"), ("a", 0.0, 2.0, "newer"),
        ("n", float("nan"), 5.0, "older"), ("n", float("nan"), 6.0, "newer"),
        ("tie", 1.0, 7.0, "one"), ("tie", 1.0, 7.0, "two"), ("tie", 1.0, -0.0, "older"),
        (None, 1.0, 1.0, "no key"), (None, 1.0, 1.0, "no key"), ("x", None, 1.0, "no key"),
        ("y", 1.0, None, "no version"), ("y", 1.0, float("nan"), "no version"), ("y", 1.0, 1.0, "newer"),
    ]  # fmt: skip
    ties = set()
    for run in range(2):
        with job(pipeline.spark, url=pipeline.url, topology="t", name=f"job{run}") as collector:
            ordered = rows if run else rows[::-1]
            frame = pipeline.spark.createDataFrame(ordered, "`k.1` string, k2 double, v float, word string")
            tracked = pipeline.tracked(frame.repartition(3), message_id="word", spout=f"s{run}")
            newest = collector.newest(tracked, [F.col("`k.1`"), "k2"], "v")
            assert newest.columns == tracked.columns
            found = {row["k.1"]: row.word for row in newest.collect()}
            ties.add(found.pop("tie"))
            assert found == dict.fromkeys(["a", "n", "y"], "newer")
    assert len(ties) == 1
    assert ties < {"one", "two"}
    assert pipeline.counters() == {"tracked": 26, "acked": 16, "failed": 10}


def test_keys_and_versions_are_checked_before_anything_is_evaluated(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("id", "map(id, id) pairs", "id _acker", "raise_error('evaluated') word")
    for key, version, message in (
        ("id", "pairs", "newest: version: expected .* got one of map<bigint,bigint>"),
        ("id", "nope", "newest: .*`nope`"),
        ("nope", "id", "newest: .*`nope`"),
        ([], "id", "newest: expected a key, got none"),
        (
            "id",
            None,
            r"newest: version: expected a column .* rows of `track\(..., version=...\)` .* got none",
        ),
    ):
        with pytest.raises(ValidationError, match=message):
            newest_rows(frame, key, version)
