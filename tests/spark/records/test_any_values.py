"""Whatever a column of Spark's may hold goes through streams and spouts, and a poison record fails alone."""

from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import ValidationError
from acker.spark import Collector, bolt, dead_letters, track
from acker.spark.records.once import digest
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.faults.attempts import Attempts, at_once
from tests.helpers.servers.sparks import geometry

pytestmark = pytest.mark.slow

VALUES = {
    "a.b`c": "17",
    "any": 'parse_json(\'{"a": [1, "x"]}\')',
    "anys": "array(parse_json('1'), null)",
    "map of any": "map('x', named_struct('v', parse_json('true')))",
    "old": "timestamp'1869-05-04 03:02:01.000001'",
    "older": "timestamp_ntz'0001-01-01 00:00:00'",
    "late": "date'+12345-06-07'",
    "first": "date'-0044-03-15'",
    "wide": "cast('-12345678901234567890.123456789012345678' as decimal(38, 18))",
    "nothing": "null",
    "span": "interval '-1 2:03:04.000005' day to second",
    "latin": "cast(x'636166e9' as string)",
    "empty": "cast(array() as array<struct<a: int, b: map<string, binary>>>)",
}


def options(pipeline: Pipeline, **more: Any) -> dict[str, Any]:
    return {"url": pipeline.url, "topology": "t", **more}


def text_files(pipeline: Pipeline, *lines: bytes) -> DataFrame:
    directory = pipeline.directory / "text"
    directory.mkdir()
    (directory / "lines.txt").write_bytes(b"\n".join(lines))
    return pipeline.spark.readStream.text(str(directory))


@pytest.mark.older
def test_columns_of_any_type_are_tracked_emitted_and_read_as_they_were(pipeline: Pipeline) -> None:
    columns = [F.expr(value).alias(name) for name, value in VALUES.items()]
    lines = text_files(pipeline, *(b"%d" % n for n in range(20)))
    rows = lines.select(F.col("value").alias("id"), *columns)
    tracked = track(rows, **options(pipeline, spout="s", message_id="id"))
    pipeline.finish(
        pipeline.checkpointed(
            "write", tracked.writeStream.format("acker").options(**pipeline.options("values"))
        )
    )
    back = pipeline.read_stream("values").drop("_acker")
    assert back.schema.simpleString() == rows.schema.simpleString()
    seen = Diary(pipeline.directory / "seen")

    def look_at(rows: DataFrame) -> list[list[str]]:
        return [[str(value) for value in row] for row in rows.select(*as_text()).distinct().collect()]

    @bolt(**options(pipeline, name="look"))
    def look(batch: DataFrame, collector: Collector) -> None:
        seen.note(look_at(batch))

    pipeline.run("look", "values", look)
    assert seen.read() == [look_at(pipeline.spark.range(1).select(*columns))]
    assert settler.settle(pipeline.ledger) == Stepped(acked=20)


def as_text() -> list[Column]:
    """The columns as text that Spark makes: Python has not all of their values."""
    names = [F.col(f"`{name.replace('`', '``')}`") for name in VALUES]
    return [F.to_json(F.struct(name.alias("x"))) for name in names[:-1]]


def test_a_line_that_is_no_text_fails_alone_and_can_be_seen(pipeline: Pipeline) -> None:
    lines = track(
        text_files(pipeline, b"a b", b"caf\xe9", b"c"),
        **options(pipeline, spout="s", message_id="value", attempts=1),
    )

    def words(record: dict[str, Any]) -> list[str]:
        return list(record["value"].split())

    @bolt(**options(pipeline, name="split"))
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="raw")
        collector.emit_map(batch, words, "word string", stream="words")
        collector.fail(batch.filter("value = 'c'"), F.expr("cast(x'ff' as string)"))

    pipeline.finish(pipeline.checkpointed("split", lines.writeStream.foreachBatch(split)))

    @bolt(**options(pipeline, name="pass"))
    def pass_on(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="passed")

    pipeline.run("pass", "raw", pass_on, stale=True)
    assert {row["value"] for row in pipeline.rows("passed")} == {"a b", "caf�", "c"}
    assert [row["word"] for row in pipeline.rows("words")] == ["a", "b", "c"]
    counted = pipeline.counters()
    assert counted.pop("late")
    assert counted == {"tracked": 3, "failed": 2}
    assert settler.settle(pipeline.ledger) == Stepped(dead=2)
    found = dead_letters(pipeline.spark, **options(pipeline)).collect()
    assert [letter.row for letter in found] == ['{"value": "caf\\ufffd"}', '{"value": "c"}']
    assert found[0].reason.startswith("UnicodeDecodeError: ")
    assert found[1].reason == "�"


