"""Any history of a spout's rows: whichever process dies meanwhile, each row ends once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, examples, histories, run_history
from tests.helpers.worlds.settles import RereadWorld, SettleWorld

SEEDS = st.integers(0, 99)
WORLDS = st.sampled_from([SettleWorld, RereadWorld])
"""A spout that keeps its rows, and the same that keeps their ids."""


@HISTORIES
@given(world=WORLDS, history=histories(SettleWorld), cluster=st.booleans(), seed=SEEDS)
@examples(
    [("work", 1), ("settle", "publish"), ("settle_too", 500), ("work", 1), ("day", 1)],
    [("work", 1), ("settle", "settle"), ("settle", "die"), ("settle_too", 500)],
    [("track", "track"), ("day", 1), ("track", "lose"), ("again", "track"), ("again", "stage")],
    [("write", "publish"), ("again", "keep_rows"), ("work", 1), ("settle", 500), ("day", 1)],
    world=SettleWorld,
    cluster=True,
    seed=0,
)
@examples(
    [("work", 1), ("reread", 500), ("settle_too", "settle"), ("settle_too", "die"), ("settle", 500)],
    [("work", 1), ("reread", "fill_rows"), ("settle", "publish"), ("reread", 500), ("again", "fill_rows")],
    [("work", 1), ("reread", "fill_rows"), ("settle", 500), ("settle_too", 500), ("reread", 500)],
    world=RereadWorld,
    cluster=True,
    seed=0,
)
def test_a_row_has_its_attempts_and_ends_once(
    valkey_url: str, world: type[SettleWorld], history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(world, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(world=WORLDS, history=histories(SettleWorld, backs=("back",)), seed=SEEDS)
def test_a_row_that_a_store_still_has_ends_where_that_was_set_back(
    valkey_url: str, world: type[SettleWorld], history: list[Move], seed: int
) -> None:
    run_history(world, valkey_url, history, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(world=WORLDS, history=histories(SettleWorld, backs=("part",)), seed=SEEDS)
@examples(
    [("track", "apply_staged"), ("part", 4, 1), ("track", "publish"), ("tick", 3), ("part", 9, 8)],
    [("track", "apply_staged"), ("part", 4, 1), ("track", "publish"), ("part", 9, 8)],
    world=SettleWorld,
    seed=0,
)
def test_no_row_is_acked_unseen_where_a_node_was_set_back(
    valkey_url: str, world: type[SettleWorld], history: list[Move], seed: int
) -> None:
    run_history(world, valkey_url, history, cluster=True, seed=seed)
