"""Store loss: a spout's query ends with `StoreLost` if the store has lost its commits.

The rows of a spout are only in the store from their batch's commit until they are acked: its source does not
give them again. So the query records in its own checkpoint the epoch of the store that it has committed to
(`acker.ledger.settings.topologies.epoch`), and its batches with waiting rows. A recreated store has another
epoch; a store that was rolled back has the same, and lacks the commit of the batch before.
"""

import logging
import time
from typing import Any

from acker.errors import StoreLost
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.settings import topologies
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.sources import roots
from acker.streams.sources.spout_options import replays_stream

REPLAYS = replays_stream("")
_REFRESH = 60.0
"""Seconds after which the waiting rows are recorded anew: that alone makes Spark plan a batch."""
_HOW = (
    "acker.spark.read_again lets the query read these again from its source; the option after_loss='go on' "
    "gives up the rows that waited there"
)
_log = logging.getLogger(__name__)


class Losses:
    """Compares the offsets of a source of replays with the store, and marks them."""

    def __init__(self, ledger: Ledger, stream: str, after_loss: str) -> None:
        self._ledger = ledger
        self._spout = stream.removesuffix(REPLAYS)
        self._go_on = after_loss == "go on"
        self._noted = -_REFRESH  # each run records it once: waiting rows may be done since

    def check(self, offset: dict[str, Any]) -> None:
        """Raises StoreLost if an offset has another epoch of the store; `read_again` removes the epoch."""
        if "epoch" not in offset or offset["epoch"] == self._epoch():
            return
        waited = ", ".join(
            f"of batch {first:,} and later of query {query}"
            for query, first in offset.get("pending", {}).items()
        )
        loss = (
            f"the store has lost the commits of spout {self._spout!r} of topology "
            f"{self._ledger.config.name!r}, or the topology was removed: rows {waited or 'of any batch'} "
            "that waited for their outcome are nowhere else"
        )
        if not self._go_on:
            raise StoreLost(f"{loss}. {_HOW}")
        _log.warning("%s, and the query goes on without them, as after_loss says", loss)

    def marks(self, start: dict[str, Any] | None, moved: bool) -> dict[str, Any]:
        """Returns the marks of an offset: the start's marks if nothing has moved, or Spark plans a batch."""
        epoch = self._epoch()
        before = start if start is not None and start.get("epoch") == epoch else {}
        kept: dict[str, Any] = {name: before[name] for name in ("epoch", "pending") if name in before}
        if kept and not moved and time.monotonic() - self._noted < _REFRESH:
            return kept
        self._noted = time.monotonic()
        return {"epoch": epoch, "pending": {**before.get("pending", {}), **self._pending()}}

    def _pending(self) -> dict[str, int]:
        """Returns the first batch with waiting rows, by query."""
        [records] = self._ledger.store.send(
            [command("HVALS", keys.Spout(self._ledger.config.name, self._spout).kept)]
        )
        batches: dict[str, int] = {}
        for one in map(roots.readable, records):
            if one is not None and one.origin is not None:
                query, batch = one.origin
                batches[query] = min(batch, batches.get(query, batch))
        return batches

    def _epoch(self) -> str:
        return self._ledger.run(topologies.epoch(self._ledger.config.name))


def check_commits(
    ledger: Ledger, at: MicroBatch, last: int | None, after_loss: str, spout: bool = False
) -> None:
    """Raises StoreLost as `checking` does."""
    ledger.run(checking(ledger.core, at, last, after_loss, spout))


def checking(
    core: Core, at: MicroBatch, last: int | None, after_loss: str, spout: bool = False
) -> Operation[None]:
    """Raises StoreLost if the store lacks the previous commit of a spout's query.

    last: the batch that was committed before this one, if known. spout: True if the query is a spout in any
    case; otherwise the store tells if an earlier commit has tracked rows.
    """
    before = at.number - 1 if last is None else last
    if before < 0 or after_loss == "go on":
        return
    [(committed, marked)] = yield [
        command("HMGET", keys.commits(core.config.name, at.query), "last", "spout")
    ]
    if committed is None and not spout:
        return
    if committed is not None and (int(committed) >= before or not (spout or marked)):
        return
    first = 0 if committed is None else int(committed) + 1
    raise StoreLost(
        f"topology {core.config.name!r} has no commit of batch {before:,} of query {at.query}"
        f"{'' if committed is None else f', its last is of batch {int(committed):,}'}: the store has "
        f"lost it, or was rolled back, and rows of batches {first:,} to {before:,} that waited are nowhere "
        f"else; or these batches had another sink, or are older than 29 days. {_HOW}"
    )


def mark(ledger: Ledger, at: MicroBatch) -> None:
    """Records that the commits of a query track rows."""
    ledger.store.send([command("HSET", keys.commits(ledger.config.name, at.query), "spout", 1)])
