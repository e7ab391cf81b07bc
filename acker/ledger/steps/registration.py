"""Registers the active steps of a process every ten seconds, and gives each its mark."""

import logging
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from acker.errors import StoreError
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import MOST_STEPS, Mark
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.store.operation import Operation

SECONDS = 10.0
"""Seconds after which an active step registers again."""
_log = logging.getLogger(__name__)


class AtWork:
    """The steps and spouts in plain Python of one process and topology. host, program: the process."""

    def __init__(self, host: str = "", program: str = "") -> None:
        self._host = host
        self._program = program
        self._known: dict[str, tuple[float, Mark | None]] = {}

    @classmethod
    def in_this_process(cls) -> Self:
        """The active steps of this process."""
        return cls(socket.gethostname(), program_name(sys.argv[0] if sys.argv else ""))

    def note_spout(self, core: Core, name: str, stream: str) -> Operation[None]:
        """Registers a spout that emits to a stream, if it is due. Raises StoreUnavailable."""
        key, now = f"spout {name} {stream}", time.monotonic()
        if now - self._known.get(key, (now - SECONDS, None))[0] < SECONDS:
            return
        try:
            yield from step_registry.register(core, self._step(name, "spout", stream))
        except StoreError as error:
            _log.error("spout %r of topology %r is not registered: %s", name, core.config.name, error)
        self._known[key] = now, None

    def note_reader(
        self, core: Core, name: str, reads: Sequence[str], emits: Iterable[str]
    ) -> Operation[None]:
        """Registers a step that reads external streams, in the order of `reads`. Raises StoreUnavailable."""
        step = self._step(name, "bolt", *emits, reads=tuple(reads))
        try:
            yield from step_registry.register(core, step, reads[0])
        except StoreError as error:
            _log.error("step %r of topology %r is not registered: %s", name, core.config.name, error)

    def note(self, core: Core, names: Iterable[str]) -> Operation[None]:
        """Registers the due steps. Raises StoreUnavailable."""
        for name in sorted(names):
            now = time.monotonic()
            at, by = self._known.pop(name, (now - SECONDS, None))
            if now - at >= SECONDS:
                at, by = now, (yield from self._register(core, name))
            self._known[name] = at, by
            if len(self._known) > MOST_STEPS:
                del self._known[next(iter(self._known))]

    def mark(self, name: str) -> Mark | None:
        """The mark of a registered step; None if the store gives none."""
        return self._known.get(name, (0.0, None))[1]

    def _register(self, core: Core, name: str) -> Operation[Mark | None]:
        try:
            yield from step_registry.register(core, self._step(name, "bolt"))
            return (yield from step_totals.mark(core, name))
        except StoreError as error:  # the work matters more than its registration
            _log.error("step %r of topology %r is not registered: %s", name, core.config.name, error)
            return None

    def _step(self, name: str, kind: str, *emits: str, reads: tuple[str, ...] = ()) -> Step:
        return Step(
            name, kind, application_id=self._host, application=self._program, reads=reads, emits=emits
        )


def program_name(path: str) -> str:
    """The name of a program by the path that started it: a file, a package (`python -m`), or "python"."""
    program = Path(path)
    if program.name == "__main__.py":
        return program.parent.name
    return "python" if program.name in ("", "-", "-c", "-m") else program.name
