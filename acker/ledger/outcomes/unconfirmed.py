"""Outcomes that a store still has: it may have been rolled back, or another reader has confirmed them."""

from collections.abc import Sequence

from acker.ledger.calls import scripts
from acker.ledger.calls.core import Core
from acker.ledger.outcomes.outcomes import Entry
from acker.store.operation import Request

_CHECKED = 500


def checks(core: Core, spout: str, entries: Sequence[Entry]) -> list[Request]:
    """Returns requests whose reply is 1 if the store still has some of a spout's outcomes, otherwise 0."""
    by_shard: dict[int, list[tuple[bytes, bytes]]] = {}
    for entry in entries:
        confirmation = entry.confirmation
        by_shard.setdefault(confirmation.shard, []).append((confirmation.id, confirmation.digest))
    return [
        scripts.check_outcomes(core.shards[shard].outcomes(spout), its[first : first + _CHECKED])
        for shard, its in by_shard.items()
        for first in range(0, len(its), _CHECKED)
    ]
