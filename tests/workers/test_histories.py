"""Any history of workers: whoever dies, or is taken for dead, each row is worked on and comes out once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, histories, run_history
from tests.helpers.worlds.claims import ClaimWorld


@HISTORIES
@given(history=histories(ClaimWorld), cluster=st.booleans(), seed=st.integers(0, 99))
def test_what_workers_claim_is_committed_once(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(ClaimWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(ClaimWorld, backs=("back",)), seed=st.integers(0, 99))
def test_what_workers_claim_is_acked_by_a_store_that_was_set_back_only_where_it_was_made(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(ClaimWorld, valkey_url, history, seed=seed)
