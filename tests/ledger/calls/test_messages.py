"""Many messages in a call: once for each key, and all or nothing for each shard."""

import random
from typing import Any

import pytest

from acker.errors import KeyConflict, ValidationError
from acker.ledger import ids
from acker.ledger.calls import messages
from acker.ledger.calls.messages import Messages, Track
from acker.ledger.client import Ledger
from acker.store import keys
from acker.store.operation import Operation
from tests.helpers.builders.ledgers import counted, opened

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return opened(url, ackers=2)


def tracks(count: int, spout: str = "s") -> list[Track]:
    return [
        Track(int(ids.new_anchors(1)[0]), ids.new_id(), b"message %d" % number, spout)
        for number in range(count)
    ]


def cut(ledger: Ledger, operation: Operation[Any], after: int) -> None:
    """Runs an operation up to a number of batches, as a process that dies then."""
    batch = next(operation)
    for _ in range(after):
        batch = operation.send(ledger.store.send(batch))
    operation.close()


def stale(raw: Any, seconds: float = 100) -> None:
    """Makes what is in the journal older."""
    for name, text in raw.hgetall(keys.journal("tested")).items():
        began, _, rest = text.partition(b" ")
        raw.hset(keys.journal("tested"), name, b"%.3f " % (float(began) - seconds) + rest)


def test_all_kinds_of_messages_go_in_one_call(ledger: Ledger) -> None:
    slab = ids.new_anchors(3).tolist()
    trees = [Track(anchor, 7, b"\xff", "lines") for anchor in reversed(slab)] + tracks(4)
    early = int(ids.new_anchors(1)[0])
    what = Messages(
        trees,
        [(trees[3].anchor, trees[3].value), (slab[0], 3), (slab[0], 4), (early, 5)],
        [(trees[4].anchor, "bad"), (trees[4].anchor, "bad"), (slab[1], "worse")],
        [slab[2], trees[5].anchor, trees[5].anchor],
    )
    assert Messages.load(what.dump()) == what
    sent = ledger.run(messages.send(ledger.core, what))
    assert set(sent.letters.values()) == {"A"}
    assert (sent.failed.failed, sent.updated.late, sent.slabs_reset) == (2, 0, 2)
    counted(ledger, tracked=7, acked=2, failed=2)
    again = ledger.run(messages.send(ledger.core, Messages(trees[:4])))
    assert set(again.letters.values()) == {"D"}
    assert ledger.core.spouts == {"lines", "s"}


def test_a_key_takes_effect_once_and_is_answered_the_same(ledger: Ledger) -> None:
    trees = tracks(3000)
    what = Messages(trees, [(tree.anchor, 1) for tree in trees], [(trees[0].anchor, "bad")])
    first = ledger.run(messages.send(ledger.core, what, "k"))
    for _ in range(3):
        assert ledger.run(messages.send(ledger.core, what, "k")) == first
    assert ledger.counters()["tracked"] == 3000
    assert ledger.counters()["failed"] == 1
    other = ledger.run(messages.send(ledger.core, Messages(acks=what.acks[:1]), "other"))
    assert other.updated.late == 1
    with pytest.raises(KeyConflict):
        ledger.run(messages.send(ledger.core, Messages(acks=what.acks[:1]), "k"))


@pytest.mark.parametrize("after", [1, 3, 4, 5, 6, 8])
def test_a_call_that_died_on_the_way_is_finished_by_whoever_finds_it(
    ledger: Ledger, raw: Any, after: int
) -> None:
    trees = tracks(3000)
    what = Messages(trees, [(tree.anchor, tree.value) for tree in trees])
    operation = messages.send(ledger.core, what, "k")
    try:
        cut(ledger, operation, after)
    except StopIteration:
        pytest.skip("it was finished by then")
    begun = ledger.counters()["tracked"] > 0
    assert ledger.run(messages.finish_stale(ledger.core)) is False  # its sender may still be at it
    stale(raw)
    found = ledger.run(messages.finish_stale(ledger.core))
    assert found or not begun
    assert ledger.run(messages.finish_stale(ledger.core)) is False
    assert ledger.counters()["acked"] == (3000 if found else 0)
    sent = ledger.run(messages.send(ledger.core, what, "k"))
    assert set(sent.letters.values()) == {"A"}
    counters = ledger.counters()
    assert (counters["tracked"], counters["acked"], counters["late"]) == (3000, 3000, 0)


def test_two_that_send_the_same_at_once_take_effect_once(ledger: Ledger) -> None:
    trees = tracks(4000)
    what = Messages(trees, [(tree.anchor, 1) for tree in trees])
    chooser = random.Random(3)
    running = {n: messages.send(ledger.core, what, "k") for n in range(2)}
    batches = {n: next(operation) for n, operation in running.items()}
    results = []
    while running:
        n = chooser.choice(list(running))
        try:
            batches[n] = running[n].send(ledger.store.send(batches[n]))
        except StopIteration as end:
            results.append(end.value)
            del running[n]
        except KeyConflict:
            del running[n]
    assert results
    assert all(result == results[0] for result in results)
    assert ledger.run(messages.send(ledger.core, what, "k")) == results[0]
    counters = ledger.counters()
    assert (counters["tracked"], counters["acked"]) == (4000, 0)
    tree = ledger.run(messages.send(ledger.core, Messages(acks=[(trees[0].anchor, trees[0].value ^ 1)])))
    assert tree.updated.late == 0
    assert ledger.counters()["acked"] == 1


def test_what_contradicts_itself_changes_nothing(ledger: Ledger) -> None:
    one = Track(ids.new_slab(), 1, b"", "s")
    for bad in (
        [*tracks(1) * 2],
        [one, one],
        [Track(one.anchor + 2, 1, b"", "s")],
        [one, Track(one.anchor + 2, 1, b"", "other")],
        [one, Track(one.anchor + 4, 1, b"", "s")],
    ):
        with pytest.raises(ValidationError):
            ledger.run(messages.send(ledger.core, Messages(bad, acks=[(5, 5)]), "k"))
    assert not ledger.core.spouts
    counted(ledger)


def test_without_tracking_all_is_well(url: str) -> None:
    ledger = opened(url, "untracked", ackers=0)
    sent = ledger.run(messages.send(ledger.core, Messages(tracks(2), [(1, 1)]), "k"))
    assert set(sent.letters.values()) == {"A"}


def test_a_key_that_is_used_again_after_its_hour_is_a_new_key(ledger: Ledger, raw: Any) -> None:
    """The record of a key has a time to live, and what it stands for must not be remembered for longer."""
    trees = tracks(600)
    acks = [(tree.anchor, tree.value) for tree in trees]
    for what in (Messages(trees), Messages((), acks[:1]), Messages((), acks[1:], [(trees[0].anchor, "x")])):
        ledger.run(messages.send(ledger.core, what, "again"))
        [record] = raw.scan_iter(b"*replies*")
        assert 0 < raw.ttl(record) <= messages.KEY_SECONDS
        raw.delete(record)
    counted(ledger, tracked=600, acked=600, late=1)


def test_a_call_of_the_journal_is_given_up_when_its_key_is_forgotten(ledger: Ledger, raw: Any) -> None:
    trees = tracks(30_000)
    cut(ledger, messages.send(ledger.core, Messages(trees)), 6)
    stale(raw)
    before = ledger.counters()
    [record] = raw.scan_iter(b"*replies*")
    raw.expire(record, 30)
    assert ledger.run(messages.finish_stale(ledger.core))
    assert not ledger.run(messages.finish_stale(ledger.core))
    assert ledger.counters() == before
