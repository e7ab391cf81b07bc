"""Answering for a whole store: every ticker and settler also answers calls of functions.

So calls that end while their function has no worker, as by their deadline, leave nothing behind.
`acker.drpc.answers` wakes up as soon as there is an answer to give; this one polls once a second.
"""

import logging
from collections.abc import Iterable
from functools import partial

from acker.drpc import answers
from acker.drpc.registry import Description
from acker.ledger.client import Ledger, follow
from acker.ledger.loops import Rounds
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.store.replies import pairs
from acker.streams.spouts import settler
from acker.streams.spouts.backoff import SettleProgress

_log = logging.getLogger(__name__)


class Answering(Rounds):
    """Answers calls whose requests are over, in topologies of a store (all, if `names` is None)."""

    what, all_wait = "answers of function %s wait", "answers of functions wait"
    pause, longest = 1.0, 5.0
    log = _log

    def __init__(self, store: Store, names: Iterable[str] | None = None) -> None:
        super().__init__(store, names)
        self._ledgers: dict[str, Ledger] = {}
        self._readings: dict[str, dict[str, SettleProgress]] = {}

    def step(self) -> int:
        """Answers the calls that are over. Returns the number of finished requests; errors are logged."""
        [stored] = self.store.send([command("HGETALL", keys.FUNCTIONS)])
        records = {key.decode("utf-8", "replace"): record for key, record in pairs(stored).items()}
        for known in (self._readings, self._trouble):
            for name in known.keys() - records.keys():
                del known[name]
        return self._each(records, lambda name: self._answer(Description.load(records[name])))

    def _answer(self, function: Description) -> int:
        if self.names is not None and function.topology not in self.names:
            return 0
        known = self._ledgers.pop(function.topology, None)
        ledger = self._ledgers[function.topology] = follow(known, self.store, function.topology, create=False)
        answered = partial(answers.answer_outcomes, ledger, function)
        readings = self._readings.setdefault(function.name, {})
        return settler.settle(ledger, function.name, answered, readings=readings, claimed=True).all
