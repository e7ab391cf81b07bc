"""Any history of a commit: whatever is lost, repeated, taken over or given back, it takes effect once."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, histories, run_history
from tests.helpers.worlds.commits import CommitWorld, DropWorld
from tests.helpers.worlds.external_commits import ExternalWorld

SEEDS = st.integers(0, 99)


@HISTORIES
@given(history=histories(CommitWorld), cluster=st.booleans(), seed=SEEDS)
@example(history=[("first", 100), ("second", 100), ("other", 100)], cluster=False, seed=0)
def test_a_commit_takes_effect_once(valkey_url: str, history: list[Move], cluster: bool, seed: int) -> None:
    run_history(CommitWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(CommitWorld, backs=("back",)), seed=SEEDS)
def test_a_commit_acks_nothing_that_a_store_has_lost(valkey_url: str, history: list[Move], seed: int) -> None:
    run_history(CommitWorld, valkey_url, history, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(CommitWorld, backs=("part",)), seed=SEEDS)
def test_a_commit_acks_nothing_that_a_node_has_lost(valkey_url: str, history: list[Move], seed: int) -> None:
    run_history(CommitWorld, valkey_url, history, cluster=True, seed=seed)


@HISTORIES
@given(history=histories(DropWorld), cluster=st.booleans(), seed=SEEDS)
def test_what_is_published_while_a_subscription_is_dropped_is_there_for_the_others(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(DropWorld, valkey_url, history, cluster=cluster, seed=seed)


@HISTORIES
@given(history=histories(ExternalWorld), cluster=st.booleans(), seed=SEEDS)
def test_a_commit_of_external_rows_takes_effect_once(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(ExternalWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(ExternalWorld, backs=("back",)), seed=SEEDS)
def test_a_commit_of_external_rows_acks_nothing_that_a_store_has_lost(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(ExternalWorld, valkey_url, history, seed=seed)
