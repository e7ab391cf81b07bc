"""Rows of a job are steady where their source and their operators cannot give others the second time."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from acker.spark.queries.given_rows import are_steady, column_of_files
from acker.spark.queries.microbatches import MicroBatch


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


def test_a_column_of_a_batch_of_files_is_read_without_the_others_where_only_columns_were_chosen(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = dict[str, DataFrame | None]()

    def look(batch: DataFrame, number: int) -> None:
        query = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        for name, rows in {
            "itself": batch,
            "chosen": batch.selectExpr("_acker_stamp stamp", "value", "value _acker_stamp").drop("stamp"),
            "made": batch.selectExpr("upper(_acker_stamp) _acker_stamp"),
            "twice": batch.union(batch),
            "some": batch.limit(1),
            "of others": batch.sparkSession.range(1).selectExpr("'x' _acker_stamp"),
        }.items():
            column = column_of_files(rows, MicroBatch(query, number, ""), "_acker_stamp")
            found[f"{kind} {name}"] = column
            if column is not None:
                assert sorted(column.collect()) == sorted(rows.select("_acker_stamp").collect())

    for kind in ("parquet", "orc", "csv"):
        where = str(tmp_path / kind)
        spark.range(20).selectExpr("string(id) value", "concat('s', id) stamp").write.format(kind).save(where)
        files = spark.readStream.schema("value string, stamp string").format(kind).load(where)
        query = files.withColumnRenamed("stamp", "_acker_stamp").writeStream.trigger(availableNow=True)
        query.option("checkpointLocation", f"{where}-read").foreachBatch(look).start().awaitTermination()
    assert [name for name, column in found.items() if column is not None] == [
        "parquet itself", "parquet chosen", "orc itself", "orc chosen"
    ]  # fmt: skip
    for kind in ("parquet", "orc"):
        column = found[f"{kind} itself"]
        assert column is not None
        plan = column._jdf.queryExecution().executedPlan().toString()
        assert "ReadSchema: struct<stamp:string>" in plan
