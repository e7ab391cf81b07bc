"""Causes of failures as texts."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from acker.ledger.slabs import causes
from acker.ledger.slabs.causes import Cause

PIECES = st.text(st.sampled_from("a !é\0 1\ud800"), max_size=6) | st.just("long " * 300)


@given(
    reason=PIECES,
    rest=st.sampled_from(["", "\0", "\0!", "\0by 4", "\0!by", "\0 7"]),
    step=st.sampled_from(["", "b"]),
)
@example(reason="", rest="\0!", step="")
def test_the_texts_of_a_column_are_those_of_its_causes_one_by_one(reason: str, rest: str, step: str) -> None:
    text = reason + rest
    cause = Cause.parse(text)
    expected = text if cause.step else replace(cause, step=step, batch=3).text()
    assert causes.texts([text, text, None], step, 3) == [expected, expected, Cause(step=step, batch=3).text()]
