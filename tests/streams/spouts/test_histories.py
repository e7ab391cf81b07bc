"""Any history of a spout's rows: whoever dies while they are written, settled or replayed, they end once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, histories, run_history
from tests.helpers.worlds.settles import SettleWorld


@HISTORIES
@given(history=histories(SettleWorld), cluster=st.booleans(), seed=st.integers(0, 99))
def test_a_row_has_its_attempts_and_ends_once(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(SettleWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(SettleWorld, backs=("back",)), seed=st.integers(0, 99))
def test_a_row_that_a_store_still_has_ends_where_that_was_set_back(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(SettleWorld, valkey_url, history, seed=seed)
