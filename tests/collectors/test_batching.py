"""The messages that spouts and bolts gather before they send, and the limits of what is pending."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import redis

from acker import Outcome, SpoutPendingFull, Topology, ValidationError
from acker.ledger import ids
from acker.ledger.ids import seeded_ids
from tests.helpers.builders.collectors import Make, reported, statuses
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster(slow=True)


@pytest.mark.one_server
def test_emits_within_the_linger_share_a_slab_and_a_round_trip(make: Make, raw: "redis.Redis") -> None:
    topology = make(ackers=1, slab_limit=256)
    spout = topology.spout("s")
    tuples = [spout.emit(str(number))[0] for number in range(300)]
    assert raw.hlen("acker:{t:0/1}:slabs") == 0
    before = int(raw.info("commandstats")["cmdstat_evalsha"]["calls"])
    topology.flush()
    assert raw.hlen("acker:{t:0/1}:slabs") == 2
    assert int(raw.info("commandstats")["cmdstat_evalsha"]["calls"]) == before + 1
    assert [ids.index_of(each.anchors[0]) for each in tuples] == [*range(256), *range(44)]
    spout.emit("another")
    topology.flush()
    assert raw.hlen("acker:{t:0/1}:slabs") == 3


def test_the_linger_sends_by_itself(url: str) -> None:
    with Topology(url, "t", linger=0.005) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        bolt.ack(spout.emit("m")[0])
        [outcome] = wait_until(lambda: list(spout.outcomes(timeout=0.1)))
        spout.confirm(outcome)
        wait_until(lambda: not topology.outbox.unsent)
    topology.close()


def test_emit_many_gives_vectors_and_tracks_at_once(make: Make) -> None:
    topology = make(slab_limit=1000)
    spout = topology.spout("s")
    message_ids = [f"m{number}" for number in range(2500)]
    anchors, tuple_ids = spout.emit_many(message_ids, seeded_ids(7, 0, 2500))
    assert tuple_ids.tolist() == seeded_ids(7, 0, 2500).tolist()
    assert anchors.dtype == tuple_ids.dtype == np.int64
    assert len(np.unique(anchors)) == 2500
    assert spout.pending == 2500
    assert topology.counters()["tracked"] == 2500
    topology.ledger.update(anchors, tuple_ids)
    outcomes = reported(spout, 2500)
    assert statuses(outcomes) == {message_id.encode(): "acked" for message_id in message_ids}
    assert [o.anchor for o in sorted(outcomes, key=lambda o: int(o.message_id[1:]))] == anchors.tolist()
    for outcome in outcomes:
        spout.confirm(outcome)
    topology.flush()
    reported(topology.spout("s"), 0)


def test_emit_many_names_what_is_wrong(make: Make) -> None:
    spout = make().spout("s", max_spout_pending=3)
    with pytest.raises(ValidationError, match="values"):
        spout.emit_many(["a", "b"], [1])
    with pytest.raises(ValidationError, match="not zero"):
        spout.emit_many(["a", "b"], [1, 0])
    with pytest.raises(ValidationError, match="max_spout_pending"):
        spout.emit_many(["a"] * 4)
    assert [len(each) for each in spout.emit_many([])] == [0, 0]
    assert spout.pending == 0
    spout.emit_many(["a"] * 3)
    with pytest.raises(SpoutPendingFull):
        spout.emit_many(["a"], wait=False)


def test_over_the_high_water_mark_each_record_is_reported_as_rejected(make: Make) -> None:
    topology = make(ackers=1, high_water_mark=10)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    kept = [spout.emit(f"kept{number}")[0] for number in range(10)]
    topology.flush()
    anchors, _ = spout.emit_many(["over1", "over2"])
    outcomes = reported(spout, 2)
    assert statuses(outcomes) == {b"over1": "rejected", b"over2": "rejected"}
    assert {o.anchor for o in outcomes} == set(anchors.tolist())
    assert all("high-water mark of 10" in o.reason and o.latency is None for o in outcomes)
    for each in kept:
        bolt.ack(each)
    for outcome in reported(spout, 10):
        spout.confirm(outcome)
    topology.flush()
    bolt.ack(spout.emit("again")[0])
    assert statuses(reported(spout)) == {b"again": "acked"}


# max_spout_pending


def test_max_spout_pending_is_exact(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s", max_spout_pending=2), topology.bolt("b")
    tuples = [spout.emit(str(number))[0] for number in range(2)]
    assert len(spout.emit(None)) == 1
    for arguments in ({"wait": False}, {"timeout": 0.05}):
        with pytest.raises(SpoutPendingFull, match="max_spout_pending is 2"):
            spout.emit("over", **arguments)
    bolt.ack(tuples[0])
    reported(spout)
    spout.emit("2", wait=False)
    with pytest.raises(SpoutPendingFull):
        spout.emit("3", wait=False)
    assert spout.pending == 2


def test_an_emit_that_waits_reads_outcomes_itself(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s", max_spout_pending=1), topology.bolt("b")
    for number in range(5):
        [each] = spout.emit(str(number), timeout=20)
        bolt.ack(each)
    assert [o.message_id for o in reported(spout, 5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_an_emit_that_waits_goes_on_when_another_thread_takes_outcomes(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s", max_spout_pending=1), topology.bolt("b")
    [first] = spout.emit("first")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(spout.emit, "second", timeout=20)
        taken = pool.submit(lambda: list(spout.outcomes(timeout=20)))
        bolt.ack(first)
        topology.flush()
        bolt.ack(waiting.result(30)[0])
        outcomes = taken.result(30)
    assert b"first" in {o.message_id for o in outcomes}
    assert len(outcomes) + len(reported(spout, 2 - len(outcomes))) == 2


def test_many_threads_share_spout_and_bolt(make: Make) -> None:
    topology = make(linger=0.001)
    spout, bolt = topology.spout("s", max_spout_pending=50), topology.bolt("b")
    seen: list[Outcome] = []
    done = threading.Event()

    def emit(thread: int) -> None:
        for number in range(100):
            for each in spout.emit(f"{thread}-{number}", targets=2, timeout=60):
                with bolt.processing(each) as collector:
                    children = collector.emit(targets=2)
                for child in children:
                    bolt.ack(child)

    def take() -> None:
        while not done.is_set():
            for outcome in spout.outcomes(timeout=0.05):
                seen.append(outcome)
                spout.confirm(outcome)
            assert spout.pending <= 50

    with ThreadPoolExecutor(8) as pool:
        takers = [pool.submit(take) for _ in range(2)]
        for emitter in [pool.submit(emit, thread) for thread in range(4)]:
            emitter.result(60)
        wait_until(lambda: len(seen) >= 400, timeout=30)
        done.set()
        for taker in takers:
            taker.result(10)
    assert statuses(seen) == {f"{t}-{n}".encode(): "acked" for t in range(4) for n in range(100)}
    topology.flush()
    reported(topology.spout("s"), 0)
