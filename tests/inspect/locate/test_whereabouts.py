"""Any history whose tuples are noted: `why` and `stuck` name the places where they are, and no other."""

from itertools import count
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acker.inspect.locate.stuck import stuck
from acker.inspect.locate.why import GATED, why
from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.streams.sources.roots import Roots
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.worlds.places import PlacesWorld

Move: TypeAlias = tuple[str, int, int, list[int]]
PLANS = st.lists(st.integers(0, 4), max_size=4)
READERS = st.sampled_from(["take", "take", "work", "work", "give_back"])
MOVES = st.one_of(
    st.tuples(st.just("emit"), st.integers(1, 9), st.sampled_from([1, 3, 1000]), PLANS),
    st.tuples(READERS, st.integers(0, 3), st.integers(0, 16), PLANS),
    st.tuples(st.just("plain"), st.integers(1, 3), st.just(0), PLANS),
    st.tuples(st.sampled_from(["bolt", "outside", "fail"]), st.integers(0, 9), st.integers(0, 2), PLANS),
    st.tuples(st.just("expire"), st.just(0), st.just(0), PLANS),
)
FLOW: list[Move] = [
    ("emit", 9, 3, []), ("take", 0, 0, []), ("work", 0, 9, [1, 3, 4, 2]), ("take", 1, 1, [0] * 4),
    ("plain", 2, 0, []), ("take", 3, 0, [0]), ("work", 3, 0, [1]), ("emit", 2, 1, []),
    ("give_back", 1, 1, []), ("take", 1, 1, [0] * 4), ("work", 1, 9, [4]), ("take", 1, 0, []),
    ("outside", 1, 0, []),
]  # fmt: skip


@settings(max_examples=20)
@given(history=st.lists(MOVES, min_size=3, max_size=12))
@example(history=FLOW[:3])
@example(history=FLOW)
@example(history=[*FLOW, ("expire", 0, 0, []), ("emit", 1, 1, []), ("bolt", 0, 2, [0]), ("take", 0, 1, [])])
def test_tuples_are_where_a_history_has_brought_them(
    url: str, monkeypatch: pytest.MonkeyPatch, history: list[Move]
) -> None:
    script_by_script(monkeypatch)
    world = PlacesWorld(url)
    with world.topology:
        for name, first, second, plan in history:
            getattr(world, name)(first, second, plan)
        world.check()


_names = count()
GATHERS = "waits there until all rows of its request are written"
STEPS = {"fan": {0: 1}, "coordinate": {1: 2, 3: 4}, "count": {2: 3}, "add": {4: 5}}
"""Step -> the phases of a line that it ends, and the next one."""
PLACES = {
    0: {1: ("asks", "fan", "", "")},
    1: {2: ("rows", "count", GATHERS, GATED)},
    2: {2: ("rows", "count", "", "")},
    3: {3: ("counts", "add", GATHERS, GATED)},
    4: {3: ("counts", "add", "", "")},
    5: {},
}
"""Phase -> section -> the place of its rows: stream, subscription, holder, and what the tree waits for."""


def check_line(job: Job, asked: list[tuple[Roots, list[int], int]]) -> None:
    """asked: requests that were asked together, with their numbers of rows and their phase."""
    waiting: dict[tuple[str, str | None], int] = {}
    for roots, numbers, phase in asked:
        for section in (1, 2, 3):
            stream, subscription, held_by, rest = PLACES[phase].get(section, ("", "", "", GATED))
            over = section < min(PLACES[phase], default=4)
            for anchor, number in zip(roots.anchors(section).tolist(), numbers, strict=True):
                answer = job.ledger.run(why(job.ledger.core, anchor, rows=True))
                assert {one.taken_by for one in answer.places} <= {None}
                there = {(one.stream, one.subscription, one.held_by) for one in answer.places}
                if over or not stream:
                    assert there == set()
                if over:
                    assert answer.tree is None or answer.tree.state == "finished"
                    continue
                assert (answer.complete, answer.rest) == (True, rest)
                if stream:
                    assert there == {(stream, subscription, held_by)}
                    rows = sum(one.rows or 0 for one in answer.places)
                    assert rows == (1, number, number, 2, 2)[phase]  # each of the two tasks gives a row
                    if not held_by:
                        waiting[stream, subscription] = waiting.get((stream, subscription), 0) + rows
    found = {(one.stream, one.subscription): one.rows for one in job.ledger.run(stuck(job.ledger.core)).stuck}
    assert found == waiting


@settings(max_examples=10)
@given(
    history=st.lists(
        st.one_of(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.sampled_from([*STEPS])), max_size=8
    )
)
@example(history=[[2, 1], "fan", [3], "coordinate", "count", "fan", "coordinate", [1]])
def test_rows_of_a_line_are_where_its_steps_have_brought_them(
    url: str, history: list[str | list[int]]
) -> None:
    store = Store(url)
    job = Job(open_ledger(store, f"line{next(_names)}", ackers=3))
    asked: list[tuple[Roots, list[int], int]] = []
    for move in history:
        if isinstance(move, list):
            asked.append((job.ask(*move, name=f"r{len(asked)}-"), move, 0))
            continue
        if move == "coordinate":
            job.coordinate()
        else:
            job.workers[move].work()
        asked = [(roots, own, STEPS[move].get(phase, phase)) for roots, own, phase in asked]
        check_line(job, asked)
    check_line(job, asked)
