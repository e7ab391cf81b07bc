"""Spouts of DataFrames whose ids alone are in the store: what fails is read again by the job that tracks."""

from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame

from acker.errors import ValidationError
from acker.spark import Collector, bolt, dead_letters, track
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Diary, Pipeline

pytestmark = pytest.mark.slow


@pytest.mark.connect(only=False)
def test_what_a_bolt_fails_is_read_again_from_its_source(pipeline: Pipeline) -> None:
    lines = [f"line {n}" for n in range(100)]
    source = pipeline.files(lines).selectExpr("value", "length(value) size", "reverse(value) back")
    asked = Diary(pipeline.directory / "asked")

    def reread(ids: DataFrame) -> DataFrame:
        asked.note(sorted(row.value for row in ids.collect()))
        if len(asked.read()) == 1:
            raise OSError("the source is away")
        text = pipeline.spark.read.text(str(pipeline.directory / "in")).filter("value <> 'line 17'")
        found = text.selectExpr("'more' more", "reverse(value) back", "value", "length(value) size")
        return found.unionByName(found)  # each row twice, and rows that nobody has asked for

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(collector.newest(batch, "value"), stream="seen")  # each row has a name of its own
        collector.fail(batch.filter("value like '%7' and attempt = 1 or value = 'line 7'"), "seven")

    def run() -> list[tuple[Any, ...]]:
        kept = {"attempts": 2, "attempt": "attempt", "keep": "ids", "reread": reread, "place": ["size"]}
        kept["version"] = "back"
        pipeline.run_on(pipeline.tracked(source, **kept), "split", split)
        found = sorted(
            (row["value"], row["size"], row["back"], row["attempt"]) for row in pipeline.rows("seen")
        )
        pipeline.consume("seen")
        return found

    def settle_all(wanted: Stepped) -> None:
        """Settles until all are settled: the thread of the spout asks the source meanwhile."""
        settled = Stepped()
        while settled.all < wanted.all:
            done = settler.settle(pipeline.ledger)
            settled = Stepped(
                settled.acked + done.acked, settled.replayed + done.replayed, settled.dead + done.dead
            )
        assert settled == wanted

    assert [row[0] for row in run()] == sorted(lines)
    with redis.Redis.from_url(pipeline.url) as client:
        assert not list(client.scan_iter("*staged_rows*"))  # the store has ids only
    settle_all(Stepped(acked=90, replayed=9, dead=1))
    failed = sorted(f"line {n}" for n in range(7, 100, 10))
    assert asked.read()[0] == failed
    assert {line for ids in asked.read() for line in ids} == set(failed)
    assert run() == [(line, len(line), line[::-1], 2) for line in failed if line != "line 17"]
    settle_all(Stepped(acked=8, dead=1))
    read = dead_letters(pipeline.spark, url=pipeline.url, topology="t").collect()
    assert sorted((row.reason, row.row) for row in read) == [
        (
            "gone from its source, after: seven",
            '{"value": "line 17", "size": 7, "back": null, "attempt": 1}',
        ),
        ("seven", '{"value": "line 7", "size": 6, "back": "7 enil", "attempt": 2}'),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep": "id"}, "keep: expected rows or ids, got 'id'"),
        ({"keep": "ids"}, "reread: expected with keep='ids', a function"),
        ({"keep": "ids", "reread": "kafka"}, "reread: expected with keep='ids', a function .* got 'kafka'"),
        ({"reread": print}, "reread: expected with keep='ids'"),
        ({"place": ["size"]}, "place: expected with keep='ids'"),
        ({"keep": "ids", "reread": print, "place": 3}, "place: expected names of columns, got 3"),
        ({"keep": "ids", "reread": print, "place": ["size", "many"]}, "place: .* got 'many' of list"),
        ({"keep": "ids", "reread": print, "place": ["nope"]}, "place: .*value, size, many.* got 'nope'"),
    ],
)
def test_ids_are_checked_before_anything_is_written(
    pipeline: Pipeline, given: dict[str, Any], message: str
) -> None:
    rows = pipeline.files(["a"]).selectExpr("value", "length(value) size", "split(value, ' ') many")
    with pytest.raises(ValidationError, match=message):
        track(
            rows, url=pipeline.url, topology="new", spout="s", message_id="value", message_timeout=9, **given
        )
    with redis.Redis.from_url(pipeline.url) as client:
        assert not list(client.scan_iter("*{new*"))
