"""Records that fail cost the same whatever their reasons: in a commit, a settler, a bolt in plain Python."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.causes import texts
from acker.store.client import Store
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from acker.streams.staging import staging
from acker.streams.staging.staging import Staged, Staging
from tests.helpers.builders.kept_rows import rows
from tests.helpers.builders.streaming import commit, record_requests

RECORDS = 2_000
REASONS: list[Callable[[int], str]] = [lambda _: "negative", lambda number: f"negative: {number}"]


def failed(ledger: Ledger, reasons: list[str], **how: Any) -> None:
    """A batch that tracks records and fails all of them."""
    spout, core = SpoutOptions("s", "lines", "id", **how), ledger.core
    table = pa.table({"id": list(range(len(reasons)))})
    made = ledger.run(roots.stage(core, spout, Staging("lines"), table.to_batches()))
    anchors = np.concatenate([one.anchors() for one in made])
    staged_ids = ledger.run(staging.stage_failures(core, 3600, anchors, texts(reasons, "split", 7)))
    commit(ledger, 0, Commit((Staged("", (), tuple(staged_ids)),), made))


@pytest.mark.parametrize("attempts", [2, 1])
def test_failed_records_and_settling_take_few_requests(valkey_url: str, attempts: int) -> None:
    sent: dict[int, tuple[int, int]] = {}
    for number, reason in enumerate(REASONS):
        ledger = open_ledger(Store(valkey_url), f"t{number}", ackers=1, slab_limit=1000)
        reasons, requests = [reason(record) for record in range(RECORDS)], list[Any]()
        record_requests(ledger, partial(failed, ledger, reasons, attempts=attempts), requests)
        committed = len(requests)
        settled = record_requests(ledger, partial(settler.settle, ledger), requests)
        sent[number] = committed, len(requests) - committed
        assert settled == (Stepped(replayed=RECORDS) if attempts > 1 else Stepped(dead=RECORDS))
        if attempts == 1:
            found = list(_letters(ledger))
            assert {one["id"]: one["reason"] for one in found} == dict(enumerate(reasons))
            assert {(one["step"], one["batch"]) for one in found} == {("split", 7)}
        else:
            assert len(rows(ledger)) == RECORDS
    for one, own in zip(*sent.values(), strict=True):
        assert own <= 1.1 * one


def _letters(ledger: Ledger) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        page = ledger.run(dead_letters.page(ledger.core, None, limit=1000, cursor=cursor))
        for one in page.letters:
            yield {"id": int(one.message_id), "reason": one.reason, "step": one.step, "batch": one.batch}
        if page.cursor is None:
            return
        cursor = page.cursor


def test_a_bolt_in_plain_python_sends_no_more_calls(valkey_url: str) -> None:
    calls = []
    for number, reason in enumerate(REASONS):
        with Topology(valkey_url, f"p{number}", ackers=1, linger=60.0, slab_limit=1000) as topology:
            spout, bolt = topology.spout("s"), topology.bolt("b")
            tuples = [spout.emit(f"m{record}")[0] for record in range(500)]
            topology.flush()
            for record, one in enumerate(tuples):
                bolt.fail(one, reason=reason(record))
            requests = list[Any]()
            record_requests(topology.ledger, topology.flush, requests)
            calls.append(sum(one.script is not None and one.script.name == "fail" for one in requests))
            found = list(spout.outcomes(timeout=10.0))
            while len(found) < 500:
                found += spout.outcomes(timeout=10.0)
            assert {one.message_id: one.reason for one in found} == {
                b"m%d" % record: reason(record) for record in range(500)
            }
    assert calls[0] == calls[1]
