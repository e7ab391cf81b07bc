"""Any history of a spout's rows: whichever process dies meanwhile, each row ends once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, examples, histories, run_history
from tests.helpers.worlds.settles import SettleWorld

SEEDS = st.integers(0, 99)


@HISTORIES
@given(history=histories(SettleWorld), cluster=st.booleans(), seed=SEEDS)
@examples(
    [("work", 1), ("settle", "publish"), ("settle_too", 500), ("work", 1), ("day", 1)],
    [("work", 1), ("settle", "settle"), ("settle", "die"), ("settle_too", 500)],
    [("track", "track"), ("day", 1), ("track", "lose"), ("again", "track"), ("again", "stage")],
    [("write", "publish"), ("again", "keep_rows"), ("work", 1), ("settle", 500), ("day", 1)],
    cluster=True,
    seed=0,
)
def test_a_row_has_its_attempts_and_ends_once(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(SettleWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(SettleWorld, backs=("back",)), seed=SEEDS)
def test_a_row_that_a_store_still_has_ends_where_that_was_set_back(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(SettleWorld, valkey_url, history, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(SettleWorld, backs=("part",)), seed=SEEDS)
@examples(
    [("track", "apply_staged"), ("part", 4, 1), ("track", "publish"), ("tick", 3), ("part", 9, 8)],
    [("track", "apply_staged"), ("part", 4, 1), ("track", "publish"), ("part", 9, 8)],
    seed=0,
)
def test_no_row_is_acked_unseen_where_a_node_was_set_back(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(SettleWorld, valkey_url, history, cluster=True, seed=seed)
