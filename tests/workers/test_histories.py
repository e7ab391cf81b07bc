"""Any history of workers: whichever dies, or is taken for dead, each row is worked on and comes out once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, examples, histories, run_history
from tests.helpers.worlds.claims import ClaimWorld, OnceWorld


@HISTORIES
@given(history=histories(ClaimWorld), cluster=st.booleans(), seed=st.integers(0, 99))
@examples(
    [("one", "begin_commit"), ("expire", 1), ("two", 500)],
    [("one", "publish"), ("expire", 1), ("two", 500), ("one", "lose")],
    cluster=True,
    seed=0,
)
def test_what_workers_claim_is_committed_once(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(ClaimWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(ClaimWorld, backs=("back",)), seed=st.integers(0, 99))
@examples([("one", "chain"), ("back", 3), ("two", 500)], [("one", 500), ("back", 9), ("two", 500)], seed=0)
def test_what_workers_claim_comes_out_once_of_a_store_that_was_set_back(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(ClaimWorld, valkey_url, history, seed=seed)


@HISTORIES
@given(history=histories(OnceWorld), cluster=st.booleans(), seed=st.integers(0, 99))
@examples([("one", 5), ("two", 3), ("expire", 1)], cluster=False, seed=0)
def test_workers_that_begin_a_row_once_begin_none_again(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(OnceWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(OnceWorld, backs=("back",)), seed=st.integers(0, 99))
def test_rows_that_are_begun_once_come_out_once_of_a_store_that_was_set_back(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(OnceWorld, valkey_url, history, seed=seed)
