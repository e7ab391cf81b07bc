"""Queries whose store lost what they had, and jobs that catch up until nothing is behind."""

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.errors import AckerError, StoreLost, ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import topologies
from acker.spark import bolt, read_again, run_until_caught_up, track
from acker.spark.bolts.collector import Collector
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.queries.store_loss import Losses, check_commits
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import Stream, StreamReader
from acker.streams.spouts import settler
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("keep", ["rows", "ids"])
def test_a_query_ends_at_lost_rows(
    pipeline: Pipeline, valkey_url: str, valkey_raw: "redis.Redis", keep: str
) -> None:
    source, checkpoint = pipeline.directory / "in", str(pipeline.directory / "load")
    source.mkdir()
    reread = {"reread": lambda ids: pipeline.spark.read.text(str(source))} if keep == "ids" else {}
    kept: dict[str, Any] = {"keep": keep, **reread}

    @bolt(url=valkey_url, topology="t", name="load")
    def load(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.select("value", "_acker"), stream="words")

    def run(number: int) -> None:
        (source / f"{number}.txt").write_text("".join(f"{number}.{line}\n" for line in range(10)))
        rows = pipeline.spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
        tracked = track(rows, url=valkey_url, topology="t", spout="lines", message_id="value", **kept)
        writer = tracked.writeStream.foreachBatch(load).option("checkpointLocation", checkpoint)
        pipeline.finish(writer.trigger(availableNow=True))

    def words() -> set[str]:
        return {str(row["value"]) for row in pipeline.rows("words")}

    run(0)
    StreamReader(pipeline.ledger, "words").ack_all()
    assert settler.settle(pipeline.ledger).acked == 10
    run(1)
    run(2)  # notes that rows of batch 1 wait
    valkey_raw.flushdb()
    open_ledger(Store(valkey_url), "t", ackers=3, message_timeout=600.0)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"StoreLost.*spout 'lines'.*of batch 1 and later"):
            run(3)
    with pytest.raises(ValidationError, match="batch: expected"):
        read_again(checkpoint, url=valkey_url, topology="t", batch=99)
    query = json.loads((Path(checkpoint) / "metadata").read_text())["id"]
    writes = keys.external("t", "txn", query)  # by which tables would leave out the batches with other rows
    valkey_raw.hset(writes, "1:sink", "rows")
    assert read_again(checkpoint, url=valkey_url, topology="t") == 1
    assert not valkey_raw.exists(writes)
    run(4)
    assert words() == {f"{number}.{line}" for number in range(1, 5) for line in range(10)}
    StreamReader(pipeline.ledger, "words").ack_all()
    assert pipeline.counters() == {"tracked": 40, "acked": 40}


def _spend(ledger: Ledger, **fields: object) -> None:
    for name, value in fields.items():
        key = keys.commits("t", "q")
        ledger.store.send([command("HSET", key, name, str(value)), command("EXPIRE", key, 60)])


def test_a_store_that_was_set_back_lacks_the_commit_of_the_batch_before(ledger: Ledger) -> None:
    def check(number: int, last: int | None = None, after_loss: str = "stop", spout: bool = False) -> None:
        check_commits(ledger, MicroBatch("q", number, "r"), last, after_loss, spout)

    check(0, spout=True)
    check(7)  # a query without a spout has nothing that only the store has
    with pytest.raises(StoreLost, match=r"has no commit of batch 6 of query q: .* batches 0 to 6"):
        check(7, spout=True)
    check(7, after_loss="go on", spout=True)
    _spend(ledger, last=5)
    check(7)
    _spend(ledger, spout=1)
    with pytest.raises(StoreLost, match=r"its last is of batch 5: .* rows of batches 6 to 6"):
        check(7)
    check(6)
    check(5)  # it runs again
    check(9, last=5)  # a function that calls its bolt only now and then


