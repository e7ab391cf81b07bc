"""Notes that tasks leave for the driver: what their batch reads.

They are of one run of a query: what a run that was cut short has read, the next one need not read.
"""

from dataclasses import replace

from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import holders
from acker.streams.log.subscriptions import Range


def note(ledger: Ledger, batch: MicroBatch, read: Range) -> None:
    """Notes that a batch reads a range. The range is the batch's: any attempt of any task may note it."""
    key = _key(ledger.core, batch)
    ledger.store.send(
        [
            command("SADD", key, read.dump()),
            command("EXPIRE", key, RECORD_TTL),
            holders.noting(ledger.core, read, batch.query, batch.number),
        ]
    )


def noted(ledger: Ledger, batch: MicroBatch) -> tuple[Range, ...]:
    """The ranges that a batch reads, as far as noted. Raises UnreadableRecord."""
    return ledger.run(ranges(ledger.core, batch))


def ranges(core: Core, batch: MicroBatch) -> Operation[tuple[Range, ...]]:
    """What `noted` runs."""
    [found] = yield [command("SMEMBERS", _key(core, batch))]
    merged: dict[Range, list[str]] = {}
    for one in map(Range.load, sorted(found)):
        merged.setdefault(replace(one, skipped=""), []).append(one.skipped)
    return tuple(replace(one, skipped=" ".join(filter(None, all_of))) for one, all_of in merged.items())


def forget(ledger: Ledger, batch: MicroBatch) -> None:
    """Drops the notes of a batch."""
    ledger.store.send([command("UNLINK", _key(ledger.core, batch))])


def _key(core: Core, batch: MicroBatch) -> bytes:
    return keys.notes(core.config.name, batch.query, batch.run, batch.number)
