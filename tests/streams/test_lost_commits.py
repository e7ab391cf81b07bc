"""Commits in whose middle the store loses its latest moments, as where a replica is promoted."""

from itertools import count
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams.commits import commit, staging
from acker.streams.commits.contents import Commit
from acker.streams.commits.staging import FAILED, Staged, Staging
from tests.helpers.streaming import consume, counters, emit, stage, take
from tests.helpers.turns import Moment, moment, set_back


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
