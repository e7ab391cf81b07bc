"""Rows that a batch reads and leaves out are not acked, also where the store has them otherwise by then."""

from dataclasses import replace

import pytest
import redis

from acker.errors import StagingExpired
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.store import keys
from acker.store.client import Store
from acker.streams.commits.contents import Commit
from acker.streams.log import subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Range
from acker.streams.staging import acks, skipped
from acker.streams.staging.skipped import ALL, NOTHING, Skipped
from acker.streams.upkeep import stale
from tests.helpers.builders.streaming import commit, counters, delivered, emit, take
from tests.helpers.faults.set_backs import moment, set_back
from tests.helpers.servers.servers import raw_client


def planned(ledger: Ledger, batch: Range) -> Range:
    """The batch, when it was planned."""
    members: list[Segment] = [piece.segment for piece in delivered(ledger, batch)]
    plan = ledger.run(stale.plan(ledger.core, batch.stream, batch.slot, members))
    return replace(batch, skipped=plan.skipped, planned=subscriptions.digest(members))


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


@pytest.mark.parametrize("slab", [1, 3, 1000])
@pytest.mark.parametrize("others", [0, 3])
def test_trees_that_were_over_when_a_batch_was_planned_are_not_acked_by_a_store_that_was_set_back(
    valkey_url: str, valkey_raw: "redis.Redis", slab: int, others: int
) -> None:
    """Some failed, or all expired, in moments that the store loses: nobody was given their rows."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    anchors: list[Ids] = [emit(ledger, 10, slab=slab) for _ in range(2)]
    batch, before = take(ledger, "lines"), moment(valkey_raw)
    if others:
        ledger.fail(anchors[0][::others])
    else:
        expire(ledger)
    read = planned(ledger, batch)
    set_back(valkey_raw, before)
    with pytest.raises(StagingExpired):  # what was left out is lost, too
        commit(ledger, 0, Commit((), (read,)))
    assert "acked" not in counters(ledger)

    kept = ledger.run(skipped.note(ledger.core, "lines", Skipped()))
    assert not kept
    if others:
        ledger.fail(anchors[0][::others])
    else:
        expire(ledger)
    read = planned(ledger, batch)
    with raw_client(valkey_url) as client:
        left_out = client.hgetall(keys.Stream("t", "lines").skipped(read.skipped).decode())
    set_back(valkey_raw, before)
    valkey_raw.hset(keys.Stream("t", "lines").skipped(read.skipped).decode(), mapping=left_out)
    commit(ledger, 0, Commit((), (read,)))
    left = len(anchors[0][::others]) if others else 20
    assert counters(ledger).get("acked", 0) == 20 - left
    assert "late" not in counters(ledger)
    expire(ledger)
    assert counters(ledger)["expired"] == left
    assert not list(valkey_raw.scan_iter("*skipped*"))
    assert not list(valkey_raw.scan_iter("*staged*"))


def test_segments_without_rows_are_not_acked_later(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    emit(ledger, 10)
    emit(ledger, 10)
    batch = take(ledger, "lines")
    key = keys.Stream("t", "lines").payload(delivered(ledger, batch)[0].segment.id).decode()
    before = moment(valkey_raw)
    valkey_raw.delete(key)
    read = planned(ledger, batch)
    valkey_raw.restore(key, 0, before[key.encode()][0])
    commit(ledger, 0, Commit((), (read,)))
    assert counters(ledger)["acked"] == 10


def test_a_commit_that_loses_what_its_batch_left_out_acks_nothing_of_it(
    valkey_url: str, valkey_raw: "redis.Redis", caplog: pytest.LogCaptureFixture
) -> None:
    """Also where what is noted cannot be read."""
    damages: tuple[dict[str, bytes], ...] = (
        {},
        {"gone": b"[]", "over": b"[]", "part:x": b"12345678\x05\0\0\0ab"},
    )
    for number, damage in enumerate(damages):
        ledger = open_ledger(Store(valkey_url), f"t{number}", ackers=2)
        anchors = emit(ledger, 10)
        ledger.fail(anchors[:1])
        read = planned(ledger, take(ledger, "lines"))
        key = keys.Stream(f"t{number}", "lines").skipped(read.skipped).decode()
        valkey_raw.delete(key)
        for field, value in damage.items():
            valkey_raw.hset(key, field, value)
        assert ledger.run(acks.consume(ledger.core, read)).segments == 1
        assert "acked" not in counters(ledger)
        assert "nothing that the batch read there is acked" in caplog.records[-1].message
        valkey_raw.delete(key)


def test_segments_left_out_by_two_plans_stay_out(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    core, batch = ledger.core, Range("lines", 0, "reader", 0, 3)
    first = Skipped(frozenset({"a"}), frozenset({"b"}), {"c": {b"slab...1": b"\1\0", b"slab...2": ALL}})
    second = Skipped(frozenset({"d"}), frozenset(), {"c": {b"slab...1": b"\2\0", b"slab...2": b"\3\0"}})
    staged_ids = [ledger.run(skipped.note(core, "lines", one)) for one in (first, second)]
    found = ledger.run(skipped.read(core, replace(batch, skipped=" ".join(staged_ids))))
    together = {"c": {b"slab...1": b"\1\0\2\0", b"slab...2": ALL}}
    assert found == Skipped(frozenset({"a", "d"}), frozenset({"b"}), together)
    assert ledger.run(skipped.read(core, batch)) == NOTHING
    assert all(valkey_raw.ttl(name) > 0 for name in valkey_raw.scan_iter("*skipped*"))


def test_a_batch_acks_no_segments_of_its_old_numbers(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """The store is set back behind what a reader took; a late copy of a call takes other segments for it."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    batch, before = take(ledger, "lines"), moment(valkey_raw)
    emit(ledger, 10)
    batch = planned(ledger, take(ledger, "lines"))
    set_back(valkey_raw, before)
    emit(ledger, 20)
    ledger.run(subscriptions.claim(ledger.core, "lines", batch.slot, batch.reader, 0, name="default"))
    commit(ledger, 0, Commit((), (batch,)))
    assert "acked" not in counters(ledger)
    expire(ledger)
    assert counters(ledger)["expired"] == 20
