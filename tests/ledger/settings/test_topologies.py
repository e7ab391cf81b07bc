"""A topology's configuration, stored at first use and compared after that."""

import pickle

import pytest
import redis

from acker.errors import (
    AckerError,
    TopologyConfigError,
    UnknownTopology,
    ValidationError,
)
from acker.ledger.client import open_ledger
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.settings.suggestions import meant
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees, opened, reported

pytestmark = pytest.mark.cluster(slow=True)


def test_the_configuration_is_stored_at_first_use_and_taken_by_who_asks_for_none(url: str) -> None:
    first = opened(url, "t", ackers=2, message_timeout=2.5, high_water_mark=7, slab_limit=3, outcomes_kept=9)
    assert first.config == TopologyConfig("t", 2, 2.5, 7, 3, 9)
    assert open_ledger(Store(url), "t").config == first.config
    assert open_ledger(Store(url), "t", message_timeout=2.5004, high_water_mark=7).config == first.config
    assert open_ledger(Store(url), "t", create=False).config == first.config


def test_a_topology_that_was_stored_before_a_setting_was_known_has_its_default(
    url: str, raw: "redis.Redis"
) -> None:
    opened(url, "t")
    raw.hdel("acker:{t}:config", "outcomes_kept")
    assert open_ledger(Store(url), "t").config.outcomes_kept == 10_000


def test_other_values_are_an_error_that_lists_each_and_changes_nothing(url: str, raw: "redis.Redis") -> None:
    opened(url, "t", ackers=2, high_water_mark=3)
    before = raw.hgetall("acker:{t}:config")
    with pytest.raises(TopologyConfigError) as caught:
        open_ledger(Store(url), "t", ackers=4, message_timeout=60, high_water_mark=3, slab_limit=9)
    assert caught.value.differences == {
        "ackers": (2, 4),
        "message_timeout": (30.0, 60),
        "slab_limit": (1024, 9),
    }
    for said in ("ackers is 2, asked for 4", "message_timeout is 30.0, asked for 60", "slab_limit"):
        assert said in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).differences == caught.value.differences
    assert raw.hgetall("acker:{t}:config") == before


def test_a_topology_of_another_version_is_an_error(url: str, raw: "redis.Redis") -> None:
    opened(url, "t")
    raw.hset("acker:{t}:config", "schema", "99")
    with pytest.raises(TopologyConfigError, match=r"schema is 99.*Another version .* name another topology"):
        open_ledger(Store(url), "t")


def test_a_topology_that_is_not_there_is_an_error_and_is_not_made(url: str, raw: "redis.Redis") -> None:
    with pytest.raises(UnknownTopology, match="'t'"):
        open_ledger(Store(url), "t", create=False)
    with pytest.raises(ValidationError):
        open_ledger(Store(url), "t", ackers=4, high_water_mark=3)
    assert not raw.keys("*")


def test_a_topology_has_at_most_64_spouts(url: str) -> None:
    ledger, other = opened(url), opened(url)
    for number in range(64):
        ledger.register_spout(f"spout-{number}")
    other.register_spout("spout-9")
    for client in (ledger, other):
        with pytest.raises(AckerError, match="64 spouts"):
            client.register_spout("one-too-many")
    trees = Trees(2).track(other, "spout-63")
    trees.complete(ledger)
    assert len(reported(ledger, trees, spout="spout-63")) == 2


def test_a_name_is_not_taken_for_a_slip_of_itself() -> None:
    """It may have come, or gone, since it was looked for."""
    assert meant("words", ["words"]) == ""
    assert meant("word", ["words", "word"]) == " (did you mean 'words'?)"
