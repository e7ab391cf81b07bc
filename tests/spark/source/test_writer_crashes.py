"""Drivers killed around a commit, and two at once: a proxy tells where they are.

The commit of a query that writes by itself runs in a process of Spark's own.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock

import pytest
import redis

from acker.store import scripts
from acker.streams.commits import record
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults import moments
from tests.helpers.faults.crashes import LINES, assert_exact, run, staged, start
from tests.helpers.faults.moments import Asked
from tests.helpers.faults.proxy import Proxy, proxied

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def end(process: int) -> None:
    """Kills a process with all that it has started, from the top."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue  # has ended meanwhile
    doomed = [process]
    for one in doomed:
        doomed += [child for child, parent in parents.items() if parent == one]
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue


class Killer:
    """Kills a driver that asks for something, once: before the store knows of it, or when it has done it."""

    def __init__(self, proxy: Proxy, before: bool, asked: Asked) -> None:
        self.driver: subprocess.Popen[bytes] | None = None
        self.done = Event()
        self._asked = asked
        self._lock = Lock()
        if before:
            proxy.passed = lambda _, request: self._lose(request)
        else:
            proxy.swallow = self._kill

    def run(self, pipeline: Pipeline, checkpoint: Path, *arguments: object) -> None:
        """Starts a driver, which dies there."""
        self.driver = start(pipeline, checkpoint, *arguments)
        try:
            assert self.done.wait(300)
            assert self.driver.wait(60) == -signal.SIGKILL
        finally:
            self.driver.kill()

    def _kill(self, request: bytes) -> bool:
        with self._lock:
            if self.done.is_set() or not self._asked(request):
                return False
            assert self.driver is not None
            end(self.driver.pid)
            self.done.set()
            return True

    def _lose(self, request: bytes) -> None:
        if self._kill(request):
            raise OSError("the request is lost with its sender")


@contextmanager
def through(pipeline: Pipeline) -> Iterator[tuple[Pipeline, Proxy]]:
    """The pipeline by way of a proxy, where a request that names a script does what it says."""
    with redis.Redis.from_url(pipeline.url) as client:
        for one in scripts.load_all().values():
            client.script_load(one.text)
    with proxied(pipeline.url) as proxy:
        yield replace(pipeline, url=proxy.url), proxy


def test_a_driver_killed_before_in_and_after_the_commit_of_a_writer_is_restarted_with_other_partitions(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """Each restart runs the same batch, and is killed a step later than the one before."""
    checkpoint = tmp_path / "killed"
    pipeline.spout(LINES, segments=4)

    def reached() -> str:
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        return pipeline.ledger.run(record.begin(pipeline.ledger.core, query, 0, ""))[0].partition(" ")[0]

    def complete(_: bytes) -> bool:
        return reached() == "complete"

    kills: list[tuple[bool, Asked, str]] = [
        (True, moments.stores, ""), (False, moments.publishes, "tracked"), (True, complete, "complete"),
    ]  # fmt: skip
    with through(pipeline) as (proxied_pipeline, proxy):
        for partitions, (before, asked, state) in enumerate(kills, 1):
            killer = Killer(proxy, before, asked)
            killer.run(proxied_pipeline, checkpoint, "--direct", "--partitions", partitions)
            assert reached() == state
            assert staged(pipeline) > 0
            assert (len(pipeline.rows("words")) > 0) is (state == "complete")
        assert run(proxied_pipeline, checkpoint, "--direct", "--partitions", 1) == 0
    assert_exact(pipeline, 1000)


@pytest.mark.parametrize("way", [[], ["--direct"]], ids=["bolt", "writer"])
def test_two_drivers_restart_the_same_batch_of_one_that_was_killed_before_its_commit(
    pipeline: Pipeline, tmp_path: Path, way: list[str]
) -> None:
    """Each has staged its own when they come to store the commit; only what one of them staged is used."""
    pipeline.spout(LINES, segments=4)
    before = staged(pipeline)
    with through(pipeline) as (proxied_pipeline, proxy):
        Killer(proxy, True, moments.stores).run(proxied_pipeline, tmp_path / "one", *way)
        killed = staged(pipeline) - before
        assert killed > 0
        assert pipeline.counters() == {"tracked": 500}
        assert pipeline.rows("words") == []
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        proxy.passed = meeting = moments.Meeting(moments.stores)
        drivers = [start(proxied_pipeline, tmp_path / name, *way) for name in ("one", "two")]
        try:
            assert [driver.wait(400) for driver in drivers] == [0, 0]
        finally:
            for driver in drivers:
                driver.kill()
    assert meeting.met.is_set()
    assert_exact(pipeline, 1000)
    assert staged(pipeline) == killed  # what it staged has a time to live; the loser's is gone
