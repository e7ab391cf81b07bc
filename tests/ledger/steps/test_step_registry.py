"""Steps tell the topology about themselves."""

from dataclasses import replace
from socket import gethostname

import pytest
import redis

from acker.collectors.topology import Topology
from acker.errors import ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.steps import registration, step_registry
from acker.ledger.steps.step_registry import MOST_STEPS, Step
from acker.store.client import Store

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t")


def test_steps_are_listed_with_the_one_seen_last_first(ledger: Ledger, url: str) -> None:
    split = Step(
        "split", "bolt", "app-1", "demo", "q1", "splitting", 7, reads=("lines",), emits=("more", "words")
    )
    for step in (
        split,
        Step("nightly", "job", "app-2"),
        Step("split", "bolt", "app-1", query_id="q2"),
        split,
    ):
        ledger.run(step_registry.register(ledger.core, step))
    with Topology(url, "t") as topology:
        steps = topology.steps()
    assert [(step.name, step.query_id) for step in steps] == [
        ("split", "q1"),
        ("split", "q2"),
        ("nightly", ""),
    ]
    assert steps[0].last_seen is not None
    assert replace(steps[0], last_seen=None, age=None) == split


def test_steps_are_bounded_in_number_and_size(ledger: Ledger, raw: "redis.Redis") -> None:
    streams = tuple(f"s{n:03}" for n in range(100))
    for number in range(MOST_STEPS + 3):
        ledger.run(
            step_registry.register(
                ledger.core, Step("s", "bolt", query_id=str(number), query="x" * 999, reads=streams)
            )
        )
    steps = ledger.run(step_registry.steps(ledger.core))
    assert len(steps) == MOST_STEPS
    assert max(int(step.query_id) for step in steps) == MOST_STEPS + 2
    assert len(steps[0].query) == 200
    assert steps[0].reads == streams[:32]


def test_bad_names_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ValidationError, match="step: expected"):
        ledger.run(step_registry.register(ledger.core, Step("a b", "bolt")))


def test_bolts_in_plain_python_are_steps_like_others(url: str) -> None:
    with Topology(url, "t", linger=15.0) as topology:
        spout, split, store = topology.spout("s"), topology.bolt("split"), topology.bolt("store")
        for [record] in [spout.emit(name) for name in "abc"]:
            [word] = split.emit(record)
            split.ack(record)
            store.ack(word)
        [bad] = spout.emit("d")
        topology.flush()
        store.fail(bad, "no")
        topology.flush()
        found = {step.name: (step.kind, step.application_id) for step in topology.steps()}
        done = topology.step_totals()
    assert found == {"split": ("bolt", gethostname()), "store": ("bolt", gethostname())}
    assert [(one.step, one.tuples, one.failed) for one in done] == [("split", 3, 0), ("store", 3, 1)]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/srv/jobs/split.py", "split.py"),
        ("/srv/jobs/split/__main__.py", "split"),
        ("-c", "python"),
        ("", "python"),
    ],
)
def test_a_program_is_named_by_its_file_or_its_package(path: str, name: str) -> None:
    assert registration.program_name(path) == name
