"""Any history of plain calls: however often each is sent, whichever process dies, it takes effect once."""

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.faults.simulator import HISTORIES, Move, examples, histories, run_history
from tests.helpers.worlds.calls import CallWorld


@HISTORIES
@given(history=histories(CallWorld), seed=st.integers(0, 99))
@examples([("ack_0", "lose"), ("track", "lose"), ("again", "update"), ("fail", "lose")], seed=0)
def test_a_call_takes_effect_once(valkey_url: str, history: list[Move], seed: int) -> None:
    run_history(CallWorld, valkey_url, history, seed=seed)