def test_keys_of_effects_that_differ_in_a_microsecond_are_two(pipeline: Pipeline) -> None:
    rows = pipeline.spark.range(3).selectExpr(
        "timestamp_micros(id) as at", "cast(timestamp_micros(id) as timestamp_ntz) as there"
    )
    for key in (["at"], ["there"], [F.struct("at")]):
        assert rows.select(digest(rows, "step", key)).distinct().count() == 3


def test_keys_of_effects_are_one_where_spark_says_that_they_are_equal(pipeline: Pipeline) -> None:
    equal = {
        "double": ["0.0D", "-0.0D"],
        "float": ["cast(0.0 as float)", "cast(-0.0 as float)"],
        "decimal": ["1.50BD", "cast('1.5' as decimal(38, 18))", "1.5BD"],
        "small": ["0.00000015BD", "cast('0.00000015' as decimal(38, 18))"],
        "zero": ["0.00BD", "cast(0 as decimal(1, 0))", "cast(0 as decimal(38, 38))"],
        "ten": ["10BD", "10.0BD"],
        "at": ["timestamp'2026-06-01 12:00:00+02:00'", "timestamp'2026-06-01 10:00:00Z'"],
        "map": ["map('a', 0.0D, 'b', 1D)", "map('b', 1D, 'a', -0.0D)"],
        "struct": ["named_struct('v', array(0.0D, null))", "named_struct('v', array(-0.0D, null))"],
    }
    other = ["cast(x'636166e9' as string)", "cast(x'636166e8' as string)", "'caf\ufffd'", "'100'", "null"]
    other += ["concat('\\0bytes ', '636166E9')", "'e\u0301'", "'\u00e9'", "'\u00c9'"]
    rows = pipeline.spark.range(1)
    digests = [
        digest(rows, "step", F.expr(text)).alias(f"d{place}")
        for place, text in enumerate([*(text for texts in equal.values() for text in texts), *other])
    ]
    found = [None if one is None else bytes(one) for one in rows.select(*digests).collect()[0]]
    for name, texts in equal.items():
        own, found = found[: len(texts)], found[len(texts) :]
        assert len(set(own)) == 1, name
        assert own[0] is not None
    assert len(set(found)) == len(other)


