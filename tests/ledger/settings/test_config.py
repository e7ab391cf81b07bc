"""Names and values of a topology, and its configuration as it is stored."""

import pickle
from typing import get_type_hints

import pytest
import redis

from acker.errors import AckerError, TopologyConfigError, UnknownTopology, ValidationError
from acker.ledger.client import open_ledger
from acker.ledger.settings import config
from acker.ledger.settings.config import Settings, TopologyConfig
from acker.ledger.settings.suggestions import meant
from acker.store.client import Store
from tests.helpers import guide
from tests.helpers.builders.ledgers import Trees, opened, reported


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "x" * 64, "...", ".a", "..a", "-"])
def test_names_of_1_to_64_letters_digits_and_marks_are_taken(name: str) -> None:
    assert TopologyConfig(name).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 65, "a b", "a:b", "a{b}", "ü", "a\n", None, 7, b"a"])
def test_other_names_are_an_error(name: object) -> None:
    with pytest.raises(ValidationError, match="topology: expected 1 to 64"):
        TopologyConfig(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "lowest", "highest"),
    [
        ("ackers", 0, 1024),
        ("message_timeout", 1.0, 604800.0),
        ("high_water_mark", 4, 10**9),
        ("slab_limit", 1, 4096),
        ("outcomes_kept", 1, 100_000),
        ("waiting_bytes", 0, 1 << 40),
        ("stamp_ttl", 600, 7 * 86400),
        ("external_waiting_bytes", 0, 1 << 40),
        ("downtime", 0, 28 * 86400),
        ("wait_replicas", 0, 16),
        ("wait_fsync", 0, 1),
    ],
)
def test_each_setting_has_its_range(setting: str, lowest: float, highest: float) -> None:
    for value in (lowest, highest):
        assert getattr(TopologyConfig("t", **{setting: value}), setting) == value  # type: ignore[arg-type]
    out = [lowest - 1, highest + 1, "1", None, True, float("nan"), float("inf"), 10**400, -(10**400)]
    for wrong in out:
        with pytest.raises(ValidationError, match=f"{setting}: expected"):
            TopologyConfig("t", **{setting: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [name for name, one in config.SETTINGS.items() if one.kind is int])
def test_counts_are_whole_numbers(setting: str) -> None:
    with pytest.raises(ValidationError, match=setting):
        TopologyConfig("t", **{setting: 5.0})  # type: ignore[arg-type]


def test_each_setting_can_be_asked_for_by_its_name() -> None:
    asked = get_type_hints(Settings)
    kept = get_type_hints(TopologyConfig)
    assert list(asked) == list(config.SETTINGS) == list(TopologyConfig("t").settings)
    assert asked == {setting: kept[setting] | None for setting in asked}
    assert not set(kept) - set(asked) - {"name", "schema"}


def test_the_guide_lists_each_setting_with_its_values_default_and_words() -> None:
    assert guide.table("changing.md", "Settings") == guide.listed(config.SETTINGS)


def test_what_is_asked_for_is_checked_and_what_is_left_open_left_out() -> None:
    assert config.check_settings({"ackers": 2, "slab_limit": None}) == {"ackers": 2}
    with pytest.raises(ValidationError, match="ackers: expected int from 0 to 1,024, got 1025"):
        config.check_settings({"ackers": 1025})
    for unknown in ("acker", "schema", "name"):
        with pytest.raises(TypeError, match=f"'{unknown}' is no setting of a topology.*; known are ackers, "):
            config.check_settings({unknown: None})  # type: ignore[misc]


def test_each_shard_may_hold_a_tree_at_least() -> None:
    assert TopologyConfig("t", ackers=8, high_water_mark=8).shard_limit == 1
    with pytest.raises(ValidationError, match="high_water_mark"):
        TopologyConfig("t", ackers=8, high_water_mark=7)


@pytest.mark.parametrize("timeout", [1.0, 1.001, 30, 12.3456, 604800])
def test_two_ticks_take_the_message_timeout_at_least(timeout: float) -> None:
    made = TopologyConfig("t", message_timeout=timeout)
    assert made.timeout_ms <= 2 * made.tick_ms <= made.timeout_ms + 1
    assert abs(made.timeout_ms - timeout * 1000) <= 0.5


@pytest.mark.parametrize(("ackers", "mark"), [(1, 10), (3, 10), (4, 10), (0, 10), (7, 10**9)])
def test_all_shards_together_never_hold_more_than_the_high_water_mark(ackers: int, mark: int) -> None:
    made = TopologyConfig("t", ackers=ackers, high_water_mark=mark)
    assert max(1, ackers) * made.shard_limit <= mark < max(1, ackers) * (made.shard_limit + 1)
    assert made.slab_trees <= made.shard_limit


@pytest.mark.parametrize(("timeout", "limit"), [(1, 5), (20, 5), (30, 7.5), (240, 60), (604800, 60)])
def test_a_tick_may_be_late_by_a_bounded_part_of_its_period(timeout: float, limit: float) -> None:
    assert TopologyConfig("t", message_timeout=timeout).tick_limit == limit


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(AttributeError):
        TopologyConfig("t").ackers = 7  # type: ignore[misc]


def test_message_ids_are_bytes_or_text_of_at_most_a_kilobyte() -> None:
    assert config.check_message_id("ü") == "ü".encode()
    assert config.check_message_id(b"\xff" * 1024) == b"\xff" * 1024
    assert config.check_message_id(b"") == b""
    for wrong in ("ü" * 513, b"m" * 1025, 7, None, bytearray(b"m")):
        with pytest.raises(ValidationError, match="message id"):
            config.check_message_id(wrong)


def test_reasons_are_text_of_at_most_a_kilobyte() -> None:
    assert config.check_reason("ü" * 512) == ("ü" * 512).encode()
    for wrong in ("ü" * 513, b"r", None):
        with pytest.raises(ValidationError, match="reason"):
            config.check_reason(wrong)


@pytest.mark.parametrize(
    "text", ["", "short", "m" * 1024, "m" * 5000, "ü" * 700, "a" + "\U0001f600" * 300, "\ud800"]
)
def test_a_reason_that_is_cut_is_text_within_the_bound(text: str) -> None:
    cut = config.bounded_reason(text)
    assert len(config.check_reason(cut)) <= 1024
    assert cut == text or cut.endswith("...") or "\ud800" in text
    assert cut.removesuffix("...").replace("?", "") in text or "\ud800" in text


def test_a_validation_error_is_a_value_error_of_acker() -> None:
    assert issubclass(ValidationError, ValueError)
    assert issubclass(ValidationError, AckerError)


@pytest.mark.cluster(slow=True)
def test_the_configuration_is_stored_at_first_use_and_taken_by_who_asks_for_none(url: str) -> None:
    first = opened(url, "t", ackers=2, message_timeout=2.5, high_water_mark=7, slab_limit=3, outcomes_kept=9)
    assert first.config == TopologyConfig("t", 2, 2.5, 7, 3, 9)
    assert open_ledger(Store(url), "t").config == first.config
    assert open_ledger(Store(url), "t", message_timeout=2.5004, high_water_mark=7).config == first.config
    assert open_ledger(Store(url), "t", create=False).config == first.config


@pytest.mark.cluster(slow=True)
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


@pytest.mark.cluster(slow=True)
def test_a_topology_of_another_version_is_an_error(url: str, raw: "redis.Redis") -> None:
    opened(url, "t")
    raw.hset("acker:{t}:config", "schema", "99")
    with pytest.raises(TopologyConfigError, match=r"schema is 99.*Another version .* name another topology"):
        open_ledger(Store(url), "t")


@pytest.mark.cluster(slow=True)
def test_a_topology_that_is_not_there_is_an_error_and_is_not_made(url: str, raw: "redis.Redis") -> None:
    with pytest.raises(UnknownTopology, match="'t'"):
        open_ledger(Store(url), "t", create=False)
    with pytest.raises(ValidationError):
        open_ledger(Store(url), "t", ackers=4, high_water_mark=3)
    assert not raw.keys("*")


@pytest.mark.cluster(slow=True)
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


@pytest.mark.cluster(slow=True)
def test_a_name_is_not_taken_for_a_slip_of_itself() -> None:
    """It may have come, or gone, since it was looked for."""
    assert meant("words", ["words"]) == ""
    assert meant("word", ["words", "word"]) == " (did you mean 'words'?)"
