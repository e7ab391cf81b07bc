"""The settler: handles the outcomes of spouts whose rows are kept. Like a ticker, some process has to run it.

Any number may run at once, in any process, and may die at any point. `acker tick` settles, too, and so does a
commit that waits for room.

Terms: a tree is all that comes of one record; roots are rows of a spout that were staged together, and get a
tree each.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from acker.errors import (
    AckerError,
    MissingRights,
    SpoutPaused,
    SpoutPendingFull,
    StoreError,
    TrackRejected,
    is_interrupt,
)
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, follow
from acker.ledger.loops import Rounds
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation, Request, command
from acker.streams.spouts import lost_trees, replays
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.spouts.replays import OnOutcomes, Stepped

T = TypeVar("T")

PAUSE = 0.2
"""Seconds between two looks for outcomes."""
_STEPS = 100
_LONGEST_STEP = 60.0
_WAIT, _PAUSED_WAIT = 0.1, 1.0

_log = logging.getLogger(__name__)


def settle(
    ledger: Ledger,
    spout: str | None = None,
    on_outcomes: OnOutcomes | None = None,
    steps: int = _STEPS,
    readings: dict[str, SettleProgress] | None = None,
    *,
    claimed: bool = False,
) -> Stepped:
    """Settles the existing outcomes of a spout, or of all spouts that keep rows.

    Args:
        ledger: The ledger of the topology.
        spout: The spout; None for all spouts whose outcomes no caller has claimed.
        on_outcomes: See `acker.streams.spouts.replays.step`. It claims a spout's outcomes for this caller,
            until the spout is settled by name without it.
        steps: The most steps for a spout.
        readings: Spout -> the position of its reading, kept from one call to the next.
        claimed: True if a call of a moment ago has claimed the outcomes for this caller.

    Returns:
        The numbers of settled rows.

    Raises:
        AckerError: The first error of `step` or `on_outcomes`, after the other spouts are settled.
    """
    if spout is not None:
        names = [check_name(spout, "spout")] if ledger.config.ackers else []
    else:
        there = ledger.run(_spouts(ledger))
        names = [name for name, taken in there.items() if on_outcomes is not None or not taken]
    progress = {} if readings is None else readings
    for name in names:
        if name not in progress or progress[name].core is not ledger.core:
            progress[name] = SettleProgress(ledger.core, name)
    done = _each(
        partial(
            _settle, ledger, name, on_outcomes, steps, progress[name],
            [] if claimed else _claim(ledger, name, on_outcomes is not None, spout is not None),
        )
        for name in names
    )  # fmt: skip
    return Stepped(
        sum(one.acked for one in done), sum(one.replayed for one in done), sum(one.dead for one in done)
    )


def _settle(
    ledger: Ledger,
    spout: str,
    on_outcomes: OnOutcomes | None,
    steps: int,
    reading: SettleProgress,
    claim: Sequence[Request],
) -> Stepped:
    total = Stepped()
    for number in range(steps):
        first = () if number else claim
        done = ledger.run(replays.step(ledger.core, spout, on_outcomes, reading, first))
        total = Stepped(total.acked + done.acked, total.replayed + done.replayed, total.dead + done.dead)
        if not done.all and not reading.more:
            break
    return total


def _claim(ledger: Ledger, spout: str, claims: bool, named: bool) -> list[Request]:
    """The requests that claim the outcomes of a spout for the caller, or give them up."""
    counts = keys.Spout(ledger.config.name, spout).counts
    if claims:
        return [command("HSET", counts, keys.Spout.CLAIMED, 1)]
    return [command("HDEL", counts, keys.Spout.CLAIMED)] if named else []


def _each(actions: Iterable[Callable[[], T]]) -> list[T]:
    """Does all actions, whatever one of them raises; then raises the first error."""
    results: list[T] = []
    first: BaseException | None = None
    for action in actions:
        try:
            results.append(action())
        except BaseException as error:  # `on_outcomes` is the user's: it may raise anything, even SystemExit
            if is_interrupt(error):
                raise
            first = first or error
    if first is not None:
        raise first
    return results


def recover(ledger: Ledger, spout: str | None = None) -> int:
    """Fails trees that the ledger has lost (`acker.streams.spouts.lost_trees`); returns their number.

    Raises the first error after the other spouts are checked.
    """
    return sum(
        _each(partial(ledger.run, lost_trees.recover(ledger.core, name)) for name in _named(ledger, spout))
    )


def _named(ledger: Ledger, spout: str | None) -> list[str]:
    return [check_name(spout, "spout")] if spout is not None else list(ledger.run(_spouts(ledger)))


def _spouts(ledger: Ledger) -> Operation[dict[str, bool]]:
    """The spouts that have, or had, kept rows, and True if somebody takes the outcomes of one."""
    if not ledger.config.ackers:
        return {}
    yield from ledger.core.refresh_spouts()
    return (yield from _marks(ledger.core, sorted(ledger.core.spouts)))


def _marks(core: Core, names: list[str]) -> Operation[dict[str, bool]]:
    """The marks of spouts that have kept rows. One that cannot be read is not taken: settling says why."""
    if not names:
        return {}
    counts = [keys.Spout(core.config.name, name).counts for name in names]
    try:
        replies = yield [
            *(command("EXISTS", key) for key in counts),
            *(command("HGET", key, keys.Spout.CLAIMED) for key in counts),
        ]
    except MissingRights:
        raise
    except StoreError:
        if len(names) == 1:
            return {names[0]: False}
        marks: dict[str, bool] = {}
        for name in names:
            marks |= yield from _marks(core, [name])
        return marks
    there, taken = replies[: len(names)], replies[len(names) :]
    return {name: mark is not None for name, exists, mark in zip(names, there, taken, strict=True) if exists}


def with_room(
    ledger: Ledger,
    commit: Callable[[], T],
    timeout: float | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Runs a commit, repeatedly if there is no room for its roots, and settles outcomes meanwhile.

    Errors that keep outcomes from being settled are logged: they may be another spout's.

    Args:
        ledger: The ledger.
        commit: The commit.
        timeout: Seconds, by default twice the message timeout, where the time of a pause of the spout does
            not count.
        sleep: Waits for some seconds, a second at most. Its error ends the wait.

    Raises:
        SpoutPendingFull: There was no room in time.
        TrackRejected: As above. Also raises the errors of `commit` and `sleep`.
    """
    wait = 2 * ledger.config.message_timeout if timeout is None else timeout
    deadline, trouble, paused = time.monotonic() + wait, "", False
    readings: dict[str, SettleProgress] = {}
    while True:
        try:
            return commit()
        except (SpoutPendingFull, TrackRejected) as error:
            if timeout is None and isinstance(error, SpoutPaused):
                if not paused:
                    _log.warning("a commit waits until its spout is resumed: %s", error)
                paused, deadline = True, time.monotonic() + wait
            if time.monotonic() >= deadline:
                raise
            try:
                settled = settle(ledger, steps=1, readings=readings).all
            except AckerError as unsettled:
                settled = 0
                if trouble != str(unsettled):
                    trouble = str(unsettled)
                    _log.warning(
                        "a commit waits for room, and outcomes of topology %s wait: %s",
                        ledger.config.name,
                        unsettled,
                    )
            if not settled:
                sleep(_PAUSED_WAIT if paused else _WAIT)


