"""Loops: what threads do again and again, until they are told to stop."""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from acker.errors import AckerError, is_interrupt, text_of
from acker.ledger.settings.config import check_name
from acker.ledger.slabs.causes import log_error, said_by
from acker.store import client
from acker.store.client import Store

PATIENCE = 1.0
"""Seconds for which the end of a loop waits for a store that does not answer it."""
_LOOK = 0.05


def run(
    stop: threading.Event,
    step: Callable[[], float | None],
    *,
    log: logging.Logger,
    what: str,
    pause: float,
    longest: float,
    first: float | None = None,
    woken: threading.Event | None = None,
) -> None:
    """Calls a step until `stop` is set, with pauses of as many seconds as it returns; `pause` for None.

    first: seconds before the first call, where these are others. woken: ends a pause; it is set with `stop`.

    What it raises is logged once, until it succeeds again: "outcomes wait: ..." for a `what` of "outcomes
    wait". The pauses after that grow up to `longest`.
    """
    wait, failures = pause if first is None else first, 0
    while True:
        (woken or stop).wait(wait)
        if stop.is_set():
            return
        if woken is not None:  # never `stop`, which may be set just now
            woken.clear()
        try:
            asked = step()
            wait, failures = pause if asked is None else asked, 0
        except BaseException as error:  # code of the user's may raise anything, SystemExit, too
            if is_interrupt(error):
                raise
            if not failures:
                log.warning("%s: %s", what, error, exc_info=None if isinstance(error, AckerError) else error)
            failures += 1
            wait = min(longest, pause * 2.0 ** min(failures, 10))


class Threads:
    """The threads of loops that end together. stop: ends them; they look at it."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self.stop = threading.Event() if stop is None else stop
        self._threads: list[threading.Thread] = []

    def start(self, target: Callable[..., object], *args: object, name: str = "acker-loop") -> None:
        """Starts a thread. It keeps no process alive."""
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def end(self) -> None:
        """Stops them, and waits until each has ended what it is at.

        A thread that waits for an answer of the store for a second is left behind: the store is away, and the
        thread ends with its time-out.
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
    """A loop over things of a store, as its topologies: what one of them raises keeps none of the others.

    names: the topologies; None is all, those made later too.
    """

    what = "%s waits"
    """The log's words where one topology or stream raises; %s is its name."""
    all_wait = "all wait"
    """The same where the store is away."""
    pause, longest = 0.2, 2.0
    log = logging.getLogger(__name__)

    def __init__(self, store: Store, names: Iterable[str] | None) -> None:
        self.store = store
        self.names = None if names is None else [check_name(name, "topology") for name in names]
        self._trouble: dict[str, str] = {}
        self._stop = threading.Event()

    @property
    def troubled(self) -> tuple[str, ...]:
        """What has waited in the last step; the log has the reasons."""
        return tuple(self._trouble)

    def step(self) -> int:
        """Does what there is to do now; returns how much that was. Troubles are logged."""
        raise NotImplementedError

    def run(self, stop: threading.Event) -> None:
        """Goes on until `stop` is set, also between two things. A store that is away is waited for."""
        self._stop = stop
        run(stop, self._round, log=self.log, what=self.all_wait, pause=self.pause, longest=self.longest)

    def _round(self) -> None:
        self.step()

    def _each(self, names: Iterable[str], act: Callable[[str], int]) -> int:
        """The sum of what is done for each name, until it is to stop. Troubles are logged once."""
        total = 0
        for name in names:
            if self._stop.is_set():
                break
            try:
                total += act(name)
                self._trouble.pop(name, None)
            except BaseException as error:  # code of the user's may raise anything, SystemExit, too
                if is_interrupt(error):
                    raise
                self._forget(name)
                said = said_by(error)
                if self._trouble.get(name) != said:
                    self._trouble[name] = said
                    ours = issubclass(type(error), AckerError)
                    what = text_of(error) or said
                    log_error(self.log, None if ours else error, f"{self.what}: %s", name, what)
        return total

    def _forget(self, name: str) -> None:
        """Forgets what is known of a thing that is in trouble."""
