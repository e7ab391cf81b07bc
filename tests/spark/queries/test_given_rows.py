"""Rows of a job are steady where their source and their operators cannot give others the second time."""

from pathlib import Path

from pyspark.sql import SparkSession

from acker.spark.queries.given_rows import are_steady


def test_only_listed_files_that_are_read_in_whole_are_steady(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "rows")
    spark.range(4).write.parquet(where)
    files = spark.read.parquet(where)
    assert are_steady(files.filter("id > 1").withColumn("more", files["id"] + 1), None)
    assert not are_steady(files.dropDuplicates(["id"]), None)
    assert not are_steady(files.limit(2), None)
    assert not are_steady(spark.read.option("ignoreCorruptFiles", "true").parquet(where), None)
    table = spark.read.jdbc(f"jdbc:derby:{tmp_path}/derby;create=true", "sysibm.sysdummy1")
    assert not are_steady(table, None)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        assert not are_steady(files, None)
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
