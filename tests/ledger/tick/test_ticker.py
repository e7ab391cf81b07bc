"""The ticker: on time, for every topology, and whatever happens to the store or to other tickers."""

import logging
import time
from collections.abc import Callable

import pytest
import redis

from acker.embedded import EmbeddedServer
from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.calls.calls import Ticked
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick import tick, ticker
from acker.ledger.tick.keeper import due
from acker.ledger.tick.ticker import Ticker
from acker.store import keys
from acker.store.client import Store
from tests.helpers.builders.tickers import running
from tests.helpers.models.ledger_state import pass_time
from tests.helpers.servers.servers import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.cluster(slow=True)]


def opened(url: str, name: str = "ticked", message_timeout: float = 1.0, ackers: int = 2) -> Ledger:
    return open_ledger(Store(url), name, ackers=ackers, message_timeout=message_timeout)


def track(ledger: Ledger, count: int = 5) -> None:
    slabs = [NewSlab(ids.new_anchors(1), ids.new_ids(1), [b"m"]) for _ in range(count)]
    assert set(ledger.track_slabs(slabs, spout="s")) == {"A"}


def rotations(ledger: Ledger) -> int:
    return ledger.counters()["rotations"]


def test_a_round_ticks_what_is_due_and_nothing_else(url: str, raw: "redis.Redis") -> None:
    soon, late = opened(url, "soon", 60.0), opened(url, "late", 60.0)
    reported: list[tuple[str, Ticked]] = []
    one = Ticker(Store(url), on_tick=lambda name, ticked: reported.append((name, ticked)))
    one.step()  # the shards' clocks begin
    assert (rotations(soon), rotations(late), reported) == (0, 0, [])
    pass_time(raw, soon, 30_000)
    Ticker(Store(url), on_tick=lambda name, ticked: reported.append((name, ticked))).step()
    assert (rotations(soon), rotations(late)) == (2, 0)
    assert reported == [("soon", Ticked(rotated=2))]


def test_no_function_ends_the_ticks(url: str, raw: "redis.Redis", caplog: pytest.LogCaptureFixture) -> None:
    async def later() -> None: ...

    def bad(name: str, _: Ticked) -> object:
        if name == "a":
            raise SystemExit(3)
        return later()

    ledgers = [opened(url, name, 60.0) for name in ("a", "b")]
    Ticker(Store(url)).step()  # the shards' clocks begin
    for ledger in ledgers:
        pass_time(raw, ledger, 30_000)
    Ticker(Store(url), on_tick=bad).step()
    assert [rotations(ledger) for ledger in ledgers] == [2, 2]
    assert "topology a was ticked, and on_tick has raised: SystemExit: 3" in caplog.text
    assert "on_tick returned an unfinished coroutine" in caplog.text


def test_a_round_tells_when_the_next_one_is_due(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url, "timed", 4.0)
    one = Ticker(Store(url), ["timed"])
    assert 0 < one.step() <= 2.0
    pass_time(raw, ledger, 1_500)
    assert Ticker(Store(url), ["timed"]).step() < 0.6
    opened(url, "rare", 86_400.0)
    assert Ticker(Store(url), ["rare"]).step() == pytest.approx(ticker.LOOK_EVERY, abs=0.5)
    assert Ticker(Store(url)).step() <= ticker.FIND_EVERY


def test_trees_expire_in_their_time_under_a_ticker(url: str) -> None:
    ledger = opened(url)
    with running(Ticker(Store(url))):
        track(ledger)
        start = time.monotonic()
        wait_until(lambda: ledger.counters()["expired"] == 5, timeout=60)
    assert time.monotonic() - start >= 1.0


def test_topologies_made_later_are_ticked_too(url: str) -> None:
    with running(Ticker(Store(url))):
        first = opened(url, "first")
        wait_until(lambda: rotations(first) >= 2, timeout=60)
        second = opened(url, "second")
        wait_until(lambda: rotations(second) >= 2, timeout=60)


def test_only_the_topologies_named_are_ticked(url: str) -> None:
    named, other = opened(url, "named"), opened(url, "other")
    with running(Ticker(Store(url), ["named"])):
        wait_until(lambda: rotations(named) >= 4, timeout=60)
    assert rotations(other) == 0


