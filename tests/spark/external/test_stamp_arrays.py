"""A column of stamps is read as each stamp alone, whatever its other texts are."""

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from acker.spark.external import stamp_arrays
from acker.streams.staging.external.rows.stamps import LETTERS, Seal, Stamp
from tests.helpers.builders.stamps import KEY, SEAL, stamps

BOTH = Seal("t", "s", {0: KEY, 1: bytes(32)}, 1)
OTHER = Seal("u", "s", {0: KEY, 1: bytes(32)}, 1)
sound = st.one_of(stamps.map(SEAL.write), stamps.map(BOTH.write))
edited = st.builds(
    lambda text, at, letter: text[:at] + letter + text[at + 1 :],
    sound, st.integers(0, LETTERS - 1), st.characters(codec="utf-8"),
)  # fmt: skip
texts = st.one_of(sound, sound, edited, stamps.map(OTHER.write), st.none(), st.text())


@given(st.lists(texts, max_size=8), st.integers(0, 2), st.sampled_from([pa.string(), pa.large_string()]))
def test_a_column_is_read_as_each_text_alone(column: list[str | None], cut: int, kind: pa.DataType) -> None:
    found = stamp_arrays.read(BOTH, pa.array(column, kind)[cut:])
    each = [BOTH.read(text) for text in column[cut:]]
    read = zip(found.texts, found.segments, found.positions, found.anchors, strict=True)
    assert sorted((at, found.tokens[of], position, anchor) for at, of, position, anchor in read) == sorted(
        (at, stamp.token, stamp.position, anchor)
        for at, stamp in enumerate(each)
        if isinstance(stamp, Stamp)
        for anchor in stamp.anchors
    )
    whole = [stamp for stamp in each if isinstance(stamp, Stamp)]
    assert found.faults == Counter(fault for fault in each if not isinstance(fault, Stamp))
    assert (found.stamps, found.several) == (len(whole), sum(len(one.anchors) > 1 for one in whole))
    begun = dict(zip(found.tokens, found.begun, strict=True))
    assert begun.keys() == {one.token for one in whole}
    assert all(begun[one.token] in {same.sent for same in whole if same.token == one.token} for one in whole)
