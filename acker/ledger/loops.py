"""Threads of loops that end together, and loops over the topologies of a store."""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from acker.errors import AckerError, is_interrupt, text_of
from acker.ledger.settings.config import check_name
from acker.ledger.slabs.causes import log_error, said_by
from acker.store import client, loops
from acker.store.client import Store
from acker.store.loops import Pace

PATIENCE = 1.0
"""Seconds for which the end of a loop waits for a silent store."""
_LOOK = 0.05


class Threads:
    """The threads of loops that end together. stop: an event that ends them."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self.stop = threading.Event() if stop is None else stop
        self._threads: list[threading.Thread] = []

    def start(self, target: Callable[..., object], *args: object, name: str = "acker-loop") -> None:
        """Starts a thread. It keeps no process alive."""
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def end(self) -> None:
        """Stops the threads, and waits for the end of their steps.

        A thread that has waited for the store for a second is left behind: the store is away, and the thread
        ends with its time-out.
        """
        self.stop.set()
        stopped = time.monotonic()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_LOOK)
                since = client.waiting_since(thread)
                if since is not None and time.monotonic() - max(since, stopped) >= PATIENCE:
                    break


class Rounds:
    """A loop over things of a store, such as topologies: an error of one keeps none of the others.

    names: the topologies; None is all of them, including later ones.
    """

    what = "%s waits"
    """Words of the log after an error of a topology or stream; %s is its name."""
    all_wait = "all wait"
    """The same while the store is away."""
    pause, longest = 0.2, 2.0
    log = logging.getLogger(__name__)

    def __init__(self, store: Store, names: Iterable[str] | None) -> None:
        self.store = store
        self.names = None if names is None else [check_name(name, "topology") for name in names]
        self._trouble: dict[str, str] = {}
        self._stop = threading.Event()

    @property
    def troubled(self) -> tuple[str, ...]:
        """Names that had errors in the last step; the log has the reasons."""
        return tuple(self._trouble)

    def step(self) -> int:
        """Works on all names once; returns the amount of work. Troubles are logged."""
        raise NotImplementedError

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set, and waits for a store that is away."""
        self._stop = stop
        loops.run(stop, self._round, Pace(self.log, self.all_wait, self.pause, self.longest))

    def _round(self) -> None:
        self.step()

    def _each(self, names: Iterable[str], act: Callable[[str], int]) -> int:
        """The sum of the work for each name, until it is stopped. Troubles are logged once."""
        total = 0
        for name in names:
            if self._stop.is_set():
                break
            try:
                total += act(name)
                self._trouble.pop(name, None)
            except BaseException as error:  # user code may raise anything, even SystemExit
                if is_interrupt(error):
                    raise
                self._forget(name)
                reason = said_by(error)
                if self._trouble.get(name) != reason:
                    self._trouble[name] = reason
                    ours = issubclass(type(error), AckerError)
                    what = text_of(error) or reason
                    log_error(self.log, None if ours else error, f"{self.what}: %s", name, what)
        return total

    def _forget(self, name: str) -> None:
        """Forgets the state of a name in trouble."""
