"""Many messages in a call: once for each key, and all or nothing for each tree."""

import random
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from acker.errors import KeyConflict, StoreError, ValidationError
from acker.ledger import ids
from acker.ledger.calls import messages
from acker.ledger.calls.idempotency_keys import KEY_SECONDS
from acker.ledger.calls.messages import Messages, Sent, Track
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store import keys
from acker.store.operation import Operation, Request
from tests.helpers.builders.ledgers import counted, opened

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return opened(url, ackers=2)


def tracks(count: int, spout: str = "s") -> list[Track]:
    return [
        Track(int(ids.new_anchors(1)[0]), ids.new_id(), b"message %d" % number, spout)
        for number in range(count)
    ]


class History:
    """Any number of processes that send the same under one key, each of which may die at any request."""

    MOST = 3

    def __init__(self, ledger: Ledger, what: Messages, seed: int) -> None:
        self.ledger, self.what, self.chooser = ledger, what, random.Random(seed)
        self.running: list[tuple[Operation[Sent], list[Request]]] = []
        self.answers: list[Sent] = []

    def step(self) -> None:
        if len(self.running) < self.MOST and self.chooser.random() < 0.3:
            operation = messages.send(self.ledger.core, self.what, "k")
            self.running.append((operation, next(operation)))
        if not self.running:
            return
        operation, batch = self.running.pop(self.chooser.randrange(len(self.running)))
        if self.chooser.random() < 0.25:  # some of it arrives, in any order, and then nothing is heard of it
            self.ledger.store.send(self.chooser.sample(batch, self.chooser.randint(0, len(batch))))
            return
        if self.chooser.random() < 0.5:  # the first reply is lost
            self.ledger.store.send(batch)
        replies = self.ledger.store.send(batch)
        try:
            self.running.append((operation, operation.send(replies)))
        except StopIteration as end:
            self.answers.append(end.value)


def states(raw: Any, trees: Sequence[Track]) -> dict[int, int | None]:
    """The ack values of trees tracked alone; None for an unknown tree."""
    values: dict[int, int | None] = {}
    for shard in range(2):
        names = {tree.anchor: ids.slab_of(tree.anchor) for tree in trees}
        anchors = [anchor for anchor, name in names.items() if ids.shard_of(name, 2) == shard]
        words = raw.hmget(keys.Shard("tested", shard, 2).ones, [names[anchor] for anchor in anchors])
        values |= {
            anchor: word and int.from_bytes(word, "little", signed=True)
            for anchor, word in zip(anchors, words, strict=True)
        }
    return values


def test_all_kinds_of_messages_go_in_one_call(ledger: Ledger) -> None:
    slab = ids.new_anchors(3).tolist()
    trees = [Track(anchor, 7, b"\xff", "lines") for anchor in reversed(slab)] + tracks(4)
    early = int(ids.new_anchors(1)[0])
    batch = Messages(
        trees,
        [(trees[3].anchor, trees[3].value), (slab[0], 3), (slab[0], 4), (early, 5)],
        [(trees[4].anchor, "bad"), (trees[4].anchor, "bad"), (slab[1], "worse")],
        [slab[2], trees[5].anchor, trees[5].anchor],
    )
    sent = ledger.run(messages.send(ledger.core, batch))
    assert set(sent.letters.values()) == {"A"}
    assert (sent.failed.failed, sent.updated.late, sent.slabs_reset) == (2, 0, 2)
    counted(ledger, tracked=7, acked=2, failed=2)
    again = ledger.run(messages.send(ledger.core, Messages(trees[:4])))
    assert set(again.letters.values()) == {"D"}
    assert ledger.core.spouts == {"lines", "s"}


def test_a_key_takes_effect_once_and_is_answered_the_same(ledger: Ledger) -> None:
    trees = tracks(3000)
    batch = Messages(trees, [(tree.anchor, 1) for tree in trees], [(trees[0].anchor, "bad")])
    first = ledger.run(messages.send(ledger.core, batch, "k"))
    for _ in range(3):
        assert ledger.run(messages.send(ledger.core, batch, "k")) == first
    assert ledger.counters()["tracked"] == 3000
    assert ledger.counters()["failed"] == 1
    other = ledger.run(messages.send(ledger.core, Messages(acks=batch.acks[:1]), "other"))
    assert other.updated.late == 1
    with pytest.raises(KeyConflict):
        ledger.run(messages.send(ledger.core, Messages(acks=batch.acks[:1]), "k"))


