"""Drivers killed around the commit of a query that writes by itself: it runs in a process of Spark's own."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock

import pytest
import redis

from acker import scripts
from acker.streams import commits
from tests.proxy import Proxy, proxied
from tests.spark.pipeline import Pipeline
from tests.spark.test_crashes import LINES, assert_exact, run, staged, start

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

    def __init__(self, proxy: Proxy, before: bool, asks: Callable[[bytes], bool]) -> None:
        self.driver: subprocess.Popen[bytes] | None = None
        self.done = Event()
        self._asks = asks
        self._lock = Lock()
        if before:
            proxy.passed = lambda _, request: self._lose(request)
        else:
            proxy.swallow = self._kill

    def _kill(self, request: bytes) -> bool:
        with self._lock:
            if self.done.is_set() or not self._asks(request):
                return False
            assert self.driver is not None
            end(self.driver.pid)
            self.done.set()
            return True

    def _lose(self, request: bytes) -> None:
        if self._kill(request):
            raise OSError("the request is lost with its sender")


@pytest.mark.parametrize(
    ("before", "script", "word", "state"),
    [
        (True, "begin_commit", b"", ""),
        (False, "publish", b"", "tracked"),
        (False, "advance_commit", b"done", "done"),
    ],
    ids=["before", "in", "after"],
)
def test_a_driver_killed_around_the_commit_of_a_writer_is_restarted_with_other_partitions(
    pipeline: Pipeline, before: bool, script: str, word: bytes, state: str, tmp_path: Path
) -> None:
    sha, checkpoint = scripts.get(script).sha, tmp_path / "killed"
    pipeline.spout(LINES, segments=4)
    with redis.Redis.from_url(pipeline.url) as client:
        for one in scripts.load_all().values():
            client.script_load(one.text)  # so that a request with a name does what it says
    with proxied(pipeline.url) as proxy:
        through = replace(pipeline, url=proxy.url)
        killer = Killer(proxy, before, lambda request: sha in request and word in request)
        killer.driver = start(through, checkpoint, "--direct", "--partitions", 1)
        assert killer.done.wait(300)
        assert killer.driver.wait(60) == -signal.SIGKILL
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        assert pipeline.ledger.run(commits._begin(pipeline.ledger.core, query, 0, ""))[0] == state
        assert staged(pipeline) > 0
        assert (len(pipeline.rows("words")) > 0) is (not before)
        assert run(through, checkpoint, "--direct", "--partitions", 3) == 0
    assert_exact(pipeline, 1000)
