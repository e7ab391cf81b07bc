"""Notes of what batches have sent: a batch that is committed takes its own with it, and those before it."""

import pytest

from acker.ledger.client import Ledger
from acker.spark.external.sending import Sends
from acker.spark.queries import batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import command
from acker.streams.staging.external.declaring import declare
from acker.streams.staging.external.rows.sending import Written
from tests.helpers.faults.stepping import Stepping


def begin(ledger: Ledger, number: int, run: str, *parts: str) -> Sends:
    """A run of a batch begins to write parts of a stream."""
    sends = Sends(ledger, MicroBatch("query", number, run))
    for part in parts:
        ledger.run(sends.begin("lines", part))
    return sends


def test_a_batch_that_ran_again_with_fewer_parts_leaves_no_note(ledger: Ledger) -> None:
    begin(ledger, 2, "first", "one")
    begin(ledger, 3, "first", "one", "two")
    begin(ledger, 4, "first", "one")
    ledger.run(begin(ledger, 3, "second", "one").forgetting())
    [left] = ledger.store.send([command("HKEYS", keys.external("t", "sent", "query"))])
    assert left == [b"4:lines:one"]


@pytest.mark.parametrize("tracks", [False, True])
def test_a_batch_that_tracks_never_notes_inputs_that_another_run_could_have(
    ledger: Ledger, tracks: bool
) -> None:
    """Its rows get new trees in each run. The driver may die at any point, and another one end the batch."""
    sends = begin(ledger, 2, "first", "one")
    if tracks:
        tracked = batch_roots.key_of(ledger.core, sends.batch)
        ledger.store.send([command("HSET", tracked, "source|roots:1", b"some")])
        ledger.store.send([command("EXPIRE", tracked, 60)])
    notes, noted = (
        keys.external("t", "sent", "query"),
        Stepping(ledger, sends.note("lines", "one", Written((), inputs="digest"))),
    )
    ledger.store.send([command("UNLINK", notes)])  # another driver has ended the batch
    while not noted.ended:
        noted.go_on(1)
        [text, left] = ledger.store.send([command("HGET", notes, "2:lines:one"), command("TTL", notes)])
        assert Written.load(text).inputs == ("" if tracks else "digest")
        assert left > 0


def test_rows_are_persisted_in_later_runs_and_a_removed_stream_is_not_made_again(ledger: Ledger) -> None:
    sends = begin(ledger, 2, "first", "one")
    ledger.run(declare(ledger.core, "lines"))
    sends.persist("lines")
    assert ledger.run(sends.begin("lines", "two"))[2]
    subscriptions = keys.Stream("t", "lines").subscriptions
    ledger.store.send([command("UNLINK", subscriptions)])
    sends.persist("lines")
    assert ledger.store.send([command("EXISTS", subscriptions)]) == [0]
