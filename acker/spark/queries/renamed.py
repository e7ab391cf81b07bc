"""A bolt that has another name than its query's bolt had before: what that one holds is not its own."""

import logging

from acker.ledger.client import Ledger
from acker.ledger.steps import step_registry
from acker.spark.queries.microbatches import MicroBatch
from acker.streams.log.stream_totals import stream_totals

_log = logging.getLogger(__name__)


def look(ledger: Ledger, at: MicroBatch, name: str) -> None:
    """Logs where rows are held under the name that the bolt of a query had before."""
    known = ledger.run(step_registry.steps(ledger.core))
    mine = {one.name for one in known if one.kind == "bolt" and one.query_id == at.query}
    others = {one.name for one in known if one.query_id != at.query}
    earlier = mine - {name} - others  # who still goes by a name elsewhere takes what is held under it
    if not earlier:
        return
    for one in ledger.run(stream_totals(ledger.core)):
        bolt, _, held = one.name.rpartition(".")
        if bolt in earlier and one.segments:
            rows = sum(own.rows_behind for own in one.subscriptions)
            _log.warning(
                "query %s has run bolt %r before, which holds %s rows as %r in stream %r: bolt %r does not "
                "take them, nor does it know what that one has done once. Give it the old name again, or "
                "take them in a job with collector.take(%r)",
                at.query, bolt, f"{rows:,}", held, one.name, name, one.name,
            )  # fmt: skip
