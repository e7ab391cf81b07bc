"""Acks that come too late are counted and reported, and dead letters say that batches take too long."""

import itertools

import numpy as np
import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.streams import Stream
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.staging import staging
from acker.streams.staging.late import Late
from acker.streams.staging.staging import Staged
from tests.helpers.builders.kept_rows import letters, lines, rows
from tests.helpers.builders.streaming import counters, emit, interleave, run_cut, stage, take

pytestmark = pytest.mark.cluster(slow=True)


def commit(ledger: Ledger, what: Commit, writer: str = "writer") -> list[Late]:
    """Commits, and returns what came too late."""
    reported: list[Late] = []
    assert ledger.run(commits.commit(ledger.core, writer, 0, what, reported.append))
    return reported


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


def late_acks(ledger: Ledger, stream: str = "lines") -> int:
    [one] = Stream(ledger, stream).totals().subscriptions
    return one.acks_late


@pytest.mark.parametrize("emits", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_acks_of_a_batch_of_expired_trees_are_told(ledger: Ledger, emits: bool, settled: bool) -> None:
    """The ledger may still know the trees, or have forgotten them because they are replayed."""
    how = SpoutOptions("s", "lines", "id", attempts=2, outcomes=True)
    StreamSpout(ledger, how).write(lines(12))
    staged = stage(ledger, [row["_acker"] for row in rows(ledger)] * 2, rows=7)
    batch = take(ledger, "lines")
    expire(ledger)
    if settled:
        assert settler.settle(ledger, "s").replayed == 12
    [late] = commit(ledger, Commit((staged,) if emits else (), (batch,)))
    assert (late.acks, late.rows) == (12, 12)
    assert 0 < late.age < 30
    assert late_acks(ledger) == 12
    assert "12 acks of its 12 rows came too late; the batch took 8.1 s; rows were acked" in late.text(
        "bolt 'x', batch 3", 5.0, 8.1
    )


def test_acks_in_time_and_those_of_trees_that_the_batch_fails_are_not_late(ledger: Ledger) -> None:
    anchors = emit(ledger, 20)
    failed = ledger.run(staging.stage_failures(ledger.core, 60, np.array(anchors[:5]), ["bad"] * 5))
    staged = (stage(ledger, anchors), Staged("", (), tuple(failed)))
    assert commit(ledger, Commit(staged, (take(ledger, "lines"),))) == []
    assert commit(ledger, Commit(inputs=(take(ledger, "words"),)), "next") != []  # five of another's fails
    assert (late_acks(ledger), late_acks(ledger, "words")) == (0, 5)
    assert counters(ledger)["acked"] == 15


def fails(ledger: Ledger, anchors: Ids) -> Staged:
    staged_ids = ledger.run(staging.stage_failures(ledger.core, 60, anchors, ["bad"] * len(anchors)))
    return Staged("", (), tuple(staged_ids))


@pytest.mark.parametrize("slab", [1, 1000])
@pytest.mark.parametrize("some", [1, 10])
def test_a_batch_that_fails_rows_is_late_for_none_of_them(ledger: Ledger, slab: int, some: int) -> None:
    """However its rows lie: alone and in slabs, some of a slab and all of it, in several segments."""
    anchors = emit(ledger, 400, slab=slab)
    rows = take(ledger, "lines")
    bad = anchors[::some]
    staged = stage(ledger, np.concatenate([anchors, anchors]), rows=300)
    twice = fails(ledger, np.concatenate([bad, bad])), fails(ledger, bad[:3])
    assert commit(ledger, Commit((staged, *twice), (rows,))) == []
    assert counters(ledger)["failed"] == len(bad)
    assert "late" not in counters(ledger)
    assert late_acks(ledger) == 0


def test_acks_of_a_tree_that_another_ended_are_late_though_the_batch_fails_it_too(ledger: Ledger) -> None:
    anchors = emit(ledger, 20)
    batch = take(ledger, "lines")
    ledger.fail(anchors[:3])
    assert [late.acks for late in commit(ledger, Commit((fails(ledger, anchors[:5]),), (batch,)))] == [3]
    assert counters(ledger)["late"] == 6  # three fails, and three acks
    assert (counters(ledger)["failed"], counters(ledger)["acked"]) == (5, 15)


def test_a_row_of_many_trees_is_late_for_none_that_its_batch_fails(ledger: Ledger) -> None:
    anchors = emit(ledger, 6)
    words = stage(ledger, [anchors[:4].tolist(), anchors[4:].tolist()])
    commit(ledger, Commit((words,), (take(ledger, "lines"),)))
    assert commit(ledger, Commit((fails(ledger, anchors[:4]),), (take(ledger, "words"),)), "next") == []
    assert counters(ledger) | {"duplicates": 0} == {
        "tracked": 6, "failed": 4, "acked": 2, "duplicates": 0
    }  # fmt: skip


def test_a_batch_that_fails_as_a_whole_is_late_for_no_tree_of_several_rows(ledger: Ledger) -> None:
    anchors = emit(ledger, 6)
    commit(ledger, Commit((stage(ledger, np.concatenate([anchors] * 3), rows=5),), (take(ledger, "lines"),)))
    assert commit(ledger, Commit((), (take(ledger, "words"),), failed="all of it"), "next") == []
    assert counters(ledger)["failed"] == 6
    assert "late" not in counters(ledger)


def test_a_commit_that_is_cut_and_run_by_two_drivers_counts_what_is_late_once(ledger: Ledger) -> None:
    """Cut after each of its exchanges, then two drivers finish it in turn."""
    for cut in itertools.count(1):
        fresh = open_ledger(ledger.store, f"cut{cut}", ackers=2)
        anchors = emit(fresh, 30)
        what = Commit((stage(fresh, anchors), fails(fresh, anchors[:10])), (take(fresh, "lines"),))
        fresh.fail(anchors[8:12])
        going = run_cut(fresh, commits.commit(fresh.core, "writer", 0, what), cut)
        interleave(fresh, *(commits.commit(fresh.core, "writer", 0, what) for _ in range(2)))
        # Of the four that another failed: two fails, four emitted words and four acks.
        found = counters(fresh)
        assert (found["late"], found["failed"]) == (10, 12), cut
        assert late_acks(fresh) in {0, 4}, cut  # a driver that is cut tells nobody
        if not going:
            return


def test_after_a_restart_rows_of_forgotten_trees_are_late_not_orphaned(ledger: Ledger) -> None:
    """A job comes back when all trees of its rows have expired, and their replays are on their way."""
    how = SpoutOptions("s", "lines", "id", attempts=2, outcomes=True)
    StreamSpout(ledger, how).write(lines(12))
    batch = take(ledger, "lines")
    expire(ledger)
    assert settler.settle(ledger, "s").replayed == 12
    [late] = commit(ledger, Commit(inputs=(batch,)))
    expire(ledger)
    assert late.acks == counters(ledger)["late"] == 12
    assert "orphaned" not in counters(ledger)


def test_a_dead_letter_that_expired_says_which_batches_take_longer_than_the_timeout(ledger: Ledger) -> None:
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1, outcomes=True)).write(lines(3))
    take(ledger, "lines")
    for step in (
        Step("slow", "bolt", seconds=44.44, late=3),
        Step("fast", "bolt", seconds=0.1, late=1),
        Step("long", "bolt", seconds=99.0),
    ):
        ledger.run(step_registry.register(ledger.core, step))
    expire(ledger)
    assert settler.settle(ledger, "s").dead == 3
    why = "not acked within the message timeout of 30 s; batches of 'slow' take 44.4 s"
    assert {one.reason for one in letters(ledger)} == {why}
    outcomes = rows(ledger, "s.outcomes")
    assert {row["reason"] for row in outcomes} == {why}
