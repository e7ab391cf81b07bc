"""Any history of removals: whichever is cut, repeated or overtaken, nothing is left of a removed topology."""

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, examples, histories, run_history
from tests.helpers.worlds.removals import RemovalWorld


@HISTORIES
@given(history=histories(RemovalWorld), cluster=st.booleans(), seed=st.integers(0, 99))
@examples(
    [("remove", 500)],
    [("remove", "HDEL"), ("remove", "die"), ("remove_too", 500)],
    [("ticker", "rotate"), ("remove", 500), ("ticker", 500)],
    [("service", "note_health"), ("remove", 500), ("service", 500)],
    [("job", "track"), ("remove", 500), ("job", 500)],
    [("job", 500), ("remove", 500), ("again", "update"), ("again", "register_spout")],
    cluster=False,
    seed=0,
)
def test_nothing_is_left_of_a_removed_topology(
    valkey_url: str, history: list[Move], cluster: bool, seed: int
) -> None:
    run_history(RemovalWorld, valkey_url, history, cluster=cluster, seed=seed)
