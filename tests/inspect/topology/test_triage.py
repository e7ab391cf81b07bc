"""Triage: which topologies come first, in pages and by severity."""

import pytest

from acker.errors import ValidationError
from acker.inspect.topology import triage
from acker.inspect.topology.triage import Levels, Standing, choose, count, words
from acker.inspect.topology.unreadable_topology import Damaged

EVERY = [
    Standing("a", "well"),
    Standing("b", "look", 50.0),
    Standing("c", "critical"),
    Standing("d", "critical", 90.0),
    Standing("e", "critical", 20.0),
    Standing("f", "muted", 1.0),
    triage.standing("g", Damaged("g", "damaged")),
]


def names(found: list[Standing]) -> str:
    return "".join(one.topology for one in found)


def test_the_worst_comes_first_and_of_these_the_oldest() -> None:
    assert names(choose(EVERY)) == "edcgbfa"
    assert names(choose(EVERY, states=["look", "well"])) == "ba"
    assert names(choose(EVERY, sort="name", cursor="c")) == "defg"


def test_pages_go_on_after_a_topology_wherever_others_move() -> None:
    cursor = EVERY[3].cursor
    assert names(choose(EVERY, cursor=cursor)) == "cgbfa"
    moved = [EVERY[0]._replace(level="critical", since=1.0), *EVERY[1:]]
    assert names(choose(moved, cursor=cursor)) == "cgbf"
    for wrong in ("d", "9", "0.x.d", "0.1."):
        with pytest.raises(ValidationError):
            choose(EVERY, cursor=wrong)


def test_counts_are_words_without_what_is_zero() -> None:
    assert count(EVERY) == Levels(critical=4, look=1, muted=1, well=1)
    assert words(count(EVERY)) == "4 critical, 1 needs a look, 1 muted, 1 well"
    assert words(Levels(look=19, well=1_183)) == "19 need a look, 1,183 well"
