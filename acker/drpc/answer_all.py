"""Answering for a whole store: whoever ticks or settles answers calls of functions, too.

So calls that end while nobody works on their function, as those whose time is over, leave nothing behind.
`acker.drpc.answers` wakes as soon as there is something to answer; this one looks once a second.
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
    """Answers calls whose requests are over, of topologies of a store (all, where `names` is None)."""

    what, all_wait = "answers of function %s wait", "answers of functions wait"
    pause, longest = 1.0, 5.0
    log = _log

    def __init__(self, store: Store, names: Iterable[str] | None = None) -> None:
        super().__init__(store, names)
        self._ledgers: dict[str, Ledger] = {}
        self._readings: dict[str, dict[str, SettleProgress]] = {}

    def step(self) -> int:
        """Answers what it can now; returns how many requests were over. Troubles are logged."""
        [stored] = self.store.send([command("HGETALL", keys.FUNCTIONS)])
        found = {key.decode("utf-8", "replace"): record for key, record in pairs(stored).items()}
        for known in (self._readings, self._trouble):
            for name in known.keys() - found.keys():
                del known[name]
        return self._each(found, lambda name: self._answer(Description.load(found[name])))

    def _answer(self, what: Description) -> int:
        if self.names is not None and what.topology not in self.names:
            return 0
        known = self._ledgers.pop(what.topology, None)
        ledger = self._ledgers[what.topology] = follow(known, self.store, what.topology, create=False)
        answered = partial(answers.answer_outcomes, ledger, what)
        readings = self._readings.setdefault(what.name, {})
        return settler.settle(ledger, what.name, answered, readings=readings, claimed=True).all
