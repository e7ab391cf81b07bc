"""Ready-made functions for spouts that keep ids: they find the rows of ids in real sources."""

import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import AckerError, ValidationError
from acker.spark import delta, files, iceberg, jdbc, kafka
from acker.spark.external.kafka import GAP, cut
from acker.spark.external.tables.jdbc import check_escapes
from acker.spark.source.rereading import SparkReread, by_key
from tests.helpers.servers.kafka import Broker

pytestmark = pytest.mark.slow


def test_rows_of_parquet_are_found_by_file_and_row(spark: SparkSession, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    spark.range(0, 30, 1, 3).selectExpr("id", "'line ' || id line").write.parquet(there)
    placed = spark.read.parquet(there).select("*", "_metadata.file_path", "_metadata.row_index")
    ids = spark.createDataFrame(
        placed.filter("id in (3, 4, 17)").select("id", "file_path", "row_index").collect()
    )
    reread = files.reread(there, schema="id bigint, line string", rows=lambda found: found.filter("id <> 4"))

    def found() -> dict[int, str]:
        rows = reread(ids).join(ids, ["id", "file_path", "row_index"])
        return {row.id: row.line for row in rows.collect()}

    assert {row.id for row in reread(ids).collect()} == {*range(10), *range(10, 20)} - {4}  # of two files
    assert found() == {3: "line 3", 17: "line 17"}
    gone = ids.filter("id = 17").first()
    assert gone is not None
    Path(gone.file_path.removeprefix("file:")).unlink()
    assert found() == {3: "line 3"}


@pytest.mark.parametrize("other", ["json", "csv", "text", "orc"])
def test_files_without_numbers_of_rows_are_refused_at_the_start(other: str) -> None:
    with pytest.raises(ValidationError, match=f"'parquet', got '{other}', .* Give `track` an id of your own"):
        files.reread("/in", format=other)


def test_rows_of_a_table_are_found_by_key(spark: SparkSession, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    columns = ("'k' || id name", "if(id % 2 = 0, null, id) odd", "date_add(date'2026-01-01', int(id)) day")
    spark.range(9).selectExpr("id", *columns).write.parquet(there)
    ids = spark.read.parquet(there).filter("id in (2, 5)")
    found: dict[Any, list[int]] = {}
    for key in ("id", "name", ("name", "id"), "odd", "day"):
        reread = by_key("t", lambda session: session.read.parquet(there), key)
        names = [key] if isinstance(key, str) else list(key)
        same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in names]
        joined = reread(ids).alias("a").join(ids.alias("b"), same, "left_semi")
        found[key] = sorted(row.id for row in joined.collect())
    both = [2, 5]
    assert found == {"id": both, "name": both, ("name", "id"): both, "odd": [0, 2, 4, 5, 6, 8], "day": both}


ORDERS = (
    "id bigint primary key, small smallint, name varchar(20), price decimal(10, 2), day date, odd integer, "
    "weight double"
)


@pytest.fixture(scope="module")
def database(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of Derby, which Spark brings, with 60 orders: in a jar, so that each process can open it."""
    root, jvm = tmp_path_factory.mktemp("derby"), spark._jvm
    assert jvm is not None
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(root / "derby.log"))
    day = "{d '2026-01-%02d'}"
    orders = ", ".join(
        f"({n}, {n % 7}, 'o''{n}', {n}.25, {day % (n % 28 + 1)}, {n if n % 2 else 'null'}, 0.5)"
        for n in range(60)
    )
    connection = jvm.java.sql.DriverManager.getConnection(f"jdbc:derby:{root}/db;create=true")
    statement = connection.createStatement()
    statement.execute(f"create table orders ({ORDERS})")
    statement.execute(f"insert into orders values {orders}")
    connection.close()
    with pytest.raises(Exception, match="shutdown"):
        jvm.java.sql.DriverManager.getConnection(f"jdbc:derby:{root}/db;shutdown=true")
    with zipfile.ZipFile(root / "orders.jar", "w") as jar:
        for path in sorted((root / "db").rglob("*")):
            jar.write(path, path.relative_to(root))
    return f"jdbc:derby:jar:({root}/orders.jar)db"


@pytest.mark.parametrize(
    ("key", "kept", "found"),
    [
        ("id", "int(id) id", [3, 4, 8, 31, 59]),
        ("name", "name", [3, 4, 8, 31, 59]),
        (["price"], "price", [3, 4, 8, 31, 59]),
        (["small", "ODD"], "small, odd", [3, 4, 8, 18, 22, 31, 32, 36, 46, 50, 59]),
        (("odd", "day", "name"), "odd, day, name", [3, 4, 8, 31, 59]),
    ],
)
def test_rows_of_a_database_are_found_by_key(
    spark: SparkSession, database: str, key: Any, kept: str, found: list[int]
) -> None:
    orders = spark.read.jdbc(database, "orders")
    ids = spark.createDataFrame(
        orders.filter("id in (3, 4, 8, 31, 59)").selectExpr(*kept.split(", ")).collect(),
        orders.selectExpr(*kept.split(", ")).schema,
    )
    rows = jdbc.reread(database, "orders", key, chunk=2, fetchsize=7)(ids)
    read = sorted(rows.collect())
    assert [row.ID for row in read] == found
    three = next(row for row in read if row.ID == 3)
    assert [three.NAME, three.PRICE, str(three.DAY)] == ["o'3", Decimal("3.25"), "2026-01-04"]
    plan = rows._jdf.queryExecution().executedPlan().toString()
    distinct = ids.distinct().count()
    assert (plan.count("Scan JDBCRelation"), plan.count("Filter ")) == (-(-distinct // 2), 0)


@pytest.mark.parametrize(
    ("key", "kept", "message"),
    [
        (
            "id",
            "string(id) id",
            "ids of the type that the table has for 'id', bigint, got string: keep the column",
        ),
        ("price", "cast(price as decimal(10,1)) price", r"for 'price', decimal\(10,2\), got decimal\(10,1\)"),
        ("weight", "weight", "text, integers, decimals or dates, got 'weight' of double"),
    ],
)
def test_keys_that_a_database_might_not_find_are_refused(
    spark: SparkSession, database: str, key: str, kept: str, message: str
) -> None:
    ids = spark.read.jdbc(database, "orders").selectExpr(kept)
    with pytest.raises(ValidationError, match=message):
        jdbc.reread(database, "orders", key)(ids)


def test_errors_of_a_database_do_not_tell_its_options(spark: SparkSession) -> None:
    reread = SparkReread(spark, jdbc.reread("jdbc:none:", "t", "id", driver="com.swordfish.Driver"))
    with pytest.raises(AckerError, match=r"ClassNotFoundException: \*\*\*") as error:
        reread(spark.range(1).toArrow())
    assert "swordfish" not in f"{error.value!r} {reread.function!r}"
    assert error.value.__suppress_context__


def test_records_of_kafka_are_found_by_offset(spark: SparkSession, topics: Broker) -> None:
    topic = topics.topic(2)
    rows = spark.range(40).selectExpr("string(id) key", "'line ' || id value", "int(id % 2) partition")
    to = {"kafka.bootstrap.servers": topics.servers, "topic": topic}
    rows.coalesce(1).write.format("kafka").options(**to).save()
    topics.delete_before(topic, 3)
    places = [(topic, 0, 1), (topic, 0, 5), (topic, 1, 7), (topic, 1, 9), (topic, 1, 900)]
    ids = spark.createDataFrame(places, "topic string, partition int, offset long")

    def tracked(records: DataFrame) -> DataFrame:
        return records.selectExpr("string(key) id", "string(value) line", "topic", "partition", "offset")

    found = kafka.reread(topics.servers, rows=tracked)(ids).collect()
    assert {(row.partition, row.offset) for row in found} >= {(0, 5), (1, 7), (1, 9)}
    assert all(row.line == f"line {2 * row.offset + row.partition}" == f"line {row.id}" for row in found)
    assert {(row.topic, row.partition) for row in found} == {(topic, 0), (topic, 1)}
    assert min(row.offset for row in found) == 3


def test_reads_are_cut_at_gaps() -> None:
    assert cut([]) == []
    near = [("a", 0, 5), ("a", 0, 5 + GAP), ("a", 1, 3), ("b", 0, 7), ("a", 0, 5)]
    assert cut(near) == [{("a", 1): (3, 3), ("b", 0): (7, 7)}, {("a", 0): (5, 5 + GAP)}]
    old_and_new = [("a", 0, 7), ("a", 0, 10_000_000), ("a", 1, 3)]
    assert cut(old_and_new) == [{("a", 0): (7, 7), ("a", 1): (3, 3)}, {("a", 0): (10_000_000, 10_000_000)}]
    many = [("a", 0, n * (GAP + 1)) for n in range(100)]
    assert cut(many) == [{("a", 0): (offset, offset)} for _, _, offset in many]


def test_no_records_are_read_for_ids_that_lie_far_apart(spark: SparkSession, topics: Broker) -> None:
    topic = topics.topic()
    topics.produce(topic, [b"%d" % n for n in range(8 * GAP)])
    reread = kafka.reread(topics.servers, topic)

    def read(*offsets: int) -> list[tuple[int, int]]:
        ids = spark.createDataFrame([(0, offset) for offset in offsets], "partition int, offset long")
        rows = reread(ids).collect()
        assert [row.timestamp for row in rows if row.timestamp.year < 2000] == []
        return sorted((row.offset, int(row.value)) for row in rows)

    assert read(3, 8 * GAP - 1) == [(3, 3), (8 * GAP - 1, 8 * GAP - 1)]
    assert len(read(5, 2 * GAP, 3 * GAP)) == GAP + 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acker.spark.external.kafka.MOST_READS", 2)
        far = [n * (GAP + 1) for n in range(7)]
        assert read(*far, 1) == sorted((offset, offset) for offset in [*far, 1])


def test_of_each_id_that_lies_alone_few_bytes_are_fetched(spark: SparkSession, topics: Broker) -> None:
    """The broker counts what it has sent of the topic: a batch of its producer, and seldom two."""
    topic, count = topics.topic(), 20_000
    rows = spark.range(0, count, 1, 1).selectExpr("cast(repeat(sha2(string(id), 512), 4) as binary) value")
    to = {"kafka.bootstrap.servers": topics.servers, "topic": topic, "kafka.batch.size": "16384"}
    rows.write.format("kafka").options(**to).save()
    far = range(7, count, 2 * GAP)
    ids = spark.createDataFrame([(0, offset) for offset in far], "partition int, offset long")
    before = topics.sent(spark, topic)
    assert len(kafka.reread(topics.servers, topic)(ids).collect()) == len(far) == 10
    assert (topics.sent(spark, topic) - before) / len(far) < 1.5 * 16_384


@pytest.mark.parametrize("url", ["jdbc:mysql://host/db", "jdbc:none:"])
def test_a_backslash_is_kept_from_databases_that_may_read_it_as_an_escape(url: str) -> None:
    keys = [(1, "plain's"), (2, "x\\' OR 1=1 -- ")]
    check_escapes(url, ["number", "id"], keys[:1])
    check_escapes("jdbc:postgresql://host/db", ["number", "id"], keys)
    with pytest.raises(ValidationError, match=r"key: expected no backslash in 'id', .* got \"x"):
        check_escapes(url, ["number", "id"], keys)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (files, {"path": ""}, "files.reread: path: expected a text, got ''"),
        (files, {"path": "/in", "rows": 3}, "files.reread: rows: expected a function of a DataFrame, got 3"),
        (kafka, {"servers": None}, "kafka.reread: servers: expected a text, got None"),
        (kafka, {"servers": "a", "topic": ""}, "kafka.reread: topic: expected a text, got ''"),
        (delta, {"table": "t", "key": ""}, "delta.reread: key: expected names of columns, got ''"),
        (delta, {"table": "t", "key": "id", "version": -1}, "delta.reread: version: .* 0 or more, got -1"),
        (
            jdbc,
            {"url": "postgres://me:secret@host", "table": "t", "key": "id"},
            "begins with 'jdbc:', got another",
        ),
        (jdbc, {"url": "jdbc:a", "table": "", "key": "id"}, "jdbc.reread: table: expected a text, got ''"),
        (
            jdbc,
            {"url": "jdbc:a", "table": "t", "key": ["id", 3]},
            "key: expected names of columns, got .'id', 3.",
        ),
        (
            jdbc,
            {"url": "jdbc:a", "table": "t", "key": "id", "chunk": 1_001},
            "chunk: .* 1 to 1,000, got 1001",
        ),
        (jdbc, {"url": "jdbc:a", "table": "t", "key": "id", "chunk": True}, "chunk: .* 1 to 1,000, got True"),
        (jdbc, {"url": "jdbc:a", "table": "t", "key": "id", "Query": "q"}, "Query: expected no such option"),
        (
            jdbc,
            {"url": "jdbc:a", "table": "t", "key": "id", "pushDownPredicate": False},
            "pushDownPredicate: ",
        ),
        (iceberg, {"table": "t", "key": []}, r"iceberg.reread: key: expected names of columns, got \[\]"),
        (iceberg, {"table": "t", "key": "id", "snapshot": "s"}, "iceberg.reread: snapshot: .* id, got 's'"),
    ],
)
def test_arguments_are_checked_at_the_start(make: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make.reread(**given)
