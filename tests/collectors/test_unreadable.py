"""Collectors over a store with unreadable records: the flush names them."""

from typing import Any

import pytest

from acker import Topology, Tuple
from acker.errors import UnreadableRecord
from acker.ledger.ids import slab_of
from tests.helpers.builders.ledgers import Trees, counted
from tests.helpers.models.ledger_state import shard_key
from tests.helpers.servers.servers import wait_until


def first(trees: Trees) -> int:
    return int(trees.anchors[0])


def test_who_flushes_is_reported_of_slabs_that_were_passed_over_and_the_thread_logs_them(
    url: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topology = Topology(url, "tested", ackers=1, linger=15.0)
    members = [Trees(count).track(topology.ledger) for count in (3, 1, 400)]
    bad, bolt = members[:2], topology.bolt("b")
    for one in bad:
        raw.hset(shard_key(topology.ledger, 0, "slabs"), slab_of(first(one)), b"\x03 of a newer version")

    def act() -> None:
        for one in members:
            anchor = int(one.anchors[-1])
            bolt.ack(Tuple([(anchor, int(one.values[-1]))]))
            bolt.fail(Tuple([(anchor - 2 * (one.count > 1), 7)]), "bad")

    act()
    with pytest.raises(UnreadableRecord, match="cannot be read, the rest was done") as caught:
        topology.flush()
    assert set(caught.value.anchors) == {first(one) for one in bad}
    counted(topology.ledger, tracked=404, acked=1, failed=1)
    topology.flush()  # it was said once, and nothing is left
    assert not topology.outbox.unsent
    act()
    topology.outbox.send_now()
    wait_until(lambda: str(first(bad[0])) in caplog.text)
    act()
    with pytest.raises(UnreadableRecord):
        topology.close()
    topology.close()
    assert topology.outbox.closed


def test_a_writer_whose_last_call_is_unreadable_keeps_nothing_else_back(url: str, raw: Any) -> None:
    topology = Topology(url, "tested", ackers=1, linger=15.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    writers, outcomes = (shard_key(topology.ledger, 0, name) for name in ("writers", "outcomes:s"))

    def damage(record: bytes) -> None:
        for writer in raw.hkeys(writers):
            raw.hset(writers, writer, record)

    tuples = [spout.emit(name)[0] for name in ("first", "second", "third")]
    topology.flush()
    bolt.ack(tuples[0])
    topology.flush()
    damage(b"99 0 0")  # it has made fewer calls
    bolt.ack(tuples[1])
    topology.flush()
    bolt.fail(tuples[2])
    topology.flush()
    for outcome in spout.outcomes(15.0):
        spout.confirm(outcome)
    damage(b"nonsense")
    spout.emit("fourth")
    with pytest.raises(UnreadableRecord):
        topology.flush()
    counted(topology.ledger, tracked=3, acked=2, failed=1, duplicates=1)
    assert raw.xlen(outcomes) == 0
    damage(b"2 nonsense")  # what it is answered is nobody's reply
    topology.flush()
    assert not topology.outbox.unsent


def test_a_tree_in_no_bucket_is_reported_by_the_own_timer(valkey_url: str, valkey_raw: Any) -> None:
    topology = Topology(valkey_url, "tested", ackers=1, message_timeout=1.0, linger=0.0)
    spout = topology.spout("s")
    spout.emit("lost")
    topology.flush()
    shard = topology.ledger.core.shards[0]
    valkey_raw.delete(shard.bucket(0))
    for _ in range(4):
        topology.tick(force=True)
    first = next(spout.outcomes(15.0))
    assert (first.message_id, first.status) == (b"lost", "expired")