class Settler(Rounds):
    """Settles the outcomes of topologies of a store, until `stop`. Waits for a store that is away.

    If several settle at once, each may get the same outcomes.

    Args:
        store: The store.
        names: The topologies; None for all.
        spout: The only spout to settle; None for all.
        on_outcomes: Called with each batch of outcomes (`acker.streams.spouts.replays.OUTCOMES`) before they
            are settled. If it raises, they come again.
    """

    what, all_wait, longest, log = "outcomes of topology %s wait", "outcomes wait", 5.0, _log

    def __init__(
        self,
        store: Store,
        names: Iterable[str] | None = None,
        *,
        spout: str | None = None,
        on_outcomes: OnOutcomes | None = None,
    ) -> None:
        super().__init__(store, names)
        self.spout = spout
        self.on_outcomes = on_outcomes
        self._stepping = threading.RLock()  # reentrant only to know its owner
        self._ledgers: dict[str, Ledger] = {}
        self._looked: dict[str, float] = {}
        self._readings: dict[str, dict[str, SettleProgress]] = {}

    def step(self) -> int:
        """Settles the existing outcomes; returns the number of rows. Trouble with one topology is logged.

        For any thread: one at a time settles. Raises AckerError if `on_outcomes` calls it, or has not
        returned in another thread for a minute.
        """
        if self._stepping._is_owned():  # type: ignore[attr-defined]
            raise AckerError(
                "step: called by on_outcomes, or a signal handler, while the same thread settles"
            )
        if not self._stepping.acquire(timeout=_LONGEST_STEP):
            raise AckerError(
                "step: another thread settles, and its on_outcomes has not returned for a minute"
            )
        try:
            return self._step()
        finally:
            self._stepping.release()

    def _step(self) -> int:
        names = self.names if self.names is not None else self.store.run(topologies.names())
        return self._each(names, self._settle_topology)

    def _settle_topology(self, name: str) -> int:
        ledger = self._ledger(name)
        _, done = _each([partial(self._recover, ledger), partial(self._settle, ledger)])
        return done

    def _forget(self, name: str) -> None:
        self._ledgers.pop(name, None)

    def _recover(self, ledger: Ledger) -> int:
        name = ledger.config.name
        if time.monotonic() < self._looked.get(name, 0.0):
            return 0
        found = recover(ledger, self.spout)
        self._looked[name] = time.monotonic() + ledger.config.message_timeout / 2
        return found

    def _settle(self, ledger: Ledger) -> int:
        readings = self._readings.setdefault(ledger.config.name, {})
        return settle(ledger, self.spout, self.on_outcomes, readings=readings).all

    def _ledger(self, name: str) -> Ledger:
        known = self._ledgers.get(name)
        found = self._ledgers[name] = follow(known, self.store, name, create=False)
        return found
