"""Settings of a topology that is there: what can change, when, and who follows."""

from typing import Any

import pytest

from acker.errors import (
    StoreError,
    TopologyConfigError,
    TopologyInUse,
    UnknownTopology,
    ValidationError,
)
from acker.inspect.operate.configure import configure
from acker.inspect.operate.removal import remove
from acker.ledger import ids
from acker.ledger.client import Ledger, follow, open_ledger
from acker.ledger.settings.config import Settings, TopologyConfig
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick.ticker import Ticker
from acker.store.client import Store
from tests.helpers.builders.streaming import interleave
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "shop", ackers=2)


def track(ledger: Ledger) -> None:
    assert ledger.track_slabs([NewSlab(ids.new_anchors(1), ids.new_ids(1), [b"m"])], spout="s") == ["A"]


def stored(ledger: Ledger) -> TopologyConfig:
    return open_ledger(ledger.store, "shop", create=False).config


def test_bounds_change_while_trees_are_in_flight_and_for_all_that_open_the_topology(ledger: Ledger) -> None:
    track(ledger)
    asked = Settings(high_water_mark=4, downtime=5, waiting_bytes=0, slab_limit=7, outcomes_kept=3)
    found = ledger.run(configure("shop", asked))
    assert found == stored(ledger) == follow(ledger, ledger.store, "shop").config
    assert {name: found.settings[name] for name in asked} == asked  # type: ignore[literal-required]
    assert found.message_timeout == 30.0
    assert ledger.run(configure("shop", Settings())) == found
    track(again := follow(ledger, ledger.store, "shop"))
    assert again.track_slabs([NewSlab(ids.new_anchors(3), ids.new_ids(3), [b"m"] * 3)], spout="s") == ["R"]


def test_replicas_that_a_server_lacks_are_not_waited_for(url: str) -> None:
    ledger = open_ledger(Store(url), "shop", ackers=2)  # its time is 10 s, and not used up: nothing was sent
    with pytest.raises(StoreError, match=r"wait_replicas: expected at most [01], .* got 9"):
        ledger.run(configure("shop", Settings(wait_replicas=9, downtime=9)))
    assert stored(ledger) == ledger.config
    track(follow(ledger, ledger.store, "shop"))


def test_the_message_timeout_changes_when_nothing_is_in_flight_and_the_ticker_follows(ledger: Ledger) -> None:
    one = Ticker(ledger.store, ["shop"])
    assert one.step() > 1.0
    ledger.run(configure("shop", Settings(message_timeout=1.5)))
    assert stored(ledger).message_timeout == 1.5
    assert Ticker(ledger.store, ["shop"]).step() < 1.0
    track(ledger)
    with pytest.raises(
        TopologyInUse, match=r"has 1 trees in flight .* changes from 1.5 to 60 s only without any"
    ):
        ledger.run(configure("shop", Settings(message_timeout=60, downtime=9)))
    assert (stored(ledger).message_timeout, stored(ledger).downtime) == (1.5, 86400)
    ledger.run(configure("shop", Settings(message_timeout=1.5, downtime=9)))
    assert stored(ledger).downtime == 9


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"ackers": 3}, "ackers: topology 'shop' has 2 shards for its life, got 3"),
        ({"downtime": -1}, "downtime: expected int from 0 to 2,419,200, got -1"),
        ({"high_water_mark": 1}, "high_water_mark: expected int from 2 to"),
        ({"slab_limit": "7"}, "slab_limit: expected int"),
    ],
)
def test_impossible_settings_are_refused_unchanged(ledger: Ledger, asked: Settings, said: str) -> None:
    before = stored(ledger)
    with pytest.raises(ValidationError, match=said):
        ledger.run(configure("shop", asked | Settings(outcomes_kept=9)))
    assert stored(ledger) == before


def go_on(ledger: Ledger, going: Any, replies: Any) -> None:
    while True:
        replies = ledger.store.send(going.send(replies))


def test_two_at_once_change_all_or_nothing(ledger: Ledger) -> None:
    both = (Settings(downtime=one, slab_limit=one, outcomes_kept=one) for one in (1, 2))
    interleave(ledger, *(configure("shop", asked) for asked in both))
    found = stored(ledger)
    assert found.downtime == found.slab_limit == found.outcomes_kept


def test_a_topology_that_is_removed_meanwhile_is_not_made_again(ledger: Ledger) -> None:
    going = configure("shop", Settings(downtime=1))
    requests = next(going)
    replies = ledger.store.send(requests)
    ledger.run(remove(ledger.config.name))
    with pytest.raises(UnknownTopology):
        go_on(ledger, going, replies)
    with raw_client(ledger.store.url) as client:
        assert not client.exists("acker:{shop}:config")
    with pytest.raises(UnknownTopology, match="no topology 'none'"):
        ledger.run(configure("none", Settings(downtime=1)))


def test_who_asks_for_another_setting_is_reported_the_command_that_changes_it(ledger: Ledger) -> None:
    with pytest.raises(TopologyConfigError) as raised:
        open_ledger(ledger.store, "shop", message_timeout=60.0, downtime=7, ackers=4)
    assert "run `acker configure shop --set message_timeout=60.0 --set downtime=7`" in str(raised.value)
    assert "The number of ackers is for the life of a topology" in str(raised.value)
    with pytest.raises(TopologyConfigError) as raised:
        open_ledger(ledger.store, "shop", slab_limit=7)
    assert "ackers" not in str(raised.value)
