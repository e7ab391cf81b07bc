"""Values of functions per record: as Spark's own UDFs have them, where nothing is lost, in any time zone."""

import datetime as dt
import decimal
import os
import secrets
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import DataType, LongType, StructField, StructType, TimestampType

from acker.spark.records.calls import Calls
from acker.spark.records.mapping import RecordMapper
from acker.spark.records.values import Columns, to_python
from acker.spark.runtime.versions import arrow_schema
from acker.streams import StreamWriter
from acker.streams.types.fitting import fitted
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.sparks import own_conversion
from tests.helpers.values import HELD, UTC, nested

pytestmark = pytest.mark.slow

ZONES = ["UTC", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]
NOON = dt.datetime(2026, 7, 1, 12, 0, 0, 123456)
TWICE = dt.datetime(2026, 11, 1, 1, 30)  # in New York
VALUES: list[Any] = [
    None, True, 1, -1, 2**40, 1.5, float("nan"), "x", "1", b"ab", bytearray(b"cd"), array("i", [5]),
    decimal.Decimal("1.25"), decimal.Decimal("NaN"), decimal.Decimal(10) ** 20, dt.date(2026, 7, 1), NOON,
    TWICE, TWICE.replace(fold=1), NOON.replace(tzinfo=dt.UTC), dt.datetime(1869, 5, 4, 3, 2, 1),
    NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=5.5))), dt.time(1, 2, 3), dt.timedelta(1, 2, 3),
    [1, 2], ["a", None], [None], (1, "a"), (1, None), {"a": 1}, {1: "x"}, {"a": None}, {None: 1},
    Row(a=1, b="x"), Row(b="x", a=1), {"a": 1, "b": "y", "c": 2}, [NOON], [(1, NOON)], {"a": NOON}, [b"x"],
]  # fmt: skip
KINDS = [
    "boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "decimal(10,1)",
    "decimal(38,18)", "date", "timestamp", "timestamp_ntz", "interval day to second", "void", "array<int>",
    "array<string>", "array<binary>", "array<timestamp>", "map<string,int>", "map<int,string>",
    "map<string,timestamp>", "struct<a:int,b:string>", "struct<a:int not null,b:string not null>",
    "array<struct<a:int,b:timestamp>>",
]  # fmt: skip
GIVEN = [
    "true", "1Y", "cast(1.5 as float)", "'x'", "x'00ff'", "cast(1.5 as decimal(10,3))", "date'2026-07-01'",
    "timestamp'2026-07-01 12:00:00.000001'", "timestamp'1869-05-04 03:02:01'", "interval '1 2' day to hour",
    "timestamp_ntz'2026-07-01 12:00:00'", "null", "array(x'00', null)", "map('a', timestamp'2026-07-01')",
    "array(named_struct('a', map(1, x'00'), 'b', timestamp'2026-07-01'))", "parse_json('[1]')",
    "named_struct('a', array(1), 'b', null, 'c', timestamp_ntz'2026-07-01')", "map(1, null)",
]  # fmt: skip


@pytest.fixture
def process_zone() -> Iterator[Any]:
    """Sets the time zone of this process, until the test is over."""
    before = os.environ.get("TZ")

    def choose(zone: str) -> None:
        os.environ["TZ"] = zone
        time.tzset()

    yield choose
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def stored(values: list[Any], kind: DataType) -> list[str]:
    """The values of a column as they are stored; "refused" for one that does not fit."""
    schema = StructType([StructField("v", kind)])
    [[column], unfit] = Columns(schema, list(arrow_schema(schema))).of([(value,) for value in values])
    return ["refused" if place in unfit else str(one) for place, one in enumerate(column)]


def stored_by_spark(values: list[Any], kind: DataType) -> list[str]:
    """The same of Spark's UDF, by what its worker does (pyspark/worker.py)."""
    conversion = pytest.importorskip("pyspark.sql.conversion").LocalDataToArrowConversion
    convert, [field] = conversion._create_converter(kind), arrow_schema(StructType([StructField("v", kind)]))

    def one(value: Any) -> str:
        try:
            made = [convert(value)]
            try:
                return str(pa.array(made, field.type)[0])
            except pa.ArrowInvalid:
                return str(pa.array(made).cast(field.type)[0])
        except Exception:  # noqa: BLE001 - as above
            return "refused"

    return [one(value) for value in values]


