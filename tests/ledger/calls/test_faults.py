"""Calls that are cut off, repeated, delayed or overtaken take effect once."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis

from acker.errors import StoreError, StoreUnavailable
from acker.ledger import ids
from acker.ledger.calls.calls import HORIZON, Call, Submission, Writer
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick import tick
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.faults.proxy import Proxy, every_call_once, proxied
from tests.helpers.models.ledger_state import assert_same
from tests.helpers.models.model import Model


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with proxied(url) as proxy:
        yield proxy


@pytest.fixture
def cut_off(proxy: Proxy, direct: Ledger) -> Ledger:
    """A ledger that loses the reply of each call once, together with its connection."""
    ledger = opened(proxy.url, timeout=30, ackers=2)
    ledger.register_spout("s")
    proxy.swallow = every_call_once()
    return ledger


@pytest.fixture
def direct(url: str) -> Ledger:
    return opened(url, ackers=2)


def slabs_of(*trees: Trees) -> list[NewSlab]:
    return [NewSlab(one.anchors, one.values, one.message_ids) for one in trees]


def test_a_history_over_a_connection_that_is_cut_after_every_call_is_the_same(
    cut_off: Ledger, direct: Ledger, proxy: Proxy, raw: "redis.Redis"
) -> None:
    model = Model(2, cut_off.config.high_water_mark)
    trees = [Trees(count) for count in (1, 1, 3, 20, 600)]
    for tree in trees:
        tree.track(cut_off)
        model.track(int(tree.anchors[0]), tree.values.tolist(), tree.message_ids, "s")
    for tree in trees:
        tree.complete(cut_off, 0)
        model.update({int(tree.anchors[0]): int(tree.values[0])})
    for tree in trees[2:]:
        cut_off.fail(tree.anchors[:2], "bad")
        model.fail(dict.fromkeys(tree.anchors[:2].tolist(), "bad"))
    for _ in range(2):
        cut_off.run(tick.rotate(cut_off.core, force=True))
        model.rotate()
    cut_off.reset_timeout(trees[3].anchors)
    model.reset_timeout(trees[3].anchors.tolist())
    cut_off.run(tick.rotate(cut_off.core, force=True))
    model.rotate()
    cut_off.run(tick.drain(cut_off.core))
    model.drain()
    assert proxy.cuts > 15
    model.counters["duplicates"] = direct.counters()["duplicates"]
    assert model.counters["duplicates"] >= 8
    assert_same(raw, direct, model)
    expected = Counter((anchor, status, reason) for _, anchor, status, reason in model.reported)
    assert reported(cut_off, *trees) == expected
    confirm_all(cut_off)
    model.confirm([anchor for _, anchor, _, _ in model.reported])
    assert_same(raw, direct, model)


def test_opening_and_registering_over_a_connection_that_is_cut_is_the_same(proxy: Proxy) -> None:
    proxy.swallow = every_call_once()
    first, second = opened(proxy.url, "new", timeout=30, ackers=3), opened(proxy.url, "new", timeout=30)
    assert first.config == second.config
    for ledger, names in ((first, "abc"), (second, "cba")):
        for name in names:
            ledger.register_spout(name)
    assert first.core.spouts == second.core.spouts == {*"abc"}


def test_many_calls_whose_replies_are_lost_take_effect_once(cut_off: Ledger, direct: Ledger) -> None:
    trees = [Trees(1) for _ in range(2500)]
    assert set(cut_off.track_slabs(slabs_of(*trees), spout="s")) == {"A"}
    anchors = np.concatenate([one.anchors for one in trees])
    values = np.concatenate([one.values for one in trees])
    cut_off.update(anchors, values)
    assert len(reported(direct, *trees)) == 2500
    counted(direct, tracked=2500, acked=2500, duplicates=direct.counters()["duplicates"])


MakesCalls = Callable[[Ledger, Trees], Submission[Any]]
CALLS: dict[str, MakesCalls] = {
    "track": lambda ledger, trees: ledger.core.track(slabs_of(Trees(2)), "s"),
    "update": lambda ledger, trees: ledger.core.update(trees.anchors[:1], ids.new_ids(1)),
    "fail": lambda ledger, trees: ledger.core.fail(trees.anchors[1:2], b"bad"),
    "reset_timeout": lambda ledger, trees: ledger.core.reset_timeout(trees.anchors),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_arrive_again_late_change_nothing(proxy: Proxy, direct: Ledger, call: str) -> None:
    ledger = opened(proxy.url, timeout=30)
    trees = Trees(40).track(ledger)
    for _ in range(20):
        Trees(1).track(ledger)  # until each shard has the spout, so that what follows is answered at once
    ledger.tick(force=True)
    proxy.record = True
    ledger.send(CALLS[call](ledger, trees))
    proxy.record = False
    proxy.cut_all()
    before_more = direct.counters()
    for _ in range(3):
        ledger.update(trees.anchors[5:6], ids.new_ids(1))
    ledger.tick(force=True)

    def everything() -> dict[Any, Any]:
        client: Any = redis.Redis.from_url(direct.store.url)
        return {key: client.dump(key) for key in client.keys("*") if not key.endswith(b":counters")}

    before, counters = everything(), direct.counters()
    proxy.deliver(proxy.requests)
    assert everything() == before
    assert direct.counters() == {**counters, "duplicates": counters["duplicates"] + 1}
    assert before_more["duplicates"] == 0


def test_a_submission_that_failed_may_be_sent_again_at_any_later_time(proxy: Proxy, direct: Ledger) -> None:
    ledger = opened(proxy.url, timeout=30)
    hasty = Ledger(Store(proxy.url, timeout=0.3), ledger.core)
    trees = Trees(3).track(ledger)
    child = ids.new_id()
    emit = ledger.core.update(trees.anchors[:1], ids.as_ids([int(trees.values[0]) ^ child]))
    proxy.swallow = lambda _: True
    with pytest.raises(StoreUnavailable):
        hasty.send(emit)
    assert not emit.done
    proxy.swallow = lambda _: False
    for _ in range(3):
        ledger.update(trees.anchors[1:2], ids.new_ids(1))
    ledger.send(emit)
    ledger.send(emit)
    ledger.update(trees.anchors[:1], [child])
    assert reported(direct, trees) == Counter([(int(trees.anchors[0]), "acked", "")])


def test_a_call_that_never_arrived_does_not_hold_up_the_next(proxy: Proxy, direct: Ledger) -> None:
    ledger = opened(proxy.url, timeout=30)
    hasty = Ledger(Store(proxy.url, timeout=0.3), ledger.core)
    trees = Trees(2).track(ledger)
    lost = ledger.core.update(trees.anchors[:1], trees.values[:1])
    proxy.refuse = True
    proxy.cut_all()
    with pytest.raises(StoreUnavailable):
        hasty.send(lost)
    proxy.refuse = False
    trees.complete(ledger, 1)
    assert len(reported(direct, trees)) == 1
    ledger.send(lost)
    assert len(reported(direct, trees)) == 2
    counted(direct, tracked=2, acked=2)


def stamped(ledger: Ledger, trees: Trees, writer: Writer, number: int) -> Call:
    [call] = ledger.core.update(trees.anchors[:1], ids.new_ids(1)).calls
    call.stamp = writer.id, number
    return call


def test_numbers_out_of_turn_are_refused_and_change_nothing(url: str) -> None:
    ledger = opened(url)
    trees, writer = Trees(1).track(ledger), Writer()

    ledger.tick()  # which learns of the shard's spout

    def send(number: int) -> str:
        [reply] = ledger.store.send([ledger.core.request(stamped(ledger, trees, writer, number))])
        return str(reply)

    assert send(2).startswith("WRITER")
    assert not send(1).startswith("WRITER")
    assert send(3).startswith("WRITER")
    assert not send(2).startswith("WRITER")
    counted(ledger, tracked=1)
    send(1)
    send(2)
    counted(ledger, tracked=1, duplicates=2)


def test_a_call_that_is_refused_as_out_of_turn_goes_through_under_another_writer(url: str) -> None:
    ledger = opened(url)
    trees, writer = Trees(1).track(ledger), ledger.core.writers.take()
    writer.sequences[0] = 41
    ledger.core.writers.give(writer)
    trees.complete(ledger)
    counted(ledger, tracked=1, acked=1)
    assert ledger.core.writers.take().id != writer.id


def test_writers_that_the_store_forgot_are_replaced(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)
    trees = [Trees(1).track(ledger) for _ in range(3)]
    raw.delete("acker:{tested:0/1}:writers")
    for one in trees:
        one.complete(ledger)
    counted(ledger, tracked=3, acked=3)


def test_a_submission_too_old_to_know_is_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then its writer may be forgotten, and to send it once more could undo what it did."""
    ledger = opened(url)
    trees = Trees(1).track(ledger)
    submission = ledger.core.update(trees.anchors, ids.new_ids(1))
    ledger.send(submission)
    for call in submission.calls:
        call.reply = None
    now = time.monotonic
    monkeypatch.setattr("acker.ledger.calls.idempotence.time.monotonic", lambda: now() + HORIZON)
    with pytest.raises(StoreError, match="too old to send again"):
        ledger.send(submission)
    counted(ledger, tracked=1)


def test_a_confirmation_whose_reply_is_lost_can_be_sent_again(proxy: Proxy, direct: Ledger) -> None:
    ledger = opened(proxy.url, timeout=30)
    trees = [Trees(3).track(ledger) for _ in range(5)]
    for one in trees:
        one.complete(ledger, 0)
        one.complete(ledger)
    reader = OutcomeReader(ledger.core, "s")
    entries = [entry.confirmation for entry in ledger.outcomes(reader)]
    proxy.swallow = every_call_once()
    ledger.confirm("s", entries)
    proxy.swallow = lambda _: False
    assert ledger.confirm("s", entries) == 0
    assert not reported(direct, *trees)
    for _ in range(3):
        direct.tick(force=True)
    counted(direct, tracked=15, acked=15, late=5)
