"""A store that lost what a spout's query had committed is noticed, and what waited can be read again."""

from pathlib import Path

import pytest
import redis
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from acker.errors import StoreLost, ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import topologies
from acker.spark import bolt, read_again, track
from acker.spark.bolts.collector import Collector
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.queries.store_loss import Losses, check_commits
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import StreamReader
from acker.streams.spouts import settler
from tests.helpers.builders.pipeline import Pipeline


def test_a_query_ends_where_its_rows_are_lost_and_reads_them_again(
    pipeline: Pipeline, valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    source, checkpoint = pipeline.directory / "in", str(pipeline.directory / "load")
    source.mkdir()

    @bolt(url=valkey_url, topology="t", name="load")
    def load(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.select("value", "_acker"), stream="words")

    def run(number: int) -> None:
        (source / f"{number}.txt").write_text("".join(f"{number}.{line}\n" for line in range(10)))
        rows = pipeline.spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
        tracked = track(rows, url=valkey_url, topology="t", spout="lines", message_id="value")
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
    assert read_again(checkpoint, url=valkey_url, topology="t") == 1
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
    check(7)  # whoever is no spout has nothing that only the store has
    with pytest.raises(StoreLost, match=r"knows no commit of batch 6 of query q: .* batches 0 to 6"):
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
    assert first == {"life": ledger.run(topologies.life("t")), "pending": {}}
    assert losses.marks(first, False) == first
    losses.check({"reader": "r", "at": 3})  # of an earlier version
    losses.check(first)
    other = {"life": "another", "pending": {"q": 12}}
    with pytest.raises(StoreLost, match="of batch 12 and later of query q"):
        losses.check(other)
    going_on = Losses(ledger, "s.replays", "go on")
    going_on.check(other)
    assert "goes on without them" in caplog.text
    assert going_on.marks(other, False) == first


def test_a_checkpoint_that_cannot_be_set_back_is_left_as_it_is(tmp_path: Path, valkey_url: str) -> None:
    with pytest.raises(ValidationError, match="expected the directory of one"):
        read_again(str(tmp_path), url=valkey_url, topology="t")
    (tmp_path / "metadata").write_text('{"id": "q"}')
    (tmp_path / "state" / "0" / "0").mkdir(parents=True)
    with pytest.raises(ValidationError, match="state of Spark's own"):
        read_again(str(tmp_path), url=valkey_url, topology="t")