def test_an_offset_of_another_life_of_the_store_is_refused_unless_the_user_goes_on(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    losses = Losses(ledger, "s.replays", "stop")
    first = losses.marks(None, True)
    assert first == {"epoch": ledger.run(topologies.epoch("t")), "pending": {}}
    assert losses.marks(first, False) == first
    losses.check({"reader": "r", "at": 3})  # as `read_again` leaves it
    losses.check(first)
    other = {"epoch": "another", "pending": {"q": 12}}
    with pytest.raises(StoreLost, match="of batch 12 and later of query q"):
        losses.check(other)
    going_on = Losses(ledger, "s.replays", "go on")
    going_on.check(other)
    assert "goes on without them" in caplog.text
    assert going_on.marks(other, False) == first


def test_a_checkpoint_that_cannot_be_set_back_is_left_as_it_is(tmp_path: Path, valkey_url: str) -> None:
    with pytest.raises(ValidationError, match="expected the directory of a checkpoint"):
        read_again(str(tmp_path), url=valkey_url, topology="t")
    (tmp_path / "metadata").write_text('{"id": "q"}')
    (tmp_path / "state" / "0" / "0").mkdir(parents=True)
    with pytest.raises(ValidationError, match="Spark's own state"):
        read_again(str(tmp_path), url=valkey_url, topology="t")


BROKEN = "broken"
LINES = [f"line {n}" for n in range(30)]


def copying(pipeline: Pipeline, **options: object) -> DataStreamWriter:
    """A query that copies the stream `lines`, ten rows in a batch; it ends in one while a file is there."""
    broken = pipeline.directory / BROKEN

    @bolt(url=pipeline.url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        if broken.exists():
            raise RuntimeError("on purpose")
        collector.emit(batch, stream="copies")

    return pipeline.query("copy", "lines", copy, max_rows=10, **options)


def behind(pipeline: Pipeline) -> int:
    [one] = Stream(pipeline.ledger, "lines").totals().subscriptions
    return one.rows_behind


@pytest.mark.older
def test_a_query_runs_until_nothing_is_behind_and_what_ends_a_run_passes_through(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.spout(LINES, segments=3)
    query, broken = copying(pipeline), pipeline.directory / BROKEN
    with pytest.raises(ValidationError, match="most_runs: expected int from 1"):
        run_until_caught_up(query, most_runs=0)
    with pytest.raises(ValidationError, match="expected a DataStreamWriter"):
        run_until_caught_up(pipeline.read_stream("lines"))  # type: ignore[arg-type]
    with pytest.raises(AckerError, match="still found something in run 1, the last of most_runs"):
        run_until_caught_up(query, most_runs=1)
    broken.touch()
    pipeline.spout(LINES, segments=3)
    with pytest.raises(Exception, match="on purpose"):
        run_until_caught_up(query)
    broken.unlink()
    assert run_until_caught_up(query) == (1 if LEARNS_OFFSETS else 5)
    assert run_until_caught_up(query) == 0
    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == sorted(LINES * 2)
    assert behind(pipeline) == 0
    assert not [one for one in caplog.records if one.name.startswith("acker")]


@pytest.mark.older
def test_a_run_of_one_batch_is_logged(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.spout(LINES, segments=3)
    pipeline.finish(copying(pipeline))
    assert behind(pipeline) == (0 if LEARNS_OFFSETS else 20)
    told = [one.getMessage() for one in caplog.records if "run_until_caught_up" in one.getMessage()]
    assert len(told) == (not LEARNS_OFFSETS)
    assert all("reads lines with Trigger.AvailableNow" in text for text in told)


@pytest.mark.older
def test_runs_that_begin_anew_each_time_are_an_error(pipeline: Pipeline) -> None:
    (pipeline.directory / "in").mkdir()
    (pipeline.directory / "in" / "1.txt").write_text("a\n")
    rows = pipeline.spark.readStream.text(str(pipeline.directory / "in"))
    with pytest.raises(
        AckerError, match=r"run 2 began anew with batch 0.*give the query a checkpointLocation"
    ):
        run_until_caught_up(rows.writeStream.format("noop"))
