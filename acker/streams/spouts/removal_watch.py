"""Notices that a topology was removed and made anew, for threads that serve a spout of the removed one."""

import logging

from acker.ledger.client import Ledger
from acker.store import keys
from acker.store.operation import command

_log = logging.getLogger(__name__)


class RemovalWatch:
    """Notices that a topology was removed and made anew: its spout of that name may be another one.

    Args:
        action: Words of the log for what the process does no more: "asks for no rows of its spout 's'".

    Attributes:
        removed: True once the topology was removed and made anew.
    """

    def __init__(self, action: str) -> None:
        self.removed = False
        self._action = action
        self._epoch = b""

    def look(self, ledger: Ledger) -> bool:
        """Looks at the topology, and returns `removed`. A store that has lost it knows of no removal."""
        name = ledger.config.name
        looks = [command("HGET", keys.config(name), "epoch"), command("GET", keys.removals(name))]
        epoch, removals = ledger.store.send(looks)
        removed = self._epoch in (removals or b"").split()
        if self._epoch not in (b"", epoch) and removed and not self.removed:
            self.removed = True
            _log.error(
                "topology %s was removed and made anew: this process %s. Start the query again, so that it "
                "does",
                name, self._action,
            )  # fmt: skip
        self._epoch = epoch or self._epoch
        return self.removed
