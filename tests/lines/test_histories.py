"""Any line, any requests, any history of deaths, repeats and losses: each gather has all rows, once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.streams.commits import chunks
from acker.streams.log import fairness
from tests.helpers.faults.simulator import HISTORIES, Move, examples, histories, run_history
from tests.helpers.worlds.lines import LineWorld

SEEDS = st.integers(0, 99)


@pytest.fixture(autouse=True)
def lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows are in all lanes, where streams are read fairly."""
    monkeypatch.setattr(fairness, "LIGHT", 2)
    monkeypatch.setattr(fairness, "FACTOR", 2)
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 7)


@HISTORIES
@given(history=histories(LineWorld), cluster=st.booleans(), seed=SEEDS)
@examples(
    [("work", 900), ("limit", 1), ("coordinate", 90), ("limit", 1), ("ask", 3)],
    [("work", 900), ("coordinate", "confirm"), ("coordinate_too", 90)],
    [("work", 900), ("coordinate", "release_bundle"), ("coordinate_too", 90), ("again", "release_bundle")],
    cluster=True,
    seed=1,
)
def test_each_gather_has_all_rows_of_each_request_once(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(LineWorld, valkey_url, history, cluster=cluster, seed=seed)


@pytest.mark.damage
@HISTORIES
@given(history=histories(LineWorld, backs=("back",)), seed=SEEDS, most=st.sampled_from([0, chunks.MOST]))
@examples(
    [("work", "gather"), ("back", 9), ("work_too", 900), ("coordinate", 90)],
    [("work", "publish"), ("back", 5), ("work_too", 900)],
    [("work", 900), ("coordinate", "release_bundle"), ("back", 7), ("coordinate_too", 90)],
    [("work", 900), ("coordinate", "chain"), ("back", 7), ("coordinate_too", 90)],
    seed=1,
    most=0,
)
def test_a_store_that_is_set_back_finishes_no_request_without_all_its_rows(
    valkey_url: str, history: list[Move], seed: int, most: int
) -> None:
    run_history(LineWorld, valkey_url, history, seed=seed, most=most)


@pytest.mark.damage
@HISTORIES
@given(history=histories(LineWorld, backs=("part",)), seed=SEEDS)
def test_of_nodes_that_lose_moments_no_request_is_acked_without_each_row_once(
    valkey_url: str, history: list[Move], seed: int
) -> None:
    run_history(LineWorld, valkey_url, history, cluster=True, seed=seed)
