"""Any history of external streams: no false ack, and no record is lost but to a store that lost it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, histories, run_history
from tests.helpers.worlds.external import ExternalWorld

SEEDS = st.integers(0, 99)


@HISTORIES
@given(history=histories(ExternalWorld), cluster=st.booleans(), seed=SEEDS)
@example(history=[("source", 100), ("step", 100), ("other", 100), ("sink", 100)], cluster=False, seed=0)
def test_each_record_is_acked_whatever_dies_or_is_sent_again(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(ExternalWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(ExternalWorld, backs=("back",)), seed=SEEDS)
def test_no_record_is_acked_that_a_store_has_lost(valkey_url: str, history: list[Move], seed: int) -> None:
    run_history(ExternalWorld, valkey_url, history, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(ExternalWorld, backs=("part",)), seed=SEEDS)
def test_no_record_is_acked_that_a_node_has_lost(valkey_url: str, history: list[Move], seed: int) -> None:
    run_history(ExternalWorld, valkey_url, history, cluster=True, seed=seed)
