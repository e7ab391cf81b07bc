"""The options of the data source: checked, typed, and all in the guide."""

import re
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import TopologyConfigError, UnknownTopology, ValidationError
from acker.inspect.operate.removal import remove
from acker.ledger.client import open_ledger
from acker.ledger.settings.config import SETTINGS
from acker.spark import bolt, letters
from acker.spark.options.options import OPTIONS, Options
from acker.store.client import TIMEOUTS, Store
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters.dead_letters import Filter
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers import guide

NEEDED = {"url": "redis://127.0.0.1:1/0", "topology": "t", "stream": "lines"}


def test_names_are_without_case_and_values_typed() -> None:
    given = {"MAX_ROWS": "7", "cluster": "True", "timeout": "1.5", "checkpointLocation": "/tmp/x"}
    options = Options.parse({**NEEDED, **given})
    assert (options.max_rows, options.cluster, options.timeout) == (7, True, 1.5)
    assert (options.subscription, options.compression, options.settings) == ("default", "lz4", {})


@pytest.mark.parametrize("seconds", TIMEOUTS)
def test_the_store_takes_any_timeout_that_the_option_takes(seconds: float) -> None:
    options = Options.parse({**NEEDED, "timeout": str(seconds)})
    assert Store(options.url, timeout=options.timeout).timeout == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"maxrows": "7"},
            "unknown option 'maxrows' (did you mean 'max_rows'?); known are url, topology, ",
        ),
        ({"max_rows": "0"}, "option max_rows: expected a whole number from 1 to 1,000,000,000,000, got '0'"),
        ({"timeout": "nan"}, "option timeout: expected a number from 0.1 to 300, got 'nan'"),
        ({"timeout": "600"}, "option timeout: expected a number from 0.1 to 300, got '600'"),
        ({"cluster": "yes"}, "option cluster: expected true or false, got 'yes'"),
        ({"wait_replicas": "17"}, "option wait_replicas: expected a whole number from 0 to 16, got '17'"),
        ({"wait_fsync": "true"}, "option wait_fsync: expected a whole number from 0 to 1, got 'true'"),
        ({"subscription": "a b"}, "subscription: expected 1 to 64 of"),
        ({"stream_max_age": "0.5"}, "option stream_max_age: expected a number from 1 to 2,419,200"),
    ],
)
def test_a_bad_one_is_refused_with_what_was_expected(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Options.parse({**NEEDED, **given})


def test_a_topology_is_made_with_the_settings_that_are_named(valkey_url: str) -> None:
    needed = {**NEEDED, "url": valkey_url}
    given = {"ackers": "2", "message_timeout": "45", "outcomes_kept": "77", "slab_limit": "512"}
    made = Options.parse({**needed, **given}).ledger().config
    assert (made.ackers, made.message_timeout, made.outcomes_kept, made.slab_limit) == (2, 45.0, 77, 512)
    assert Options.parse(needed).ledger().config == made
    with pytest.raises(TopologyConfigError, match="slab_limit is 512, asked for 256"):
        Options.parse({**needed, "slab_limit": "256"}).ledger()


def test_a_process_that_runs_on_follows_a_topology_that_was_made_anew(valkey_url: str) -> None:
    options = Options.parse({**NEEDED, "url": valkey_url})
    first = open_ledger(Store(valkey_url), "t", ackers=2)
    before = options.ledger()
    assert before.config.ackers == 2
    assert options.ledger() is before
    first.run(remove(first.config.name, force=True))
    with pytest.raises(UnknownTopology):
        options.ledger()
    open_ledger(Store(valkey_url), "t", ackers=5)
    assert options.ledger().config.ackers == 5


@pytest.mark.parametrize(
    "wrong", [{"stream": "x"}, {"Stream": "x"}, {"message_id": "id"}, {"stream_max_age": 60}, {"run": "x"}]
)
def test_what_would_have_no_effect_is_refused(wrong: dict[str, object]) -> None:
    [name] = wrong
    with pytest.raises(ValidationError, match=f"option {name.lower()}: only for"):
        bolt(url=NEEDED["url"], topology="t", name="split", **wrong)(lambda *_: None)


def test_the_missing_are_named() -> None:
    with pytest.raises(ValidationError, match="missing option topology, stream; known are url"):
        Options.parse({"url": NEEDED["url"]})


def test_the_guide_has_them_all_with_their_values_defaults_and_words() -> None:
    table = guide.table("spark/reference.md", "Options")
    assert table.keys() == OPTIONS.keys()
    assert {name: row for name, row in table.items() if name not in SETTINGS} == guide.listed(
        {name: one for name, one in OPTIONS.items() if name not in SETTINGS}
    )


def test_a_near_miss_of_what_dead_letters_are_filtered_by_is_reported() -> None:
    nobody: Any = None
    with pytest.raises(ValidationError, match=r"unknown option 'resaon' \(did you mean 'reason'\?\)"):
        letters.dead_letters(nobody, url="redis://store.invalid:1/0", topology="t", resaon="bad")


def test_a_replay_tells_of_letters_it_cannot_replay(url: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger = open_ledger(Store(url), "t", ackers=1)
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(
        pa.table({"id": [None, "b" * 2000]})
    )
    settler.settle(ledger)
    found = ledger.run(dead_letters.count(ledger.core))
    assert letters.replay(url=url, topology="t", matching=Filter()) == 0
    assert found == 2
    assert "2 dead letters cannot be replayed: dead letter " in caplog.text
