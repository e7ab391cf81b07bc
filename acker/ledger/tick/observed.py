"""Outcomes of observing spouts: ticks confirm them, because no program takes them.

An observing spout has a name that ends with `acker.ledger.settings.config.OBSERVED`, and no other spout may.
"""

from acker.ledger.calls.core import Core
from acker.ledger.outcomes.unread import confirm_unread
from acker.ledger.settings.config import OBSERVED
from acker.ledger.slabs import registries
from acker.store.operation import Operation


def confirm_all(core: Core) -> Operation[int]:
    """Confirms the outcomes of observing spouts; returns the number of trees.

    It knows the spouts by the shards' answers to the calls of a tick.
    """
    found = {name for registry in core.registries.values() for _, name in registries.spouts(registry)}
    trees = 0
    for name in sorted(one for one in found if one.endswith(OBSERVED)):
        trees += yield from confirm_unread(core, name)
    return trees