@own_conversion
@pytest.mark.parametrize("zone", ZONES)
def test_each_value_is_stored_as_a_udf_stores_it(spark: SparkSession, zone: str, process_zone: Any) -> None:
    process_zone(zone)
    for name in KINDS:
        kind = DataType.fromDDL(name)
        [found, wanted] = stored(VALUES, kind), stored_by_spark(VALUES, kind)
        differences = [row for row in zip(VALUES, found, wanted, strict=True) if row[1] != row[2]]
        assert all("refused" in row for row in differences), (name, zone, differences)


@pytest.mark.parametrize("zone", ZONES)
def test_a_function_is_given_what_a_udf_is_given(spark: SparkSession, zone: str, process_zone: Any) -> None:
    conversion = pytest.importorskip("pyspark.sql.conversion").ArrowTableToRowsConversion
    process_zone(zone)
    utc = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
    for name, value in [
        ("timestamp", utc), ("array<timestamp>", [utc, None]), ("map<timestamp,timestamp>", [(utc, utc)]),
        ("struct<a:int,b:timestamp>", {"a": 1, "b": utc}), ("timestamp", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    ]:  # fmt: skip
        kind = DataType.fromDDL(name)
        [field] = arrow_schema(StructType([StructField("v", kind)]))
        given = pa.array([value], field.type).to_pylist()[0]
        own = to_python(kind)
        assert own is not None
        try:
            wanted = conversion._create_converter(kind)(given)
        except OverflowError:  # the first hours of year 1, west of Greenwich
            with pytest.raises(OverflowError):
                own(given)
        else:
            assert repr(own(given)) == repr(wanted)


def mapped(rows: DataFrame, function: Any, schema: StructType) -> DataFrame:
    anchored = rows.withColumn("_acker", F.lit(1).cast("bigint"))
    mapper = RecordMapper(Calls.make(function, None, None), schema, anchored.schema)
    return anchored.mapInArrow(mapper, mapper.whole)


@own_conversion
def test_map_is_as_a_udf_in_any_session_zone(spark: SparkSession) -> None:
    fit = {}
    for name in KINDS:
        kind = DataType.fromDDL(name)
        same = set(enumerate(stored(VALUES, kind))) & set(enumerate(stored_by_spark(VALUES, kind)))
        fit[name] = [VALUES[place] for place, text in sorted(same) if text != "refused"]
    most = max(map(len, fit.values()))
    schema = StructType([StructField(f"c{n}", DataType.fromDDL(name)) for n, name in enumerate(KINDS)])

    def at(name: str, place: int) -> Any:
        return fit[name][place] if place < len(fit[name]) else None

    def each(record: dict[str, Any]) -> dict[str, Any]:
        return {f"c{n}": at(name, record["id"]) for n, name in enumerate(KINDS)}

    def reported(record: dict[str, Any]) -> tuple[str, ...]:
        return tuple(map(repr, record.values()))

    shown_as = [F.to_json(F.struct(F.col(f"c{n}").alias("v"))).alias(f"c{n}") for n in range(len(KINDS))]
    numbers = spark.range(most).coalesce(1)
    udfs = [
        F.udf(lambda place, name=name: at(name, place), kind.dataType, useArrow=True)("id").alias(kind.name)
        for name, kind in zip(KINDS, schema.fields, strict=True)
    ]
    given = spark.range(1).select(*(F.expr(text).alias(f"g{n}") for n, text in enumerate(GIVEN)))
    shown = StructType([StructField(f"t{n}", DataType.fromDDL("string")) for n in range(len(GIVEN))])
    show = [F.udf(repr, "string", useArrow=True)(f"g{n}").alias(f"t{n}") for n in range(len(GIVEN))]
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch") as choose:
        choose("1")  # what a UDF makes of a value may depend on the others of its Arrow batch
        with setting(spark, "spark.sql.session.timeZone") as choose:
            for zone in ZONES:
                choose(zone)
                found = mapped(numbers, each, schema)
                assert found.filter("_acker_failed is not null").count() == 0
                assert found.select(*shown_as).collect() == numbers.select(*udfs).select(*shown_as).collect()
                rows = mapped(given, reported, shown).select(*shown.names).collect()
                assert rows == given.select(*show).collect()


@contextmanager
def setting(spark: SparkSession, name: str) -> Iterator[Callable[[str], None]]:
    """Sets a setting, until the block ends."""
    before = spark.conf.get(name)
    assert before is not None
    try:
        yield lambda value: spark.conf.set(name, value)
    finally:
        spark.conf.set(name, before)


def test_an_instant_comes_back_as_it_was_also_in_an_hour_that_comes_twice(process_zone: Any) -> None:
    process_zone("America/New_York")
    kind = TimestampType()
    given = to_python(kind)
    assert given is not None
    schema = StructType([StructField("v", kind)])
    first = dt.datetime(2026, 11, 1, 4, tzinfo=dt.UTC)
    instants = [first + dt.timedelta(minutes=30 * n, microseconds=n) for n in range(8)]
    [[column], unfit] = Columns(schema, list(arrow_schema(schema))).of([(given(one),) for one in instants])
    assert unfit == {}
    assert column.to_pylist() == instants


def test_a_result_that_its_column_cannot_hold_fails_alone(spark: SparkSession, process_zone: Any) -> None:
    process_zone("America/New_York")
    skipped = dt.datetime(2026, 3, 8, 2, 30)
    results: list[tuple[str, Any, str]] = [
        ("int", True, "expected int, got True (bool)"),
        ("string", 1, "expected string, got 1 (int)"),
        ("float", 1e300, "expected float, got 1e+300 (float), which it cannot hold exactly: numpy.float32"),
        ("decimal(10,1)", decimal.Decimal("1.25"), "got Decimal('1.25') (Decimal), which it cannot hold"),
        ("timestamp", 1_780_000_000, "expected timestamp, got 1780000000 (int)"),
        ("timestamp", NOON.date(), "expected timestamp, got datetime.date(2026, 7, 1) (date)"),
        ("timestamp", skipped, "which it cannot hold exactly: there is no such time in the worker's zone"),
        ("timestamp_ntz", NOON.replace(tzinfo=dt.UTC), "(datetime with time zone)"),
        ("date", NOON, "(datetime without time zone)"),
        ("interval day to second", 90, "got 90 (int)"),
        ("struct<a:int>", {"a": 1, "b": 2}, "got {'a': 1, 'b': 2} (dict), which it cannot hold exactly"),
        ("array<int>", [1, 1.5], "expected int32 in element, got 1.5 (float), which"),
        ("variant", {"value": b"", "metadata": b""}, "expected variant, got"),
    ]
    for name, value, said in results:
        schema = StructType([StructField("v", DataType.fromDDL(name))])
        columns = Columns(schema, list(arrow_schema(schema)))
        [[column], unfit] = columns.of([(None,), (value,), (None,)])
        assert len(column) == 3
        assert {place: said in str(error) for place, error in unfit.items()} == {1: True}, unfit


def test_a_result_without_a_value_for_a_column_that_must_have_one_fails_alone() -> None:
    schema = StructType([StructField("n", LongType(), nullable=False)])
    rows = StructType([StructField("n", LongType()), StructField("_acker", LongType())])
    mapper = RecordMapper(Calls.make(lambda record: (record["n"],), None, None), schema, rows)
    batch = pa.RecordBatch.from_pydict({"n": [1, None, 3], "_acker": [1, 2, 3]})
    [made] = mapper(iter([batch]))
    assert [(row["n"], row["_acker_failed"]) for row in made.to_pylist()] == [
        (1, None), (3, None), (None, "ValidationError: column 'n': expected bigint, got None"),
    ]  # fmt: skip


NESTED = [
    pa.list_(pa.field("element", UTC)),
    pa.map_(pa.string(), pa.list_(pa.field("element", pa.decimal128(5, 2)))),
    pa.struct([("a", pa.float32()), ("b", pa.struct([("c", pa.timestamp("us")), ("d", pa.binary())]))]),
]
TYPES = dict(enumerate([*HELD, *NESTED]))


@settings(max_examples=5)
@given(
    st.fixed_dictionaries({n: st.lists(nested(kind), min_size=10, max_size=10) for n, kind in TYPES.items()})
)
def test_spark_reads_values_of_plain_python(pipeline: Pipeline, values: dict[int, list[Any]]) -> None:
    columns: dict[str, pa.Array] = {}
    for place, kind in TYPES.items():
        columns[f"c{place}"], unfit = fitted(values[place], kind, f"c{place}")
        assert unfit == {}
    stream = f"s{secrets.token_hex(4)}"
    StreamWriter(pipeline.ledger, stream).write(pa.table(columns))
    reader = pipeline.spark.read.format("acker").options(**pipeline.options(stream))
    read = reader.load().select(*columns).toArrow()
    for name, column in columns.items():
        assert shown(read.column(name).to_pylist()) == shown(column.to_pylist()), name


def shown(values: list[Any]) -> list[str]:
    """Values as text, in which all NaN are equal, and times in other zones."""
    return [
        repr(one.astimezone(dt.UTC) if isinstance(one, dt.datetime) and one.tzinfo else one) for one in values
    ]
