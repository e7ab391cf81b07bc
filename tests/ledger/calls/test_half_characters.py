"""Half a pair of surrogates, which a str may hold and UTF-8 may not: refused before anything has changed."""

from collections.abc import Callable

import pytest

from acker import Topology, ValidationError
from acker.inspect.trees import pages
from acker.ledger.calls import messages
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from tests.helpers.servers.servers import Raw

HALF = "m\ud800"

REFUSED: dict[str, Callable[[Topology], object]] = {
    "emit": lambda topology: topology.spout("s").emit(HALF),
    "emit_many": lambda topology: topology.spout("s").emit_many(["m", HALF]),
    "track": lambda topology: topology.ledger.track([1, 2], [3, 4], ["m", HALF], spout="s"),
    "find": lambda topology: topology.ledger.run(pages.find(topology.ledger.core, HALF)),
    "spout": lambda topology: topology.spout(HALF),
    "key": lambda topology: topology.ledger.run(
        messages.send(topology.ledger.core, messages.Messages(acks=[(5, 3)]), HALF)
    ),
    "topology": lambda topology: Topology(topology.ledger.store.url, HALF),
    "password": lambda topology: Topology(topology.ledger.store.url.replace("//", f"//:{HALF}@"), "t"),
    "host": lambda _: Topology(f"redis://{HALF}:1", "t"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_half_a_character_is_refused_before_any_change(name: str, valkey_url: str, valkey_raw: Raw) -> None:
    with Topology(valkey_url, "t", ackers=1) as topology:
        topology.spout("s")
        before = {key: valkey_raw.dump(key) for key in valkey_raw.scan_iter()}
        with pytest.raises(ValidationError) as refused:
            REFUSED[name](topology)
        assert (r"m\ud800" in str(refused.value)) == (name != "password")
        assert str(refused.value).isprintable()
        assert topology.outbox.unsent == 0
        topology.flush()
        assert {key: valkey_raw.dump(key) for key in valkey_raw.scan_iter()} == before


def test_half_a_character_in_a_reason_or_in_a_name_that_is_only_shown_loses_nothing(valkey_url: str) -> None:
    with Topology(valkey_url, "t", ackers=1) as topology:
        spout = topology.spout("s")
        topology.bolt("b").fail(spout.emit("m")[0], HALF)
        topology.flush()
        assert [outcome.reason for outcome in spout.outcomes(timeout=30.0)] == ["m?"]
        core = topology.ledger.core
        topology.ledger.run(step_registry.register(core, Step("b", "bolt", HALF, HALF)))
        assert [step.name for step in topology.ledger.run(step_registry.steps(core))] == ["b", "b"]
