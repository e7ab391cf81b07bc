"""Acks that come too late are counted and told, and dead letters say that batches take too long."""

import numpy as np
import pytest

from acker import steps
from acker.ledger import Ledger
from acker.steps import Step
from acker.streams import Stream, commits, settler, staging
from acker.streams.commits import Commit
from acker.streams.late import Late
from acker.streams.roots import Tracking
from acker.streams.spout import StreamSpout
from acker.streams.staging import Staged
from tests.kept_rows import letters, lines, rows
from tests.streaming import counters, emit, stage, take

pytestmark = pytest.mark.cluster(slow=True)


def commit(ledger: Ledger, what: Commit, writer: str = "writer") -> list[Late]:
    """Commits, and returns what came too late."""
    told: list[Late] = []
    assert ledger.run(commits.commit(ledger.core, writer, 0, what, told.append))
    return told


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


def late_acks(ledger: Ledger, stream: str = "lines") -> int:
    [one] = Stream(ledger, stream).totals().subscriptions
    return one.acks_late


@pytest.mark.parametrize("emits", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_acks_of_a_batch_whose_trees_have_expired_are_told(
    ledger: Ledger, emits: bool, settled: bool
) -> None:
    """Whether the ledger still knows the trees, or has forgotten them because they are replayed."""
    how = Tracking("s", "lines", "id", attempts=2, outcomes=True)
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


def test_a_dead_letter_that_expired_says_which_batches_take_longer_than_the_timeout(ledger: Ledger) -> None:
    StreamSpout(ledger, Tracking("s", "lines", "id", attempts=1, outcomes=True)).write(lines(3))
    take(ledger, "lines")
    for step in (
        Step("slow", "bolt", seconds=44.44, late=3),
        Step("fast", "bolt", seconds=0.1, late=1),
        Step("long", "bolt", seconds=99.0),
    ):
        ledger.run(steps.register(ledger.core, step))
    expire(ledger)
    assert settler.settle(ledger, "s").dead == 3
    why = "not acked within the message timeout of 30 s; batches of 'slow' take 44.4 s"
    assert {one.reason for one in letters(ledger)} == {why}
    outcomes = rows(ledger, "s.outcomes")
    assert {row["reason"] for row in outcomes} == {why}
