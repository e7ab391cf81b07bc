"""Which steps of a process are at work: they are registered now and again, and have a mark to ack with."""

import logging
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from acker.errors import StoreError
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import MOST_STEPS, Mark
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.store.operation import Operation

SECONDS = 10.0
"""After which a step that is at work registers again."""
_log = logging.getLogger(__name__)


class AtWork:
    """The steps and spouts in plain Python that one process runs for a topology. host, program: who it is."""

    def __init__(self, host: str = "", program: str = "") -> None:
        self._host = host
        self._program = program
        self._known: dict[str, tuple[float, Mark | None]] = {}

    @classmethod
    def here(cls) -> Self:
        """Those of this process."""
        return cls(socket.gethostname(), Path(sys.argv[0]).name if sys.argv else "")

    def note_spout(self, core: Core, name: str, stream: str) -> Operation[None]:
        """Registers a spout that emits to a stream, if it is its turn. Raises StoreUnavailable."""
        key, now = f"spout {name} {stream}", time.monotonic()
        if now - self._known.get(key, (now - SECONDS, None))[0] < SECONDS:
            return
        try:
            yield from step_registry.register(core, self._step(name, "spout", stream))
        except StoreError as error:
            _log.error("spout %r of topology %r is not registered: %s", name, core.config.name, error)
        self._known[key] = now, None

    def note(self, core: Core, names: Iterable[str]) -> Operation[None]:
        """Registers the steps whose turn it is. Raises StoreUnavailable."""
        for name in sorted(names):
            now = time.monotonic()
            at, by = self._known.pop(name, (now - SECONDS, None))
            if now - at >= SECONDS:
                at, by = now, (yield from self._register(core, name))
            self._known[name] = at, by
            if len(self._known) > MOST_STEPS:
                del self._known[next(iter(self._known))]

    def mark(self, name: str) -> Mark | None:
        """What a step that was noted acks and fails with; None where the store gives none."""
        return self._known.get(name, (0.0, None))[1]

    def _register(self, core: Core, name: str) -> Operation[Mark | None]:
        try:
            yield from step_registry.register(core, self._step(name, "bolt"))
            return (yield from step_totals.mark(core, name))
        except StoreError as error:  # who is at work is worth less than what it does
            _log.error("step %r of topology %r is not registered: %s", name, core.config.name, error)
            return None

    def _step(self, name: str, kind: str, *emits: str) -> Step:
        return Step(name, kind, application_id=self._host, application=self._program, emits=emits)
