"""Processes of Spark killed with -9, and copies of tasks: only what winning attempts did counts, once."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from acker import Topology
from acker.lines import Gather, Line, Out, Request
from acker.spark import Collector, bolt
from acker.streams import Stream
from acker.streams.commits import record
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults import attempts
from tests.helpers.faults.attempts import BY, wait_for
from tests.helpers.faults.crashes import LINES, assert_exact, run, staged
from tests.helpers.models.exactness import words
from tests.helpers.servers import standalone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("after", ["3", "after"])
def test_a_killed_driver_is_restarted_otherwise(pipeline: Pipeline, after: str, tmp_path: Path) -> None:
    """And with a function that drops other rows each time."""
    pipeline.spout(LINES, segments=4)
    assert run(pipeline, tmp_path / "killed", "--die", after, "--partitions", 1, "--random") == -9
    published = len(pipeline.rows("words"))
    assert (published > 0) is (after == "after")
    assert run(pipeline, tmp_path / "killed", "--partitions", 3, "--random") == 0
    rows = len(pipeline.rows("words"))
    assert rows == published if published else 0 < rows < 1000
    assert_exact(pipeline)


@pytest.mark.parametrize(("die", "state"), [("before", ""), ("4", "prepared"), ("after", "complete")])
def test_a_job_killed_before_in_or_after_its_commit_takes_effect_once_when_it_runs_again(
    pipeline: Pipeline, die: str, state: str, tmp_path: Path
) -> None:
    """With other partitions, and with a filter that drops other rows each time."""

    def run_job(*arguments: object) -> int:
        return run(pipeline, tmp_path, "--job", "monday", "--random", *arguments)

    pipeline.spout(LINES, segments=4)
    assert run_job("--die", die, "--partitions", 1) == -9
    assert staged(pipeline) > 0
    core = pipeline.ledger.core
    assert pipeline.ledger.run(record.begin(core, "split:monday", 0, ""))[0].partition(" ")[0] == state
    published = len(pipeline.rows("words"))
    assert (published > 0) is (state == "complete")
    assert pipeline.counters().get("tracked") == (550 if state in ("tracked", "complete") else 500)
    # A run that was committed says so to one that has other rows and takes none: RunCommitted.
    assert run_job("--partitions", 3) == (1 if state == "complete" else 0)
    rows = len(pipeline.rows("words"))
    assert rows == published if published else 0 < rows < 1000
    assert_exact(pipeline, rows, numbers=50)


@pytest.fixture(scope="module")
def master(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster for drivers that end by themselves: each is an application of its own."""
    with standalone.cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.mark.parametrize("way", [[], ["--direct"]], ids=["bolt", "writer"])
def test_speculative_copies_win_and_lose(
    pipeline: Pipeline, master: str, tmp_path: Path, way: list[str]
) -> None:
    """A bolt sends the words to a sink, too."""
    pipeline.spout(LINES, segments=4)
    gates, copies = tmp_path / "gates", tmp_path / "copies"
    (gates / "copies").mkdir(parents=True)
    more = ["--master", master, "--partitions", 3, "--gates", gates]
    with Topology(pipeline.url, "t", linger=None) as topology:
        received = topology.incoming("copies", subscription="count")
        assert run(pipeline, tmp_path / "checkpoint", *(way or ["--copies", str(copies)]), *more) == 0
        for place in (gates,) if way else (gates, gates / "copies"):
            assert {"1-original", "1-copy", "2-original", "2-copy"} <= {path.name for path in place.iterdir()}
        if not way:
            stamps = pq.read_table(copies).column("_acker_stamp").to_pylist()
            assert len(stamps) == 1000
            winners = {text[:28] for text in stamps}
            assert Stream(pipeline.ledger, "copies").totals().segments == len(winners)
            received.ack(received.read(stamps))
            topology.flush()
    published = pipeline.attempts("words")
    assert {name[:4] for name in published} == {"<0.0", "<1.1", "<2.0"}
    lost = attempts.staged_by(pipeline.url)
    assert {"<1.0", "<2.1"} <= {name[:4] for name in lost}
    assert not lost & published
    assert_exact(pipeline, 1000)


def test_a_driver_killed_while_rows_gather_takes_other_rows(pipeline: Pipeline, tmp_path: Path) -> None:
    line = ask(pipeline, LINES)
    assert run(pipeline, tmp_path / "killed", "--die", 3, "--partitions", 1, "--random") == -9
    assert staged(pipeline) > 0
    assert run(pipeline, tmp_path / "killed", "--partitions", 3, "--random") == 0
    found, _ = gather(pipeline, line, LINES)
    assert len(found) == len(set(found)) == 2 * len({word[1:] for word in found})
    assert 0 < len(found) < 1000


def test_speculative_copies_of_who_writes_rows_that_gather(
    pipeline: Pipeline, master: str, tmp_path: Path
) -> None:
    line = ask(pipeline, LINES)
    (tmp_path / "gates").mkdir()
    more = ["--master", master, "--partitions", 3, "--gates", tmp_path / "gates"]
    assert run(pipeline, tmp_path / "checkpoint", *more) == 0
    lost = attempts.staged_by(pipeline.url)
    assert {"<1.0", "<2.1"} <= {name[:4] for name in lost}
    found, by = gather(pipeline, line, LINES)
    assert found == sorted(word for one in LINES for word in one.split())
    assert {name[:4] for name in by} == {"<0.0", "<1.1", "<2.0"}
    assert not lost & by


