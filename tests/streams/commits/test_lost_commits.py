"""Commits in whose middle the store loses its latest moments, as where a replica is promoted."""

from itertools import count
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.sources import roots
from acker.streams.staging import staging
from acker.streams.staging.staging import FAILED, Staged, Staging
from tests.helpers.builders.kept_rows import HOW, lines
from tests.helpers.builders.streaming import consume, counters, emit, stage, take
from tests.helpers.faults.simulator import Moment, moment, set_back
from tests.helpers.faults.stepping import Stepping


def stage_failing(ledger: Ledger, anchor: int) -> Staged:
    rows = pa.table({"word": ["bad"], "_acker": [anchor], FAILED: ["because"]})
    return ledger.run(staging.stage(ledger.core, Staging("words"), rows.to_batches()))


def run_set_back(ledger: Ledger, raw: Any, what: Commit, start: Moment, cut: int, back: int) -> int:
    """Runs a commit; after `cut` exchanges the store loses the last `back`, or all since `start`.

    Returns how many exchanges it had.
    """
    operation, replies, done = commit.commit(ledger.core, "writer", 0, what), None, 0
    try:
        while True:
            replies = ledger.store.send(operation.send(replies))  # type: ignore[arg-type]
            done += 1
            if done == cut - back:
                start = moment(raw)
            if done == cut:
                set_back(raw, start)
    except StopIteration:
        return done
    except AckerError:
        assert done >= cut
        return done


@pytest.mark.parametrize("back", [1, 3, 100])
def test_a_commit_acks_nothing_whose_rows_or_failures_the_store_has_lost(
    valkey_url: str, valkey_raw: "redis.Redis", back: int
) -> None:
    """Set back after each of its exchanges, it goes on: no tree of it is reported as acked.

    Without a loss each is complete with the acks of what was emitted.
    """
    for cut in count(1):
        valkey_raw.flushall()
        ledger = open_ledger(Store(valkey_url), "t", ackers=1)
        anchors = emit(ledger, 4)
        batch, start = take(ledger, "lines"), moment(valkey_raw)
        staged = (stage(ledger, anchors[:3]), stage_failing(ledger, int(anchors[3])))
        exchanges = run_set_back(ledger, valkey_raw, Commit(staged, (batch,)), start, cut, back)
        assert "acked" not in counters(ledger), cut
        if cut > exchanges:
            assert exchanges > 10
            assert consume(ledger, "words") == 1
            assert (counters(ledger)["acked"], counters(ledger)["failed"]) == (3, 1)
            assert not [key for key in valkey_raw.scan_iter() if b":made:" in key]
            return


@pytest.mark.parametrize("rotations", [0, 2, 3])
@pytest.mark.parametrize("slab", [1, 1000])
@pytest.mark.parametrize("fits", [True, False])
def test_emits_that_wait_for_a_lost_track_count_until_a_tick_may_have_dropped_them(
    valkey_url: str, valkey_raw: "redis.Redis", rotations: int, slab: int, fits: bool
) -> None:
    """A spout's commit goes on where the shard of its trees was set back alone, as in a cluster; another
    driver, for whom its record was set back, too, tracks them anew and finds what was emitted."""
    room = 1 << 20 if fits else 0
    ledger = open_ledger(Store(valkey_url), "t", ackers=1, slab_limit=slab, waiting_bytes=room)
    made = ledger.run(roots.stage(ledger.core, HOW, Staging("lines"), lines(3).to_batches()))
    what = Commit((stage(ledger, made[0].anchors()),), made)
    first = Stepping(ledger, commit.commit(ledger.core, "writer", 0, what))
    first.until("track")
    before = moment(valkey_raw)
    first.until("apply_staged")
    set_back(valkey_raw, before, {b"t:0/1"})
    first.until("publish")
    for _ in range(rotations):
        ledger.tick(force=True)
    set_back(valkey_raw, before, {b"t"})
    assert commit_again(ledger, what)
    merged = fits and rotations < 3
    assert counters(ledger).get("acked", 0) == 0
    assert counters(ledger)["tracked"] == 3
    assert consume(ledger, "words") == 1
    assert counters(ledger).get("acked", 0) == (3 if merged else 0)


def commit_again(ledger: Ledger, what: Commit) -> bool:
    return ledger.run(commit.commit(ledger.core, "writer", 0, what))
