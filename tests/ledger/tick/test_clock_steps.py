"""The server's clock steps, forth and back: what goes by it, and what does not."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import redis

from acker.embedded import EmbeddedServer
from acker.inspect.topology import history
from acker.inspect.topology.history import WINDOWS, Reading, Window
from acker.ledger import ids
from acker.ledger.calls.calls import HORIZON
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.tick.ticker import Ticker
from acker.ledger.trees.buckets import TICK_LAG
from acker.store import keys
from acker.store.client import Store
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import HOW, lines
from tests.helpers.builders.ledgers import Trees, opened
from tests.helpers.builders.tickers import running
from tests.helpers.models.ledger_state import age_writers, shard_key
from tests.helpers.servers.clocks import NoLibrary, ShiftedClock
from tests.helpers.servers.servers import wait_until

TEN, TWO_DAYS = 10.0, 2 * 86_400.0
TIMEOUT = 1.0


class Stepped:
    """A server, and how to set its clock."""

    def __init__(self, directory: Path) -> None:
        self.clock = ShiftedClock(directory)
        self.server = EmbeddedServer(directory / "data", binary=self.clock.binary, append_only=False)

    def step(self, seconds: float) -> None:
        self.clock.step(self.server, seconds)


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stepped]:
    try:
        server = Stepped(tmp_path_factory.mktemp("stepped"))
    except NoLibrary as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server.server:
        yield server


@pytest.fixture
def at(stepped: Stepped) -> Stepped:
    """The server, empty, its clock right."""
    stepped.step(0.0)
    with redis.Redis.from_url(stepped.server.url) as client:
        client.flushall()
    return stepped


class Stream:
    """Trees that are tracked one after the other, and when each one was, and was reported as expired.

    slowest: seconds that the machine took at most for one of them, or to look, when it had other work.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.reader = OutcomeReader(ledger.core, "s")
        self.tracked: dict[bytes, float] = {}
        self.took: list[float] = []
        self.slowest, self._looked = 0.0, time.monotonic()

    def go_on(self, seconds: float) -> None:
        """Tracks trees for so long."""
        self._looked = time.monotonic()
        until = self._looked + seconds
        while time.monotonic() < until:
            trees = Trees(1)
            self.tracked[ids.slab_of(int(trees.anchors[0]))] = time.monotonic()
            trees.track(self.ledger)
            self.take()

    def take(self) -> bool:
        """Takes what was reported; whether all was."""
        for entry in self.ledger.outcomes(self.reader):
            assert entry.status == "expired"
            self.took += [time.monotonic() - self.tracked[part.slab] for part in entry.slabs]
        looked, self._looked = self._looked, time.monotonic()
        self.slowest = max(self.slowest, self._looked - looked)
        return len(self.took) == len(self.tracked)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_trees_expire_in_their_time_whatever_the_clock_of_the_server_does(at: Stepped) -> None:
    """At each moment of a period, and with a ticker that begins after each step."""
    ledger = opened(at.server.url, message_timeout=TIMEOUT)
    stream = Stream(ledger)
    with ExitStack() as stack:
        for step in (0.0, TEN, -TEN, TWO_DAYS, 0.0, -TWO_DAYS):
            at.step(step)
            stack.enter_context(running(Ticker(Store(at.server.url))))
            stream.go_on(0.8)
        wait_until(stream.take)
    assert min(stream.took) >= TIMEOUT
    assert max(stream.took) <= 1.5 * TIMEOUT + TICK_LAG + 3 * stream.slowest, "three ticks, each late by that"


def test_who_looks_once_takes_the_clock_of_the_server_for_one_rotation_a_step(at: Stepped) -> None:
    """`acker tick --once` has no other clock to learn from how late it is."""
    url = at.server.url
    Trees(2).track(opened(url))
    at.step(TEN)
    assert opened(url).tick().rotated == 0
    at.step(TWO_DAYS)
    assert [opened(url).tick().rotated for _ in range(3)] == [1, 0, 0]
    at.step(-TWO_DAYS)
    assert opened(url).tick().rotated == 0
    at.step(0.0)
    assert opened(url).tick().rotated == 1
    assert opened(url).counters()["expired"] == 0


def test_writers_are_forgotten_after_their_time_when_the_clock_was_ahead(at: Stepped) -> None:
    ledger = opened(at.server.url)
    kept = [shard_key(ledger, 0, name).decode() for name in ("writers", "writers_before")]
    with redis.Redis.from_url(at.server.url) as raw:
        for step in (TWO_DAYS, 0.0):
            at.step(step)
            Trees(1).complete(ledger)
            ledger.tick(force=True)
        assert sum(map(raw.hlen, kept)) > 0
        for _ in range(2):
            age_writers(raw, ledger, int(HORIZON * 1000))
            ledger.tick(force=True)
        assert sum(map(raw.hlen, kept)) == 0


def test_the_history_goes_on_when_the_clock_was_ahead(at: Stepped) -> None:
    ledger = opened(at.server.url)

    def recorded(tracked: int) -> bool:
        """Takes a reading, until it is shown: readings of one second are one."""
        with redis.Redis.from_url(at.server.url) as raw:
            raw.delete(keys.turn("tested"))
        ledger.run(history.record(ledger.core))
        return ledger.run(history.latest(ledger.core, 1))[0].value("tracked") == tracked

    before: dict[Window, list[Reading]] = {}
    for tracked, step in ((5, 0.0), (10, TWO_DAYS), (15, 0.0)):
        at.step(step)
        Trees(5).track(ledger)
        wait_until(partial(recorded, tracked))
        before = before or {name: ledger.run(history.window(ledger.core, name)) for name in WINDOWS}
    for _ in WINDOWS:  # a call sets one of them right
        recorded(15)
    for name in WINDOWS:
        found = ledger.run(history.window(ledger.core, name))
        assert found[:2] == before[name][:2]
        assert found[-1].value("tracked") == 15
        assert abs(found[-1].at / 1000 - time.time()) < 30


@pytest.mark.slow
def test_rows_that_were_kept_while_the_clock_was_ahead_are_looked_after_in_their_time(at: Stepped) -> None:
    ledger = opened(at.server.url, message_timeout=TIMEOUT)
    at.step(TWO_DAYS)
    StreamSpout(ledger, HOW).write(lines(5))
    at.step(0.0)
    with redis.Redis.from_url(at.server.url) as raw:
        for shard in ledger.core.shards:
            raw.delete(shard.slabs, shard.message_ids, *(shard.bucket(number) for number in range(3)))
    wait_until(lambda: settler.recover(ledger) == 5, interval=0.1)
