"""Answering for a whole store: whoever ticks or settles answers calls of functions, too.

So calls that end while nobody works on their function, as those whose time is over, leave nothing behind.
`acker.drpc.answers` wakes as soon as there is something to answer; this one looks once a second.
"""

import logging
import threading
from collections.abc import Iterable
from functools import partial

from acker.drpc import answers
from acker.drpc.registry import Description
from acker.errors import AckerError
from acker.ledger.client import Ledger, follow
from acker.ledger.settings.config import check_name
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.store.replies import pairs
from acker.streams.spouts import settler
from acker.streams.spouts.backoff import SettleProgress

_PAUSE, _LONGEST_PAUSE = 1.0, 5.0
_log = logging.getLogger(__name__)


class Answering:
    """Answers calls whose requests are over, of topologies of a store (all, where `names` is None)."""

    def __init__(self, store: Store, names: Iterable[str] | None = None) -> None:
        self.store = store
        self.names = None if names is None else {check_name(name, "topology") for name in names}
        self._ledgers: dict[str, Ledger] = {}
        self._readings: dict[str, dict[str, SettleProgress]] = {}
        self._trouble: dict[str, str] = {}

    @property
    def troubled(self) -> tuple[str, ...]:
        """The functions whose answers wait since the last step; the log has the reasons."""
        return tuple(self._trouble)

    def step(self) -> int:
        """Answers what it can now; returns how many requests were over. Troubles are logged."""
        [stored] = self.store.send([command("HGETALL", keys.FUNCTIONS)])
        found = {key.decode("utf-8", "replace"): record for key, record in pairs(stored).items()}
        for known in (self._readings, self._trouble):
            for name in known.keys() - found.keys():
                del known[name]
        total = 0
        for name, record in found.items():
            try:
                total += self._answer(Description.load(record))
                self._trouble.pop(name, None)
            except AckerError as error:
                if self._trouble.get(name) != repr(error):
                    self._trouble[name] = repr(error)
                    _log.warning("answers of function %s wait: %s", name, error)
        return total

    def _answer(self, what: Description) -> int:
        if self.names is not None and what.topology not in self.names:
            return 0
        known = self._ledgers.pop(what.topology, None)
        ledger = self._ledgers[what.topology] = follow(known, self.store, what.topology, create=False)
        answered = partial(answers.answer_outcomes, ledger, what)
        readings = self._readings.setdefault(what.name, {})
        return settler.settle(ledger, what.name, answered, readings=readings, claimed=True).all

    def run(self, stop: threading.Event) -> None:
        """Answers until `stop` is set. A store that is away is waited for."""
        pause = _PAUSE
        while not stop.wait(pause):
            try:
                self.step()
                pause = _PAUSE
            except AckerError as error:
                if pause == _PAUSE:
                    _log.warning("answers of functions wait: %s", error)
                pause = min(_LONGEST_PAUSE, 2 * pause)
