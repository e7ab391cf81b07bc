"""Resets of the timeout, for a slow batch.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from logging import getLogger

import numpy as np

from acker.ledger.calls import traces
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.loops import Threads
from acker.ledger.steps import step_totals
from acker.store import loops
from acker.store.loops import Pace

_log = getLogger(__name__)


class Resets:
    """Resets the timeout of trees for a batch of a step (-1: a job); traced trees record the first."""

    def __init__(self, ledger: Ledger, step: str, batch: int) -> None:
        self._ledger = ledger
        self._step = step
        self._batch = batch
        self._noted: Ids = np.zeros(0, np.int64)

    def reset(self, anchors: Ids) -> int:
        """Gives trees, and all others of their slabs, the whole timeout again; returns the slabs."""
        core, slabs = self._ledger.core, self._ledger.reset_timeout(anchors)
        new = np.setdiff1d(traces.select(core, anchors), self._noted)
        if slabs and len(new):
            by = self._ledger.run(step_totals.mark(core, self._step, self._batch))
            self._ledger.run(traces.note(core, traces.resets(core, new, by)))
            self._noted = np.union1d(self._noted, new)
        return slabs

    @contextmanager
    def keeping(self, anchors: Ids) -> Iterator[None]:
        """Resets the timeout of trees repeatedly until the block ends, in a thread."""
        threads, period = Threads(), self._ledger.config.message_timeout / 4

        def reset() -> None:
            self.reset(anchors)

        pace = Pace(_log, f"trees of a batch of {self._step} are not kept alive", period, period)
        threads.start(partial(loops.run, first=0), threads.stop, reset, pace, name="acker-keep-alive")
        try:
            yield
        finally:
            threads.end()
