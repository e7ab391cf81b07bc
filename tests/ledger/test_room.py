"""Room that was seen is taken for a moment only, and only some of it."""

import pickle

import pytest

from acker.ledger import room
from acker.ledger.room import Room


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(room, "monotonic", lambda: now[0])
    return now


def test_a_quarter_of_the_room_is_taken_before_the_next_look(clock: list[float]) -> None:
    seen = Room()
    assert not seen.take("lines", 0), "nobody has looked"
    seen.see("lines", 1_000)
    assert [seen.take("lines", 100) for _ in range(4)] == [True, True, False, False]
    assert seen.take("lines", 50)
    assert not seen.take("words", 0)
    seen.see("lines", -1)
    assert not seen.take("lines", 0)
    assert clock == [100.0]


def test_what_was_seen_counts_for_a_moment(clock: list[float]) -> None:
    seen = Room()
    seen.see("lines", 1_000)
    clock[0] += 0.25
    assert seen.take("lines", 1)
    clock[0] += 0.01
    assert not seen.take("lines", 1)


def test_it_does_not_travel_and_is_bounded() -> None:
    seen = Room()
    for number in range(1_001):
        seen.see(str(number), 1_000)
    assert [seen.take(str(number), 1) for number in (0, 999, 1_000)] == [False, False, True]
    assert not pickle.loads(pickle.dumps(seen)).take("1000", 1)
