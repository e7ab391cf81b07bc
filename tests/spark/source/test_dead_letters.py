"""Dead letters as rows of a query, and queries that have ended: their records wait."""

import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from acker.errors import ValidationError
from acker.inspect.locate.why import why
from acker.ledger.client import Ledger, open_ledger
from acker.spark import bolt, dead_letters
from acker.spark.bolts.collector import Collector
from acker.spark.queries.heartbeat import Heartbeat
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.store import keys
from acker.store.client import Store
from acker.streams import Stream, downtime
from acker.streams.dead_letters import dead_letters as letters
from acker.streams.log import heartbeats, subscriptions
from acker.streams.log.subscriptions import DEFAULT
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.builders.streaming import slot_of
from tests.helpers.servers.servers import raw_client, wait_until
from tests.helpers.servers.sparks import several_batches


def bury(pipeline: Pipeline, *names: str, stream: str = "prices") -> None:
    """Makes dead letters of rows of a spout; `status` is a column of theirs, too."""
    spout = StreamSpout(pipeline.ledger, SpoutOptions("shop", stream, "name", attempts=1))
    size = len(names)
    tags = pa.array([[name[0]] for name in names])
    [made] = spout.write(pa.table({"name": list(names), "status": [7] * size, "tags": tags}))
    pipeline.ledger.fail(made.anchors(), "not sold here")
    assert settler.settle(pipeline.ledger).dead == size


def run(pipeline: Pipeline, name: str) -> list[str]:
    """Runs a query over what there is; the names that it has written so far."""
    found = dead_letters(
        pipeline.spark, url=pipeline.url, topology="t", spout="shop", streaming=True, **LIMITS
    )
    reported = found.selectExpr("row.*", "message_id", "status as how", "reason", "attempts", "at", "id")
    pipeline.finish(pipeline.writing(name, reported, f"seen.{name}"))
    return sorted(str(row["name"]) for row in pipeline.rows(f"seen.{name}"))


LIMITS: dict[str, Any] = {"stream": "prices", "max_rows": 3}


def batches(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in (directory / "commits").glob("[0-9]*"))


@pytest.mark.connect(only=False)
def test_a_query_has_each_dead_letter_once_with_the_columns_of_its_row(pipeline: Pipeline) -> None:
    first = [f"a{n}" for n in range(8)]
    bury(pipeline, *first)
    assert run(pipeline, "one") == first
    [row] = [row for row in pipeline.rows("seen.one") if row["name"] == "a3"]
    assert (row["status"], row["tags"], row["message_id"]) == (7, ["a"], b"a3")
    assert (row["how"], row["reason"], row["attempts"]) == ("failed", "not sold here", 1)
    assert batches(pipeline.directory / "one") == ([0, 1, 2] if LEARNS_OFFSETS else [0])
    assert run(pipeline, "one") == first


@several_batches
def test_a_query_that_goes_on_has_what_is_new_and_not_what_is_gone(pipeline: Pipeline) -> None:
    first = [f"a{n}" for n in range(8)]
    bury(pipeline, *first)
    assert run(pipeline, "one") == first
    # The last batch once more, as after a driver that died before Spark had logged its end.
    last = batches(pipeline.directory / "one")[-1]
    for name in (str(last), f".{last}.crc"):
        (pipeline.directory / "one" / "commits" / name).unlink(missing_ok=True)
    bury(pipeline, "b0", "b1", "b2")
    bury(pipeline, "another", stream="others")
    page = pipeline.ledger.run(letters.page(pipeline.ledger.core))
    gone = {letter.row["name"]: letter.id for letter in page.letters}
    pipeline.ledger.run(letters.discard(pipeline.ledger.core, [gone["b1"]]))
    pipeline.ledger.run(letters.replay(pipeline.ledger.core, gone["a0"]))
    assert run(pipeline, "one") == [*first, "b0", "b2"]
    assert run(pipeline, "two") == [*first[1:], "b0", "b2"]


def test_a_reader_may_name_columns_and_a_wrong_one_is_refused(pipeline: Pipeline) -> None:
    bury(pipeline, "a", "b")
    options = pipeline.options("prices", spout="shop", dead_letters="true")

    def read(schema: str) -> list[Any]:
        found = pipeline.spark.read.format("acker").schema(schema).options(**options).load()
        return sorted(tuple(row) for row in found.collect())

    assert read("reason string, row struct<name: string>") == [
        ("not sold here", ("a",)), ("not sold here", ("b",)),
    ]  # fmt: skip
    assert read("attempts int") == [(1,), (1,)]
    with pytest.raises(Exception, match="and the struct row, not name string"):
        read("name string")
    with pytest.raises(Exception, match="name: expected string, got int32"):
        read("row struct<name: int>")
    writer = pipeline.spark.range(1).write.format("acker").mode("append")
    with pytest.raises(Exception, match="option dead_letters: only for reading"):
        writer.options(**pipeline.options("prices", dead_letters="true")).save()
    with pytest.raises(ValidationError, match="expected a spout with streaming=True"):
        dead_letters(pipeline.spark, url=pipeline.url, topology="t", streaming=True)
    with pytest.raises(ValidationError, match="stream goes with streaming=True"):
        dead_letters(pipeline.spark, url=pipeline.url, topology="t", stream="prices")


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    """A topology in which a query that is gone is soon known to be."""
    return open_ledger(Store(valkey_url), "t", ackers=2, message_timeout=4.0)