def test_tickers_side_by_side_rotate_as_one(url: str) -> None:
    start = time.monotonic()
    ledger = opened(url, message_timeout=2.0)
    track(ledger, 50)
    with running(*(Ticker(Store(url)) for _ in range(4))):
        wait_until(lambda: rotations(ledger) >= 8, timeout=60)
        took = time.monotonic() - start
    # Two shards, a tick a second each: eight rotations are four ticks, and the first is due after a second.
    assert took > 3.9
    counters = ledger.counters()
    assert counters["expired"] == 50
    assert counters["rotations"] <= 2 * (took + 2)


def test_what_a_dead_ticker_left_is_drained(url: str) -> None:
    ledger = opened(url, message_timeout=60.0)
    track(ledger, 100)
    for _ in range(3):
        ledger.run(tick.rotate(ledger.core, force=True))
    Ticker(Store(url)).step()
    assert ledger.counters()["expired"] == 100


def test_a_long_drain_lets_other_topologies_tick(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticker, "PIECE", 10)
    for name in ("many", "more"):
        ledger = opened(url, name, 60.0)
        track(ledger, 200)
        for _ in range(3):
            ledger.run(tick.rotate(ledger.core, force=True))
    order: list[str] = []
    one = Ticker(Store(url), on_tick=lambda name, _: order.append(name))
    assert one.step() == 0.0
    for _ in range(100):
        if one.step() > 0:
            break
    assert len(set(order[:2])) == 2
    assert [opened(url, name, 60.0).counters()["expired"] for name in ("many", "more")] == [200, 200]


def test_a_topology_made_anew_is_ticked_as_it_is_now(url: str, raw: "redis.Redis") -> None:
    ticker = Ticker(Store(url), ["again"])
    opened(url, "again", 1.0, ackers=1)
    ticker.step()
    raw.flushall()
    ledger = opened(url, "again", 1.0, ackers=3)

    def step() -> bool:
        ticker.step()
        return rotations(ledger) >= 3

    wait_until(step, timeout=60)
    assert {shard.clock for shard in ledger.core.shards} <= set(raw.scan_iter())


def test_a_topology_in_trouble_does_not_hold_up_others(
    url: str, raw: "redis.Redis", caplog: pytest.LogCaptureFixture
) -> None:
    opened(url, "broken", 60.0)
    good = opened(url, "good", 60.0)
    raw.hset(keys.config("broken"), "schema", 99)
    one = Ticker(Store(url), ["absent", "broken", "good"])
    with caplog.at_level(logging.ERROR, "acker.ledger.tick.ticker"):
        for _ in range(3):
            assert one.step() <= ticker.FIND_EVERY
    assert due_of(good) <= 30
    assert len([record for record in caplog.records if "broken" in record.message]) == 1
    assert len([record for record in caplog.records if "absent" in record.message]) == 1


def due_of(ledger: Ledger) -> float:
    left = ledger.run(due(ledger.core))
    assert left is not None
    assert left > 0  # its clock began, so it was looked at
    return left


def test_a_store_that_goes_away_is_waited_for(
    new_server: Callable[..., EmbeddedServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()
    ledger = open_ledger(Store(server.url, timeout=5.0), "kept", ackers=1, message_timeout=1.0)
    one = Ticker(Store(server.url, timeout=0.2))
    with running(one):
        wait_until(lambda: rotations(ledger) >= 1, timeout=60)
        server.kill()
        wait_until(lambda: "no ticks for now" in caplog.text, timeout=60)
        server.restart()
        before = rotations(ledger)
        wait_until(lambda: rotations(ledger) >= before + 2, timeout=60)
        wait_until(lambda: "no ticks for now: over after" in caplog.text, timeout=60)
    said = [record.getMessage() for record in caplog.records if "no ticks for now" in record.getMessage()]
    # A busy machine does not always answer within 0.2 s, either.
    assert ["over after" in one for one in said] == [number % 2 == 1 for number in range(len(said))]


def test_a_misconfigured_store_is_waited_for(
    new_server: Callable[..., EmbeddedServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server(options={"maxmemory-policy": "allkeys-lru"})
    with running(Ticker(Store(server.url))):
        wait_until(lambda: "no ticks for now" in caplog.text, timeout=60)


def test_a_ticker_stops_when_it_is_reported_to(url: str) -> None:
    opened(url, "slow", 86_400.0)
    start = time.monotonic()
    with running(Ticker(Store(url))):
        pass
    assert time.monotonic() - start < 5


def test_names_are_checked(url: str) -> None:
    with pytest.raises(ValidationError):
        Ticker(Store(url), ["no name"])
