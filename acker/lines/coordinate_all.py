"""Coordinating for a whole store: whoever ticks or settles releases what has gathered, too.

So a line whose steps are Spark jobs alone needs no worker. `acker.lines.line` wakes as soon as there is
something to do; this one looks a few times a second.
"""

import logging
import threading
import time
from collections.abc import Iterable

from acker.errors import AckerError
from acker.ledger.client import Ledger, follow
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name
from acker.ledger.slabs.sections import SPOUT
from acker.lines import coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command

_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
_MOST = 1_000
"""Pieces of a topology's outcomes that are read before another topology has its turn."""
_log = logging.getLogger(__name__)


class Coordinating:
    """Releases what has gathered in the lines of topologies of a store (all, where `names` is None)."""

    def __init__(self, store: Store, names: Iterable[str] | None = None) -> None:
        self.store = store
        self.names = None if names is None else [check_name(name, "topology") for name in names]
        self._known: dict[str, tuple[Ledger, OutcomeReader]] = {}
        self._trouble: dict[str, str] = {}
        self._retained: dict[str, float] = {}

    @property
    def troubled(self) -> tuple[str, ...]:
        """The topologies whose lines wait since the last step; the log has the reasons."""
        return tuple(self._trouble)

    def step(self) -> int:
        """Releases what it can now; returns how many outcomes it has read. Troubles are logged."""
        names = self.names if self.names is not None else self.store.run(topologies.names())
        there = self.store.send([command("EXISTS", keys.lines(name)) for name in names]) if names else []
        found = 0
        for name in [name for name, lines in zip(names, there, strict=True) if lines]:
            try:
                found += self._coordinate(name)
                self._trouble.pop(name, None)
            except AckerError as error:
                self._known.pop(name, None)
                if self._trouble.get(name) != repr(error):
                    self._trouble[name] = repr(error)
                    _log.warning("what gathers in lines of topology %s waits: %s", name, error)
        return found

    def _coordinate(self, name: str) -> int:
        known, reader = self._known.get(name, (None, None))
        ledger = follow(known, self.store, name, create=False)
        if ledger is not known or reader is None:
            reader = OutcomeReader(ledger.core, SPOUT)
        self._known[name] = ledger, reader
        total, gone = 0, list[bytes]()
        for _ in range(_MOST):
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

    def run(self, stop: threading.Event) -> None:
        """Coordinates until `stop` is set. A store that is away is waited for."""
        pause = _PAUSE
        while not stop.wait(pause):
            try:
                self.step()
                pause = _PAUSE
            except AckerError as error:
                if pause == _PAUSE:
                    _log.warning("what gathers in lines waits: %s", error)
                pause = min(_LONGEST_PAUSE, 2 * pause)
