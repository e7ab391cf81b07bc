"""Notes that tasks leave for the driver: what their batch reads."""

import json
from dataclasses import astuple
from typing import cast

from acker import keys
from acker.ledger import Ledger
from acker.requests import Operation, command
from acker.spark.microbatches import Batch
from acker.streams.commits import RECORD_TTL
from acker.streams.subscriptions import Range


def note(ledger: Ledger, batch: Batch, read: Range) -> None:
    """Notes that a batch reads a range. The range is the batch's: any attempt of any task may note it."""
    key = keys.notes(ledger.config.name, batch.query, batch.number)
    text = json.dumps(astuple(read))
    ledger.store.send([command("SADD", key, text), command("EXPIRE", key, RECORD_TTL)])


def noted(ledger: Ledger, batch: Batch) -> tuple[Range, ...]:
    """The ranges that a batch reads, as far as noted."""

    def read() -> Operation[list[bytes]]:
        [found] = yield [command("SMEMBERS", keys.notes(ledger.config.name, batch.query, batch.number))]
        return cast(list[bytes], found)

    return tuple(Range(*json.loads(text)) for text in sorted(ledger.run(read())))


def forget(ledger: Ledger, batch: Batch) -> None:
    """Drops the notes of a batch."""
    ledger.store.send([command("UNLINK", keys.notes(ledger.config.name, batch.query, batch.number))])
