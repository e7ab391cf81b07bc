"""The scripts of external streams in step with their model: replies and states agree after each request."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, histories, run_history
from tests.helpers.worlds.shadowed import ShadowedWorld

pytestmark = [pytest.mark.damage]
SEEDS = st.integers(0, 99)
HALF = settings(HISTORIES, max_examples=HISTORIES.max_examples // 2)
ALL = [("source", 100), ("step", 100), ("other", 100), ("sink", 100)]


@HALF
@given(history=histories(ShadowedWorld), cluster=st.booleans(), seed=SEEDS)
@example(history=ALL, cluster=False, seed=0)
def test_the_scripts_do_what_the_model_does(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(ShadowedWorld, valkey_url, history, cluster=cluster, seed=seed)


@HALF
@given(history=histories(ShadowedWorld, backs=("back", "part")), seed=SEEDS)
def test_a_store_that_was_set_back_does_what_the_model_does(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(ShadowedWorld, valkey_url, history, cluster=True, seed=seed)