def runs(ledger: Ledger) -> bool | None:
    """Whether the one query of the stream is taken for one that runs; None before it has said so."""
    own = keys.Stream("t", "lines")
    with raw_client(ledger.store.url) as client:
        beats = client.hvals(own.beats(slot_of(ledger)).decode())
        now, _ = client.time()
    if not beats:
        return None
    return bool(now * 1000 - int(beats[0]) < 1000 * heartbeats.MISSED * heartbeats.period(ledger.core))


def planning(spark: SparkSession) -> list[str]:
    """The processes in which the queries of a session plan their batches, and beat."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == gateway.proc.pid and b"source_runner" in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:  # it has ended since
            continue
    return found


@pytest.mark.parametrize("how", ["it is stopped", "nobody has it any more"])
def test_a_heartbeat_ends_with_the_source_also_where_its_process_goes_on(ledger: Ledger, how: str) -> None:
    heartbeat = Heartbeat(ledger, "lines")
    heartbeat.of(ledger.run(subscriptions.subscribe(ledger.core, "lines", DEFAULT)), "reader")
    assert runs(ledger)
    assert beating()
    if how == "it is stopped":
        heartbeat.stop()
    else:
        del heartbeat
    wait_until(lambda: not beating())
    wait_until(lambda: runs(ledger) is False)


def beating() -> list[str]:
    """The threads of this process that beat."""
    return [one.name for one in threading.enumerate() if one.name.startswith("acker beats")]


def rotate(ledger: Ledger, times: int) -> int:
    """As a ticker does; returns how many trees expired."""
    expired = 0
    for _ in range(times):
        ledger.run(downtime.keep(ledger.core))
        expired += ledger.tick(force=True).expired
    return expired


def test_what_a_query_has_taken_waits_for_its_restart_and_expires_while_it_runs(pipeline: Pipeline) -> None:
    ledger, diary = pipeline.ledger, Diary(pipeline.directory / "diary")

    @bolt(url=pipeline.url, topology="t", name="split")
    def fails_once(batch: DataFrame, collector: Collector) -> None:
        if diary.note("called") == 1:
            assert batch.count() == 12
            raise SystemExit("the job is killed")
        assert runs(ledger)
        assert planning(pipeline.spark)
        diary.note(rotate(ledger, 4))
        collector.emit(batch.select("line", "_acker"), stream="words")

    anchor = int(pipeline.spout([f"line {n}" for n in range(12)])[0])
    with pytest.raises(PySparkException):
        pipeline.run("split", "lines", fails_once)
    answer = ledger.run(why(ledger.core, anchor, rows=True))
    [place] = answer.places
    assert place.taken_by is not None
    assert (answer.complete, place.rows, place.taken_by.batch) == (True, 1, 0)
    assert re.fullmatch("[0-9a-f-]{36}", place.taken_by.query)
    # A process that is about to be killed may beat again after a long pause on a busy machine.
    wait_until(lambda: not planning(pipeline.spark))
    wait_until(lambda: runs(ledger) is False)
    assert rotate(ledger, 6) == 0
    pipeline.run("split", "lines", fails_once)
    assert diary.read() == ["called", "called", 12]


@pytest.mark.parametrize("stale", [False, True])
def test_rows_of_ended_trees_reach_a_function_if_asked_for(pipeline: Pipeline, stale: bool) -> None:
    ledger, seen = pipeline.ledger, Diary(pipeline.directory / "seen")

    @bolt(url=pipeline.url, topology="t", name="look")
    def look(batch: DataFrame, collector: Collector) -> None:
        seen.note(sorted(row["line"] for row in batch.collect()))

    anchors = pipeline.spout([f"line {n}" for n in range(4)])
    ledger.fail(anchors[:3])
    pipeline.run("look", "lines", look, stale=stale)
    lines: list[Any] = [f"line {n}" for n in range(4)]
    assert seen.read() == [lines if stale else lines[3:]]
    assert pipeline.counters()["acked"] == 1
    [one] = Stream(ledger, "lines").totals().subscriptions
    assert (one.rows_stale, one.rows_behind) == (0 if stale else 3, 0)
