"""A query that has ended keeps its records waiting; what has expired before it is read is not processed."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from acker.inspect.locate.why import why
from acker.ledger.client import Ledger, open_ledger
from acker.spark import bolt
from acker.spark.bolts.collector import Collector
from acker.spark.queries.heartbeat import Heartbeat
from acker.store import keys
from acker.store.client import Store
from acker.streams import Stream, downtime
from acker.streams.log import heartbeats, subscriptions
from acker.streams.log.subscriptions import DEFAULT
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.builders.streaming import slot_of
from tests.helpers.servers.servers import raw_client, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    """A topology in which a query that is gone is soon known to be."""
    return open_ledger(Store(valkey_url), "t", ackers=2, message_timeout=4.0)


def runs(ledger: Ledger) -> bool | None:
    """True if the stream's query counts as running; None before its first heartbeat."""
    own = keys.Stream("t", "lines")
    with raw_client(ledger.store.url) as client:
        beats = client.hvals(own.heartbeats(slot_of(ledger)).decode())
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
    wait_until(lambda: runs(ledger))
    assert beating()
    if how == "it is stopped":
        heartbeat.stop()
    else:
        del heartbeat
    wait_until(lambda: not beating())
    wait_until(lambda: runs(ledger) is False)


def beating() -> list[str]:
    """The threads of this process that beat."""
    return [one.name for one in threading.enumerate() if one.name.startswith("acker heartbeats")]


def rotate(ledger: Ledger, times: int) -> int:
    """Rotates as a ticker does; returns the number of expired trees."""
    expired = 0
    for _ in range(times):
        ledger.run(downtime.keep(ledger.core))
        expired += ledger.tick(force=True).expired
    return expired


def test_what_a_query_has_taken_waits_for_its_restart_and_expires_while_it_runs(pipeline: Pipeline) -> None:
    ledger, diary = pipeline.ledger, Diary(pipeline.directory / "diary")

    def all_expired() -> bool:  # while a busy machine keeps heartbeats back, rows wait
        rotate(ledger, 4)
        return ledger.counters()["expired"] == 12

    @bolt(url=pipeline.url, topology="t", name="split")
    def fails_once(batch: DataFrame, collector: Collector) -> None:
        if diary.note("called") == 1:
            assert batch.count() == 12
            raise SystemExit("the job is killed")
        wait_until(lambda: runs(ledger))
        assert planning(pipeline.spark)
        wait_until(all_expired)
        diary.note("expired")
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
    assert diary.read() == ["called", "called", "expired"]


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
