"""Resets of the timeout, for a batch that takes long."""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger

import numpy as np

from acker.errors import AckerError
from acker.ledger.calls import traces
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.loops import Threads
from acker.ledger.steps import step_totals

_log = getLogger(__name__)


class Resets:
    """Resets the timeout of trees for a batch of a step, -1 for a job: traced trees tell of the first one."""

    def __init__(self, ledger: Ledger, step: str, batch: int) -> None:
        self._ledger = ledger
        self._step = step
        self._batch = batch
        self._noted: Ids = np.zeros(0, np.int64)

    def reset(self, anchors: Ids) -> int:
        """Gives trees, and all others of their slabs, the whole message timeout again; how many slabs."""
        core, slabs = self._ledger.core, self._ledger.reset_timeout(anchors)
        new = np.setdiff1d(traces.picked(core, anchors), self._noted)
        if slabs and len(new):
            by = self._ledger.run(step_totals.mark(core, self._step, self._batch))
            self._ledger.run(traces.note(core, traces.resets(core, new, by)))
            self._noted = np.union1d(self._noted, new)
        return slabs

    @contextmanager
    def keeping(self, anchors: Ids) -> Iterator[None]:
        """Resets the timeout of trees now and again until the block ends, by a thread."""
        threads = Threads()

        def reset() -> None:
            while True:
                try:
                    self.reset(anchors)
                except AckerError as error:  # the next reset may reach the store
                    _log.warning("trees of a batch of %s were not kept alive: %s", self._step, error)
                if threads.stop.wait(self._ledger.config.message_timeout / 4):
                    return

        threads.start(reset, name="acker-keep-alive")
        try:
            yield
        finally:
            threads.end()