@pytest.mark.parametrize("seed", range(12))
def test_nobody_sees_a_part_of_what_a_call_does_to_a_tree(ledger: Ledger, raw: Any, seed: int) -> None:
    """Senders may die, repeat requests, and send the same side by side: a tree has all of the call, once."""
    trees = tracks(1000)
    batch = Messages(
        trees, [(tree.anchor, tree.value) for tree in trees] + [(tree.anchor, 7) for tree in trees]
    )
    history = History(ledger, batch, seed)
    for _ in range(25):
        history.step()
        assert set(states(raw, trees).values()) <= {None, 7}
    history.answers.append(ledger.run(messages.send(ledger.core, batch, "k")))
    assert set(states(raw, trees).values()) == {7}
    assert all(answer == history.answers[0] for answer in history.answers)
    assert set(history.answers[0].letters.values()) == {"A"}
    counters = ledger.counters()
    assert (counters["tracked"], counters["acked"], counters["late"]) == (1000, 0, 0)


def test_a_call_is_one_request_for_each_shard_where_that_is_little_work(ledger: Ledger) -> None:
    """Also where it brings spouts that the shards have not had, in the middle of the call."""
    trees = tracks(20) + tracks(20, "t") + tracks(20, "u")
    causes = [(tree.anchor, "bad") for tree in trees[::2]]
    what = Messages(trees, [(tree.anchor, 1) for tree in trees], causes, [tree.anchor for tree in trees])
    for spout in "stu":
        ledger.register_spout(spout)
    operation = messages.send(ledger.core, what)
    batch = next(operation)
    assert [request.script and request.script.name for request in batch] == ["apply_calls"] * 2
    with pytest.raises(StopIteration) as ended:
        operation.send(ledger.store.send(batch))
    sent = ended.value.value
    assert (set(sent.letters.values()), sent.failed.failed, sent.slabs_reset) == ({"A"}, 30, 30)
    counted(ledger, tracked=60, failed=30)
    for spout in "stu":
        entries = ledger.outcomes(OutcomeReader(ledger.core, spout))
        assert sum(len(entry.slabs) for entry in entries) == 10


def test_a_call_does_all_else_where_a_shard_takes_no_further_spout(ledger: Ledger, raw: Any) -> None:
    full = "128,128" + "".join(f"/{number}:old{number}" for number in range(128))
    for shard in ledger.core.shards:
        raw.hset(shard.clock, mapping={"spouts": full, "rotations": 0})
    anchors = [int(anchor) for number in range(20) for anchor in ids.new_anchors(1)]
    what = Messages(tracks(20), [(anchor, 5) for anchor in anchors])
    for _ in range(2):
        with pytest.raises(StoreError, match="128 spouts"):
            ledger.run(messages.send(ledger.core, what, "k"))
        assert sum(raw.hlen(shard.ones) for shard in ledger.core.shards) == 20
        assert {
            raw.hget(ledger.core.shards[0].ones, name) for name in raw.hkeys(ledger.core.shards[0].ones)
        } == {b"\5" + bytes(7)}


def test_a_sender_that_pauses_for_hours_sends_nothing_more(
    ledger: Ledger, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has sent it all meanwhile, and the shards have forgotten the parts."""
    monkeypatch.setattr("acker.ledger.calls.calls.FLIGHT_CALLS", 1)
    trees = tracks(6_000)
    ledger.run(messages.send(ledger.core, Messages(trees)))
    what = Messages(acks=[(tree.anchor, tree.value ^ 7) for tree in trees])
    paused = messages.send(ledger.core, what, "k")
    batch = paused.send(ledger.store.send(next(paused)))
    replies = ledger.store.send(batch)
    ledger.run(messages.send(ledger.core, what, "k"))
    raw.delete(*raw.keys("*:writers*"))
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 7200)
    monkeypatch.setattr("acker.ledger.calls.idempotence.time", later)
    with pytest.raises(StoreError, match="too old to send again"):
        paused.send(replies)
    assert set(states(raw, trees).values()) == {7}


def test_what_contradicts_itself_changes_nothing(ledger: Ledger) -> None:
    track = Track(ids.new_slab(), 1, b"", "s")
    for bad in (
        [*tracks(1) * 2],
        [track, track],
        [Track(track.anchor + 2, 1, b"", "s")],
        [track, Track(track.anchor + 2, 1, b"", "other")],
        [track, Track(track.anchor + 4, 1, b"", "s")],
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
        [record] = raw.scan_iter(b"*idempotency_key*")
        assert 0 < raw.ttl(record) <= KEY_SECONDS
        raw.delete(record)
    counted(ledger, tracked=600, acked=600, late=1)