class Kill:
    """Kills executors, once: the task's own, or the other one, whose shuffle files are lost with it."""

    def __init__(self, url: str, directory: Path, own: bool) -> None:
        self.url = url
        self.directory = directory
        self.own = own

    def note(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In the tasks before the shuffle: each waits until both executors are at work."""
        (self.directory / f"executor-{attempts.executor()}").touch()
        wait_for(lambda: len(self.executors()) >= 2)
        yield from batches

    def kill(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In those behind it, when a task of each executor has staged some of its rows."""
        killed = self.directory / "killed"
        first = not killed.exists()
        assert (yield from attempts.label(batches)) >= attempts.ENOUGH
        if not first:
            return
        attempts.wait_until_staged(self.url)
        (self.directory / f"staged-{attempts.executor()}").touch()
        wait_for(lambda: len(list(self.directory.glob("staged-*"))) >= 2)
        try:
            os.close(os.open(killed, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if not self.own:
                wait_for(lambda: False)  # for its end
            return
        doomed = [pid for pid in self.executors() if (pid == attempts.executor()) is self.own]
        assert doomed
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)

    def executors(self) -> list[int]:
        """The executors that were noted."""
        return [int(path.name.removeprefix("executor-")) for path in self.directory.glob("executor-*")]


@pytest.mark.parametrize(
    ("own", "sink"),
    [(True, "bolt"), (False, "bolt"), (True, "writer"), (False, "writer"), (True, "gather")],
    ids=["own-bolt", "other-bolt", "own-writer", "other-writer", "own-gather"],
)
def test_an_executor_killed_after_staging_or_with_shuffle_files_that_are_needed(
    pipeline: Pipeline, tmp_path: Path, own: bool, sink: str
) -> None:
    kill = Kill(pipeline.url, tmp_path, own)

    def made(lines: DataFrame) -> DataFrame:
        noted = lines.mapInArrow(kill.note, lines.schema)
        labelled = attempts.labelled(lines)
        return words(noted.repartition(4, "line").mapInArrow(kill.kill, labelled), BY)

    @bolt(url=pipeline.url, topology="t", name="split", segment_rows=10)
    def split_lines(batch: DataFrame, collector: Collector) -> None:
        collector.emit(made(batch), stream="words")

    line = ask(pipeline, LINES) if sink == "gather" else None
    if line is None:
        pipeline.spout(LINES, segments=4)
    if sink != "writer":
        query = pipeline.query("split", "lines", split_lines, partitions=2)
    else:
        rows = made(pipeline.read_stream("lines", partitions=2))
        query = pipeline.writing("split", rows, "words", segment_rows=10)
    with attempts.at_once(pipeline.spark):
        pipeline.finish(query)
    assert (tmp_path / "killed").exists()
    lost = attempts.staged_by(pipeline.url)
    assert lost
    if line is not None:
        found, by = gather(pipeline, line, LINES)
        assert found == sorted(word for one in LINES for word in one.split())
        assert not lost & by
        return
    assert not lost & pipeline.attempts("words")
    assert_exact(pipeline, 1000)


TASKS = 3
_PARTS = 4


def ask(pipeline: Pipeline, lines: list[str]) -> Line:
    """Makes each line a request, of which a row is in the stream `lines`; its words gather in `words`."""
    line = Line(pipeline.ledger, "line", [Gather("words", tasks=TASKS, by=("word",))])
    spout = StreamSpout(pipeline.ledger, SpoutOptions("asks", "lines", "id", line="line"))
    for part in range(_PARTS):
        spout.write(pa.table({"id": lines[part::_PARTS], "line": lines[part::_PARTS]}))
    return line


def gather(pipeline: Pipeline, line: Line, lines: list[str]) -> tuple[list[str], set[str]]:
    """The words that have gathered of all requests, sorted, and the attempts of tasks that have written them.

    Each request and task has ended once.
    """
    found: list[tuple[str, str]] = []
    ended: list[tuple[int, int]] = []

    @line.gather("words", reads="words")
    class Words:
        def __init__(self, request: Request) -> None:
            self.own, self.rows = (request.id, request.task), list[tuple[str, str]]()

        def execute(self, row: dict[str, Any]) -> None:
            self.rows.append((row["word"], row.get(BY) or ""))

        def finished(self, _: Out) -> None:
            found.extend(self.rows)
            ended.append(self.own)

    with line.work():
        done, deadline = 0, time.monotonic() + 120
        while done < len(lines) and time.monotonic() < deadline:
            done += settler.settle(pipeline.ledger).all
    assert len(ended) == len(set(ended)) == TASKS * len(lines)
    assert pipeline.counters() == {"tracked": 2 * len(lines), "acked": 2 * len(lines)}
    return sorted(word for word, _ in found), {by for _, by in found}
