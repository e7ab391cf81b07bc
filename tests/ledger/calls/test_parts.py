"""Messages in parts: all that is for a tree lies in one, and each is little work for the server."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acker.ledger import ids
from acker.ledger.calls import encoding, parts
from acker.ledger.calls.core import Core
from acker.ledger.calls.parts import FAIL, RESET, TRACK, UPDATE, Message
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.slabs.slabs import NewSlab

CORE = Core(TopologyConfig("t", ackers=2))
SLABS = st.lists(st.sampled_from([1, 2, 40, 500]), min_size=1, max_size=4)


def wanted(sizes: list[int], copies: int, every: int, steps: int) -> list[Message]:
    """Tracks of slabs, `copies` of each size, with an ack, a fail and a reset of each `every`-th tree."""
    slabs = [ids.new_anchors(size) for size in sizes for _ in range(copies if size < 500 else 1)]
    news = [NewSlab(one, ids.new_ids(len(one)), [b"x" * 60] * len(one)) for one in slabs]
    anchors = np.concatenate(slabs)[::every].tolist()
    messages = list(parts.tracks(CORE, "s", news))
    for step in range(steps):
        messages += parts.others(CORE, UPDATE, [(anchor, 7, step) for anchor in anchors[step::steps]])
        messages += parts.others(CORE, FAIL, [(anchor, b"bad", step) for anchor in anchors[step::steps]])
    return messages + list(parts.others(CORE, RESET, [(anchor, None, None) for anchor in anchors]))


@given(SLABS, st.integers(1, 50), st.integers(1, 7), st.integers(1, 8))
def test_parts_are_bounded_and_no_tree_is_cut(sizes: list[int], copies: int, every: int, steps: int) -> None:
    messages = wanted(sizes, copies, every, steps)
    cut = list(parts.cut(messages))
    assert sorted(map(id, messages)) == sorted(id(message) for part in cut for message in part)
    places = Counter(place for part in cut for place in {message.place for message in part})
    assert set(places.values()) == {1}
    for part in cut:
        assert len({message.place[0] for message in part}) == 1
        kinds = Counter(message.kind[0] for message in part)
        trees = Counter(kind for _, kind in {(message.place, message.kind[0]) for message in part})
        assert kinds[TRACK] <= encoding.CALL_SLABS
        assert kinds[UPDATE] <= encoding.CALL_TREES
        assert kinds[FAIL] <= encoding.CALL_FAILS
        assert trees[RESET] <= encoding.CALL_RESETS
        cost = sum(message.cost for message in part)
        assert cost <= 1 or len(trees) == len({message.place for message in part}) == 1
    again = list(parts.cut(messages))
    assert again == cut


def test_a_slab_is_cut_only_where_it_is_more_than_a_part() -> None:
    few, many = wanted([100], 1, 1, 1), wanted([4096], 1, 1, 1)
    assert len(list(parts.cut(few))) == 1
    assert len(list(parts.cut(many))) > 1
