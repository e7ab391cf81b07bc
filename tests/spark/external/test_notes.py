"""Notes of what batches have sent: a batch that is committed takes its own with it, and those before it."""

from acker.ledger.client import Ledger
from acker.spark.external.sending import Sends
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import command


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
