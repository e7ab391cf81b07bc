"""Spouts that keep their rows, or ids, in the store: what is cut, overtaken or lost is made up for, once."""

from typing import Any

import pytest
import redis

from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store.client import Store
from acker.streams.commits import commit, publishing
from acker.streams.commits.contents import Commit
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import lost_trees, settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.kept_rows import HOW, Keeping, consume, lines, pending, rows
from tests.helpers.builders.streaming import counters
from tests.helpers.faults.cuts import as_in_a_cluster
from tests.helpers.models.leaks import kind_of

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def test_a_spout_is_found_also_by_who_opens_the_topology_after_the_store_lost_everything(
    ledger: Ledger, keeping: Keeping, raw: "redis.Redis", url: str
) -> None:
    ledger.register_spout("other")
    keeping.write(ledger, lines(5))
    raw.flushall()
    opened = open_ledger(Store(url), "t", ackers=3, slab_limit=100)
    keeping.write(ledger, lines(10))
    consume(opened)
    assert settler.settle(opened) == Stepped(acked=10)


def test_a_spout_tells_an_empty_store_its_settings(
    ledger: Ledger, keeping: Keeping, raw: "redis.Redis", url: str
) -> None:
    ledger.register_spout("other")
    raw.flushall()
    keeping.write(ledger, lines(10))
    opened = open_ledger(Store(url), "t", create=False)
    assert opened.config == ledger.config
    assert opened.core.spouts == ledger.core.spouts
    assert opened.core.spouts == {HOW.spout, "other"}
    consume(opened)
    assert settler.settle(opened) == Stepped(acked=10)


def test_rows_that_are_settled_again_count_once(ledger: Ledger, keeping: Keeping) -> None:
    """Outcomes of some trees of a slab are settled, but not confirmed before the process dies."""
    keeping.write(ledger, lines(50))
    ledger.fail([row["_acker"] for row in rows(ledger) if row["id"] % 5 == 0])
    entries = ledger.run(OutcomeReader(ledger.core, "s").read())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acker.ledger.outcomes.outcomes.confirm", lambda *_: iter(()))
        for _ in range(2):
            settling = ledger.run(kept_rows.settling(ledger.core, "s", entries))
            ledger.store.send(list(settling.settles))
    assert pending(ledger) == {"pending": 40, "acked": 0, "replayed": 10, "dead": 0}


def test_a_commit_that_goes_on_late_tracks_no_tree_again(ledger: Ledger, keeping: Keeping) -> None:
    how = SpoutOptions("s", "lines", "id", attempts=1)
    tracked, staged = keeping.emit(ledger, lines(200), how)
    work = Commit((staged,), tracked)
    with pytest.MonkeyPatch.context() as patch:
        as_in_a_cluster(patch)
        patch.setattr(publishing, "divide", _cut)
        with pytest.raises(RuntimeError, match="cut"):
            ledger.run(commit.commit(ledger.core, "w", 0, work))
    first_slab = tracked[0].anchors()[:100]
    ledger.fail(first_slab, "meanwhile")
    assert keeping.settle(ledger) == Stepped(dead=100)
    ledger.run(commit.finish(ledger.core, "w", 0))
    consume(ledger)
    assert counters(ledger)["tracked"] == 200
    assert keeping.settle(ledger) == Stepped(acked=100)


def _cut(*_: Any, **__: Any) -> Any:
    raise RuntimeError("cut")


def test_trees_that_the_ledger_lost_are_failed_and_tried_again(
    ledger: Ledger, keeping: Keeping, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping.write(ledger, lines(250))
    anchors = [row["_acker"] for row in rows(ledger)]
    assert settler.recover(ledger) == 0
    monkeypatch.setattr(lost_trees, "AFTER", 0.0)
    assert settler.recover(ledger) == 0  # late, but known
    for key in raw.scan_iter():
        if kind_of(key) in ("slabs", "ack", "bucket", "message_ids") and b"@" not in key:
            raw.delete(key)
    ledger.update(anchors[:1], [1])  # what comes for a tree that is lost waits for it
    assert settler.recover(ledger) == 250
    assert settler.recover(ledger) == 0
    assert keeping.settle(ledger) == Stepped(replayed=250)
    assert pending(ledger)["pending"] == 250
    again = [row for row in rows(ledger) if row["attempt"] == 2]
    assert sorted(row["id"] for row in again) == list(range(250))


def test_rows_of_a_lost_commit_are_tried_again(
    ledger: Ledger, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_trees, "AFTER", 0.0)
    tracked, staged = keeping.emit(ledger, lines(5))
    with pytest.MonkeyPatch.context() as patch:
        as_in_a_cluster(patch)
        patch.setattr("acker.streams.sources.tracking.track_calls", _cut)
        with pytest.raises(RuntimeError, match="cut"):
            ledger.run(commit.commit(ledger.core, "w", 0, Commit((staged,), tracked)))
    assert (pending(ledger)["pending"], counters(ledger)) == (5, {})
    assert settler.recover(ledger, "s") == 5
    assert keeping.settle(ledger) == Stepped(replayed=5)
    assert [row["attempt"] for row in rows(ledger)] == [2] * 5
