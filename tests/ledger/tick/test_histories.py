"""Any history of tickers: whichever dies, pauses or is overtaken, trees expire once, for true reasons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, examples, histories, run_history
from tests.helpers.worlds.ticks import TickWorld


@HISTORIES
@given(history=histories(TickWorld), seed=st.integers(0, 99))
@examples(
    [],
    [("tick", "drain"), ("tick", "die"), ("tick_too", 500)],
    [("tick", "drain"), ("rotate", 3), ("tick_too", 500)],
    seed=0,
)
def test_trees_expire_once_for_true_reasons(valkey_url: str, history: list[Move], seed: int) -> None:
    run_history(TickWorld, valkey_url, history, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(TickWorld, backs=("back",)), seed=st.integers(0, 99))
def test_trees_expire_once_for_true_reasons_where_the_store_is_set_back(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(TickWorld, valkey_url, history, seed=seed)
