"""Stamps of rows, and the seal that they are written with."""

from hypothesis import strategies as st

from acker.streams.staging.external.bits import MOST_POSITIONS
from acker.streams.staging.external.rows.stamps import Seal, Stamp

KEY = bytes(range(32))
SEAL = Seal("t", "s", {0: KEY}, 0)
anchors = st.integers(-(1 << 62), (1 << 62) - 1).map(lambda number: 2 * number + 1)
stamps = st.builds(
    Stamp,
    st.binary(min_size=14, max_size=14).map(bytes.hex),
    st.integers(0, MOST_POSITIONS - 1),
    st.integers(0, (1 << 32) - 1),
    st.lists(anchors, min_size=1, max_size=4).map(tuple),
)