def test_a_line_too_long_for_a_message_id_is_a_dead_letter_and_the_others_go_on(pipeline: Pipeline) -> None:
    """The guide's example: whatever Spark repeats, once."""
    lines = text_files(pipeline, b"a b", b"x" * 5_000, b"", b"c")
    attempts = Attempts(pipeline.url)

    @bolt(**options(pipeline, name="split"))
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.select("value", "_acker"), stream="seen")
        collector.emit(attempts.of(batch), stream="lines")

    for _ in range(2):  # the second goes on from the checkpoint of the first
        tracked = track(lines, **options(pipeline, spout="s", message_id="value"))
        with at_once(pipeline.spark):
            pipeline.finish(pipeline.checkpointed("split", tracked.writeStream.foreachBatch(split)))
    for stream in ("seen", "lines"):
        assert sorted(str(row["value"]) for row in pipeline.rows(stream)) == ["", "a b", "c"]
    assert pipeline.counters() == {"tracked": 4, "failed": 1}
    assert settler.settle(pipeline.ledger) == Stepped(dead=1)

    written = {"spout": "direct", "message_id": "value", "bad_message_id": "untracked"}
    pipeline.finish(pipeline.writing("direct", lines, "direct", **written))
    assert sorted(len(str(row["value"])) for row in pipeline.rows("direct") if row["_acker"]) == [0, 1, 3]
    assert [len(str(row["value"])) for row in pipeline.rows("direct") if not row["_acker"]] == [5_000]
    untracked = track(lines, **options(pipeline, **{**written, "spout": "u"}))
    pipeline.finish(pipeline.writing("untracked", untracked, "passed"))
    assert sorted(len(str(row["value"])) for row in pipeline.rows("passed")) == [0, 1, 3, 5_000]
    assert sum(row["_acker"] == 0 for row in pipeline.rows("passed")) == 1
    assert pipeline.counters() == {"tracked": 10, "failed": 1}
    [letter] = dead_letters(pipeline.spark, **options(pipeline)).collect()
    assert (bytes(letter.message_id), letter.row) == (
        b"x" * 1021 + b"...", '{"value": "' + "x" * 5_000 + '"}',
    )  # fmt: skip
    assert letter.reason == "message_id: expected at most 1,024 bytes, got 5,000 in column 'value'"


PLACES = {
    "st_asbinary(x)": "st_geomfromwkb(x'0101000000000000000000f03f0000000000000040')",
    "st_asbinary(x[0])": "array(st_geogfromwkb(x'0101000000000000000000f03f0000000000000040'))",
}
OTHERS = {
    "cast(x as interval day to second)": "interval '1 02' day to hour",
    "cast(x as string)": "'x' collate UNICODE_CI",
    "element_at(x, 1)": "array('x' collate UNICODE_CI)",
    "to_json(struct(x))": "array(null)",
    "to_json(struct(map_values(x)))": "map(date'2026-07-01', named_struct('v', parse_json('[1]')))",
}
"""Other types as they are read -> a value of each; a few come back as a wider type."""
REFUSED = ["time'12:00:00'", "array(time'12:00:00')", "interval '1-2' year to month", "make_interval(1, 2)"]


@pytest.mark.parametrize("values", [OTHERS, pytest.param(PLACES, marks=geometry)], ids=["others", "places"])
def test_a_type_is_read_as_it_was_written(pipeline: Pipeline, values: dict[str, str]) -> None:
    columns = {f"c{place}": value for place, value in enumerate(values.values())}
    made = [f"{value} as {name}" for name, value in columns.items()]
    rows = text_files(pipeline, b"1").selectExpr("value", *made)
    pipeline.finish(pipeline.writing("write", rows, "values", message_id="value"))
    shown = [
        f"{text.replace('(x', f'({name}')} as {name}" for text, name in zip(values, columns, strict=True)
    ]
    seen = Diary(pipeline.directory / "seen")

    def look_at(rows: DataFrame) -> list[list[str]]:
        return [[str(value) for value in row] for row in rows.selectExpr(*shown).collect()]

    @bolt(**options(pipeline, name="look"))
    def look(batch: DataFrame, collector: Collector) -> None:
        seen.note(look_at(batch))

    pipeline.run("look", "values", look)
    assert seen.read() == [look_at(pipeline.spark.range(1).selectExpr(*made))]


@geometry
def test_places_are_no_columns_of_tracked_rows(pipeline: Pipeline) -> None:
    rows = text_files(pipeline, b"1").selectExpr("value", f"{PLACES['st_asbinary(x)']} as place")
    with pytest.raises(ValidationError, match=r"column place: .* geometry\(0\), which Spark cannot hash"):
        track(rows, **options(pipeline, spout="s", message_id="value"))


@pytest.mark.parametrize("value", REFUSED)
def test_a_type_that_cannot_be_read_is_refused_when_it_is_written(pipeline: Pipeline, value: str) -> None:
    def write() -> None:
        rows = pipeline.spark.range(1).selectExpr(f"{value} as v")
        pipeline.append(rows, "bad")

    with pytest.raises(Exception, match=r"cast it, as to string|UNSUPPORTED|interval|Interval"):
        write()
