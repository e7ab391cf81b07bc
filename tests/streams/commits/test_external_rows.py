"""Commits that send and receive rows of external streams: their vectors once, their bits behind all emits."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from acker import Topology
from acker.errors import StagingExpired
from acker.ledger import ids
from acker.store import keys
from acker.store.operation import command
from acker.streams import Stream
from acker.streams.commits import commit as commits
from acker.streams.commits import record
from acker.streams.commits.contents import Commit
from acker.streams.staging.external import declaring
from acker.streams.staging.external.rows import sending
from acker.streams.staging.vectors import CommitProgress
from tests.helpers.builders.external import source, work
from tests.helpers.builders.streaming import consume, stage, take
from tests.helpers.faults.cuts import as_in_a_cluster, chain_by_chain, script_by_script
from tests.helpers.faults.stepping import Stepping
from tests.helpers.worlds.commits import pass_time
from tests.helpers.worlds.external_commits import ROWS, Batch

pytestmark = pytest.mark.cluster(slow=True)


def opened(url: str) -> Topology:
    return Topology(url, "t", ackers=3, message_timeout=600.0, linger=None)


@pytest.fixture
def topology(url: str) -> Iterator[Topology]:
    with opened(url) as made:
        yield made


@pytest.fixture(params=[False, True], ids=["step by step", "at once"])
def batch(topology: Topology, request: pytest.FixtureRequest) -> Batch:
    return Batch(topology, at_once=request.param)


def test_its_rows_are_in_the_trees_before_what_it_received_is_acked(batch: Batch) -> None:
    found, stamps = batch.work()
    assert batch.ledger.run(batch.commit(0, found))
    assert batch.acked() == 0
    batch.count(stamps[:-1])
    assert batch.acked() == 0  # a segment is acked when all of its rows were worked on
    batch.count(stamps[-1:])
    assert batch.acked() == ROWS
    assert batch.topology.counters()["late"] == batch.topology.counters()["orphaned"] == 0


@pytest.mark.parametrize("ticks", [0, 4])
def test_words_that_were_counted_before_the_commit_count(batch: Batch, ticks: int) -> None:
    found, stamps = batch.work()
    batch.count(stamps)
    for _ in range(ticks):
        pass_time(batch.ledger)
    assert batch.acked() == 0
    assert batch.ledger.run(batch.commit(0, found))
    assert batch.acked() == ROWS


def test_words_that_are_counted_early_leave_what_was_sent_its_long_life(batch: Batch) -> None:
    core, (found, stamps) = batch.ledger.core, batch.work()
    assert batch.ledger.run(sending.hold(core, found.sent))
    batch.count(stamps[:-1])
    left = batch.ledger.store.send([command("TTL", key) for key, _ in sending.places(core, found.sent)])
    assert min(left) > 29 * 86400


@pytest.mark.parametrize("early", [False, True])
def test_what_a_driver_has_at_hand_is_committed_by_one_exchange(valkey_url: str, early: bool) -> None:
    """A cluster takes an exchange for each step."""
    with opened(valkey_url) as topology:
        batch = Batch(topology, at_once=True)
        found, stamps = batch.work()
        if early:
            batch.count(stamps)
        going = Stepping(batch.ledger, batch.commit(0, found))
        going.lose_reply()
        going.go_on(1)
        assert batch.ledger.run(record.is_done(batch.ledger.core, "w", 0))
        assert not going.ended  # notes of announced segments are left, and full segments
        for _ in range(2):  # the driver is gone: the ticker does it
            pass_time(topology.ledger)
        if not early:
            batch.count(stamps)
        assert batch.acked() == ROWS
        assert topology.counters()["late"] == topology.counters()["orphaned"] == 0


def test_rows_of_a_stream_that_was_made_anew_meanwhile_do_not_count(batch: Batch) -> None:
    found, stamps = batch.work()
    batch.ledger.store.send([command("HSET", keys.Stream("t", "items").subscriptions, "epoch", "1")])
    assert batch.ledger.run(batch.commit(0, found))
    batch.count(stamps)
    assert batch.acked() == 0


def test_nothing_is_acked_where_a_shard_has_lost_what_was_emitted(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_by_chain(monkeypatch)
    found, stamps = batch.work()
    going = Stepping(batch.ledger, batch.commit(0, found))
    going.until("receive")
    core = batch.ledger.core
    progress = CommitProgress.of_commit("w", 0, found.dump(), Counter(), None)
    lost = [command("UNLINK", progress.key(core, shard.number)) for shard in core.shards]
    assert sum(batch.ledger.store.send(lost)) > 0
    going.go_on()
    batch.count(stamps)
    assert batch.acked() == 0


@pytest.mark.parametrize("cut", [script_by_script, chain_by_chain, as_in_a_cluster])
@pytest.mark.parametrize("early", [False, True])
def test_a_commit_that_is_cut_anywhere_is_finished_by_another_process(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, cut: Callable[[pytest.MonkeyPatch], None], early: bool
) -> None:
    cut(monkeypatch)
    ended, number = False, 0
    while not ended:
        found, stamps = batch.work()
        before = batch.acked()
        if early:
            batch.count(stamps)
        going = Stepping(batch.ledger, batch.commit(number, found))
        going.go_on(number)
        ended = going.ended
        other, others = batch.work()  # the batch runs again, with other segments
        mine = batch.ledger.run(batch.commit(number, other))
        counted = others if mine else stamps
        if not early or mine:
            assert batch.acked() == before, number
            batch.count(counted)
        batch.count([*stamps, *others])  # rows that do not count change nothing
        assert batch.acked() == before + ROWS, number
        assert batch.topology.counters()["late"] == 0
        batch.headers = source(batch.topology, ROWS, rows=1)
        batch.topology.flush()
        number += 1
    assert number > 5


def test_a_stream_that_was_removed_takes_nothing_and_nothing_is_acked(batch: Batch) -> None:
    found, _ = batch.work()
    subscriptions = keys.Stream("t", "words").subscriptions
    batch.ledger.store.send([command("HSET", subscriptions, "stamp_key:0", "00" * 32)])
    assert batch.ledger.run(batch.commit(0, found))
    assert batch.acked() == 0


def test_a_subscription_that_was_dropped_meanwhile_owes_nothing(batch: Batch) -> None:
    batch.topology.incoming("words", subscription="other")
    found, stamps = batch.work()
    Stream(batch.ledger, "words").unsubscribe("other")
    assert batch.ledger.run(batch.commit(0, found))
    batch.count(stamps)
    assert batch.acked() == ROWS


def test_segments_of_which_only_bits_are_left_are_refused(batch: Batch) -> None:
    found, stamps = batch.work()
    places = sending.places(batch.ledger.core, found.sent)
    batch.ledger.store.send([command("UNLINK", key) for key, _ in places])
    batch.count(stamps)
    with pytest.raises(StagingExpired):
        batch.ledger.run(batch.commit(0, found))
    assert batch.acked() == 0


def test_words_of_rows_whose_records_are_tracked_four_ticks_later_count(url: str, topology: Topology) -> None:
    early = Batch(topology, tracked=False)
    found, stamps = early.work()
    assert early.ledger.run(early.commit(0, found))
    with opened(url) as other:
        work(other, [[("acker-stamp", stamp)] for stamp in stamps], stream="words")
        other.flush()
    for _ in range(4):
        pass_time(early.ledger)
    assert topology.counters()["tracked"] == 0
    topology.flush()
    pass_time(early.ledger)
    counters = topology.counters()
    assert (counters["acked"], counters["late"], counters["orphaned"]) == (ROWS, 0, 0)


def test_a_fail_by_tree_waits_for_a_track_as_long_as_the_bits_beside_it(topology: Topology) -> None:
    early = Batch(topology, tracked=False)
    failed, _ = early.failed()
    done = Commit((failed,), received=(early.received(),))
    assert early.ledger.run(commits.commit(early.ledger.core, "w", 0, done))
    for _ in range(4):
        pass_time(early.ledger)
    topology.flush()
    assert (early.acked(), topology.counters()["failed"]) == (ROWS - 1, 1)


def test_rows_beside_a_fail_that_has_no_room_are_not_acked(url: str) -> None:
    with Topology(url, "t", ackers=3, message_timeout=600.0, linger=None, waiting_bytes=0) as topology:
        early = Batch(topology, tracked=False)
        failed, beside = early.failed()
        done = Commit((failed,), received=(early.received(),))
        assert early.ledger.run(commits.commit(early.ledger.core, "w", 0, done))
        for _ in range(4):
            pass_time(early.ledger)
        topology.flush()
        assert (early.acked(), topology.counters()["failed"]) == (ROWS - beside, 0)


def test_rows_of_a_managed_stream_wait_for_a_track_as_long_as_bits(topology: Topology) -> None:
    early = Batch(topology, tracked=False)
    lines = stage(early.ledger, np.array(early.anchors(), dtype=np.int64), stream="lines")
    done = Commit((lines,), received=(early.received(),))
    assert early.ledger.run(commits.commit(early.ledger.core, "w", 0, done))
    for _ in range(4):
        pass_time(early.ledger)
    topology.flush()
    assert early.acked() == 0
    consume(early.ledger, "lines")
    assert early.acked() == ROWS


def test_rows_of_a_managed_stream_are_not_acked_beside_a_fail_that_has_no_room(topology: Topology) -> None:
    early = Batch(topology, tracked=False)
    core, anchors = early.ledger.core, np.array(early.anchors(), dtype=np.int64)
    lines = stage(early.ledger, anchors, stream="lines")
    assert early.ledger.run(commits.commit(core, "w", 0, Commit((lines,), received=(early.received(),))))
    failed, _ = early.failed()
    no_room = replace(core, config=replace(core.config, waiting_bytes=0))
    done = Commit((failed,), (take(early.ledger, "lines"),))
    assert early.ledger.run(commits.commit(no_room, "behind", 0, done))
    topology.flush()
    slabs = ids.split(anchors)[0]
    beside = int((slabs == slabs[0]).sum())
    assert (early.acked(), topology.counters()["failed"]) == (ROWS - beside, 0)


def test_a_note_of_sent_segments_lives_long_until_the_commit_is_done_and_then_as_long_as_stamps(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_by_chain(monkeypatch)
    core = batch.ledger.core
    found, _ = batch.work()
    [[(segment, _)]] = [one.segments for one in found.sent]
    left = command("TTL", keys.Stream("t", "words").announced(segment.id))
    going = Stepping(batch.ledger, batch.commit(0, found))
    going.until("receive")
    assert batch.ledger.store.send([left])[0] > 86400
    assert not batch.ledger.run(batch.commit(0, batch.work()[0]))  # another process finishes it
    assert 0 < batch.ledger.store.send([left])[0] <= core.config.stamp_ttl + declaring.MARGIN
    going.go_on()
    assert 0 < batch.ledger.store.send([left])[0] <= core.config.stamp_ttl + declaring.MARGIN
