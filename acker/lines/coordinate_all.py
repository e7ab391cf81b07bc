"""Coordinating for a whole store: every ticker and settler also releases gathered groups.

So a line whose steps are Spark jobs alone needs no worker. `acker.lines.line` wakes up as soon as there is
work; this one polls a few times a second.

Terms: a group is requests of a line that were tracked together.
"""

import logging
import time
from collections.abc import Iterable

from acker.ledger.client import Ledger, follow
from acker.ledger.loops import Rounds
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.settings import topologies
from acker.ledger.slabs.sections import SPOUT
from acker.lines import coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command

_MOST = 1_000
"""Most pieces of a topology's outcomes that are read before the next topology has its turn."""
_log = logging.getLogger(__name__)


class Coordinating(Rounds):
    """Releases the gathered groups of lines in topologies of a store (all topologies, if `names` is None)."""

    what, all_wait = "lines of topology %s: gathered groups wait", "lines: gathered groups wait"
    log = _log

    def __init__(self, store: Store, names: Iterable[str] | None = None) -> None:
        super().__init__(store, names)
        self._known: dict[str, tuple[Ledger, OutcomeReader]] = {}
        self._retained: dict[str, float] = {}

    def step(self) -> int:
        """Releases the groups that are ready. Returns the number of outcomes read; errors are logged."""
        names = self.names if self.names is not None else self.store.run(topologies.names())
        there = self.store.send([command("EXISTS", keys.lines(name)) for name in names]) if names else []
        with_lines = [name for name, lines in zip(names, there, strict=True) if lines]
        return self._each(with_lines, self._coordinate)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)

    def _coordinate(self, name: str) -> int:
        known, reader = self._known.get(name, (None, None))
        ledger = follow(known, self.store, name, create=False)
        if ledger is not known or reader is None:
            reader = OutcomeReader(ledger.core, SPOUT)
        self._known[name] = ledger, reader
        total, gone = 0, list[bytes]()
        for _ in range(_MOST):
            if self._stop.is_set():
                break
            found = ledger.run(coordinator.step(ledger.core, reader, gone))
            total += found
            if not found:
                break
        ledger.run(coordinator.forget(ledger.core, gone))
        if time.monotonic() - self._retained.get(name, -coordinator.RETAIN) >= coordinator.RETAIN:
            self._retained[name] = time.monotonic()
            ledger.run(coordinator.retain(ledger.core))
            ledger.run(coordinator.sweep(ledger.core))
        return total
