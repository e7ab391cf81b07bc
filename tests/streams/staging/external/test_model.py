"""The model of external streams: no history violates a promise, and each missing mechanism is found."""

from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from tests.helpers.models.external.mutants import MUTANTS, Mutant, run
from tests.helpers.models.external.processes import consumer, source
from tests.helpers.models.external.rules import Rules, Times
from tests.helpers.models.external.scenario import Scenario
from tests.helpers.models.external.shard import Content, Key, Received, Shard
from tests.helpers.models.external.stream import Row
from tests.helpers.models.external.truth import Violation
from tests.helpers.models.external.world import World, slab_of

HISTORIES, PART = 240, 60
ITEMS, WORDS = Key("segment of items", 0), Key("segment of words", 0)
ROW = [Received(ITEMS, frozenset({0}), {})]


@pytest.mark.parametrize("first", range(0, HISTORIES, PART))
def test_no_history_violates_a_promise(first: int) -> None:
    violations = {seed: run(seed, Rules())[0] for seed in range(first, first + PART)}
    assert {seed: text for seed, text in violations.items() if text} == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mechanism)
def test_a_history_finds_a_mechanism_that_is_missing(mutant: Mutant) -> None:
    assert run(mutant.seed, Rules())[0] == ""
    assert mutant.found(mutant.seed)


# Histories that are too rare to be drawn.


def early_shard(rules: Rules) -> Shard:
    """A shard with a segment of items, and one of words that a flush has emitted before the track."""
    shard = Shard(rules, Times(), slab_of)
    shard.send(WORDS, Content({0: 7}, 1, 1, of="of words"), 1000)
    shard.emit("of words", [WORDS])
    shard.now = 50
    shard.send(ITEMS, Content({0: 5}, 1, 1, of="of items"), 1000)
    return shard


def wait_too_long(shard: Shard) -> None:
    """The emits of words are dropped, and only then their tree is tracked."""
    shard.now = 110
    for _ in range(3):
        shard.trees.rotate(shard.now)
    shard.trees.track(0, {0: 9})


@pytest.mark.parametrize("own_vectors", [True, False])
def test_a_flush_with_more_rows_does_not_emit_the_vectors_of_another_one(own_vectors: bool) -> None:
    shard, alone = Shard(Rules(own_vectors=own_vectors), Times(), slab_of), Key("alone", 0)
    shard.track(0, {0: 9})
    shard.send(ITEMS, Content({0: 5}, 1, 1, of="less"), 1000)
    shard.send(ITEMS, Content({0: 5 ^ 3}, 2, 2, of="more"), 1000)
    shard.emit("more", [ITEMS])
    shard.send(alone, Content({0: 9}), 1000)
    assert shard.ack(alone, "more", 1) != own_vectors
    shard.receive("of words", None, ROW)
    shard.ack(ITEMS)
    wanted = "" if own_vectors else "acked"
    assert shard.trees.outcome(0) == wanted, "acked is false: more has a second row"


@pytest.mark.parametrize("cut", [True, False])
def test_a_fail_of_no_row_of_the_segment_takes_no_effect(cut: bool) -> None:
    shard = Shard(Rules(cut=cut), Times(), slab_of)
    shard.track(0, {0: 9})
    shard.send(ITEMS, Content({0: 5}, 1, 1, of="it"), 1000)
    shard.emit("it", [ITEMS])
    shard.receive("of words", None, [Received(ITEMS, frozenset({1}), {1: (0,)})])
    assert shard.trees.outcome(0) == ("" if cut else "failed")


@pytest.mark.parametrize("old_refused", [True, False])
def test_bits_whose_emits_were_dropped_are_refused_in_any_state(old_refused: bool) -> None:
    shard = early_shard(Rules(old_refused=old_refused))
    wait_too_long(shard)
    shard.emit("of items", [ITEMS])
    assert shard.receive("of words", 1, ROW) == ("d" if old_refused else "f")


@pytest.mark.parametrize("bits_note_wait", [True, False])
@pytest.mark.parametrize("void_fails", [True, False])
def test_early_bits_that_are_too_old_are_cleared_and_the_trees_fail(
    bits_note_wait: bool, void_fails: bool
) -> None:
    shard = early_shard(Rules(bits_note_wait=bits_note_wait, void_fails=void_fails))
    assert shard.receive("of words", 1, ROW) == "w"
    wait_too_long(shard)
    shard.emit("of items", [ITEMS])
    shard.trees.xor({0: 9}, True)
    shard.ack(ITEMS)
    shard.fail_staged(ITEMS)
    wanted = "failed" if void_fails else ""
    assert shard.trees.outcome(0) == (wanted if bits_note_wait else "acked"), "acked is false: words has 7"


class SetBack(World):
    """A world whose store is set back once, after a consumer has looked at its rows."""

    moment: list[Shard] | None = None

    def is_garbled(self, group: str, row: Row) -> bool:
        """Sets the store back, before the function works on a row."""
        if self.moment is not None:
            self.shards, self.moment = self.moment, None
        return False


@pytest.mark.parametrize("one_look", [True, False])
def test_bits_go_by_the_look_that_the_rows_of_the_function_went_by(one_look: bool) -> None:
    quiet = replace(
        Scenario.draw(Random(0)), shards=1, between="", offsets_first=False, rest=False, undelivered=False,
        apart=False, records=2, copies=False, room=False,
    )  # fmt: skip
    world = SetBack(0, Rules(one_look=one_look), quiet)
    world.faults = False
    for actor in (source(world), consumer(world, "reader", "items", 1, "")):
        assert list(actor)
    moment = deepcopy(world.shards)
    assert list(consumer(world, "step", "items", 0, "words"))
    world.offsets["step"], world.moment, world.whole = 0, moment, False
    again = consumer(world, "step", "items", 0, "words")
    if one_look:
        assert list(again)
        assert not world.outcomes["acked"]
    else:
        with pytest.raises(Violation, match="is acked, though"):
            list(again)
