"""What a spout's query does when the store has lost what it had committed: it ends with `StoreLost`.

The rows of a spout are in the store alone from their batch's commit until they are acked: its source does not
give them again. So the query notes in its own checkpoint which life of the store it has committed to
(`acker.ledger.settings.topologies.life`), and from which of its batches rows waited. A store that was made
anew has another life; one that was set back has the same, and lacks the commit of the batch before.
"""

import logging
import time
from typing import Any

from acker.errors import StoreLost
from acker.ledger.client import Ledger
from acker.ledger.settings import topologies
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import command
from acker.streams.sources import roots
from acker.streams.sources.spout_options import replays_stream

REPLAYS = replays_stream("")
_REFRESH = 60.0
"""Seconds after which what waits is noted anew: that alone makes Spark plan a batch."""
_HOW = (
    "acker.spark.read_again lets the query read these again from its source; the option after_loss='go on' "
    "leaves lost what waited there"
)
_log = logging.getLogger(__name__)


class Losses:
    """Of one source of replays: compares its offsets with the store, and marks them."""

    def __init__(self, ledger: Ledger, stream: str, after_loss: str) -> None:
        self._ledger = ledger
        self._spout = stream.removesuffix(REPLAYS)
        self._go_on = after_loss == "go on"
        self._noted = -_REFRESH  # each run notes it once: what waited may be done since

    def check(self, offset: dict[str, Any]) -> None:
        """Raises StoreLost where an offset is of another life of the store; `read_again` takes it out."""
        if "life" not in offset or offset["life"] == self._life():
            return
        waited = ", ".join(
            f"of batch {first:,} and later of query {query}"
            for query, first in offset.get("pending", {}).items()
        )
        what = (
            f"the store has lost what spout {self._spout!r} of topology {self._ledger.config.name!r} had "
            f"committed to it, or the topology was removed: rows {waited or 'of any batch'} that waited for "
            "their outcome are nowhere else"
        )
        if not self._go_on:
            raise StoreLost(f"{what}. {_HOW}")
        _log.warning("%s, and the query goes on without them, as after_loss says", what)

    def marks(self, start: dict[str, Any] | None, moved: bool) -> dict[str, Any]:
        """The note in an offset: that of the start where nothing has moved, or Spark plans a batch."""
        life = self._life()
        before = start if start is not None and start.get("life") == life else {}
        kept: dict[str, Any] = {name: before[name] for name in ("life", "pending") if name in before}
        if kept and not moved and time.monotonic() - self._noted < _REFRESH:
            return kept
        self._noted = time.monotonic()
        return {"life": life, "pending": {**before.get("pending", {}), **self._pending()}}

    def _pending(self) -> dict[str, int]:
        """Query -> its first batch of which rows wait."""
        [records] = self._ledger.store.send(
            [command("HVALS", keys.Spout(self._ledger.config.name, self._spout).kept)]
        )
        found: dict[str, int] = {}
        for one in map(roots.readable, records):
            if one is not None and one.origin is not None:
                query, batch = one.origin
                found[query] = min(batch, found.get(query, batch))
        return found

    def _life(self) -> str:
        return self._ledger.run(topologies.life(self._ledger.config.name))


def check_commits(
    ledger: Ledger, at: MicroBatch, last: int | None, after_loss: str, spout: bool = False
) -> None:
    """Raises StoreLost where the store does not know the commit of the batch before that of a spout's query.

    last: the batch that was committed before this one, where that is known. spout: the query is one in any
    case; otherwise the store tells, where an earlier commit has tracked rows.
    """
    before = at.number - 1 if last is None else last
    if before < 0 or after_loss == "go on":
        return
    [(known, marked)] = ledger.store.send(
        [command("HMGET", keys.commits(ledger.config.name, at.query), "last", "spout")]
    )
    if known is None and not spout:
        return
    if known is not None and (int(known) >= before or not (spout or marked)):
        return
    first = 0 if known is None else int(known) + 1
    raise StoreLost(
        f"topology {ledger.config.name!r} knows no commit of batch {before:,} of query {at.query}"
        f"{'' if known is None else f', its last is of batch {int(known):,}'}: the store has lost it, or was "
        f"set back, and rows of batches {first:,} to {before:,} that waited for their outcome are nowhere "
        f"else; or these batches had another sink, or are older than 29 days. {_HOW}"
    )


def mark(ledger: Ledger, at: MicroBatch) -> None:
    """Notes that the commits of a query track rows."""
    ledger.store.send([command("HSET", keys.commits(ledger.config.name, at.query), "spout", 1)])
