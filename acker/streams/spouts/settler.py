"""The settler: takes care of the outcomes of spouts whose rows are kept. Something has to settle, as to tick.

Any number may run at once, in any process, and may die at any point. `acker tick` settles, too, and so does
a commit that waits for room.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from acker.errors import (
    AckerError,
    MissingRights,
    SpoutPendingFull,
    StoreError,
    TrackRejected,
    is_interrupt,
)
from acker.ledger.client import Ledger, follow
from acker.ledger.loops import Rounds
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation, Reply, command
from acker.streams.spouts import lost_trees, replays
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.spouts.replays import OnOutcomes, Stepped

T = TypeVar("T")

PAUSE = 0.2
"""Seconds between two looks for outcomes."""
_STEPS = 100
_LONGEST_STEP = 60.0
_WAIT = 0.1

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
    """Settles what outcomes there are, in so many steps at most for a spout: one, or all that keep rows.

    on_outcomes: see `acker.streams.spouts.replays.step`. A spout whose outcomes were asked for so is left to
    who asks for them, until it is named without. readings: spout -> how far it was read, kept from one call
    to the next. claimed: the call of a moment ago has said already that the caller takes these outcomes.
    Raises what `step` or `on_outcomes` does, first for one of several spouts, when the others are settled.
    """
    if claimed and spout is not None and ledger.config.ackers:
        names = [spout]
    else:
        names = ledger.run(_claimed(ledger, spout, on_outcomes is not None))
    known = {} if readings is None else readings
    for name in names:
        if name not in known or known[name].core is not ledger.core:
            known[name] = SettleProgress(ledger.core, name)
    done = _each(partial(_settle, ledger, name, on_outcomes, steps, known[name]) for name in names)
    return Stepped(
        sum(one.acked for one in done), sum(one.replayed for one in done), sum(one.dead for one in done)
    )


def _settle(
    ledger: Ledger, spout: str, on_outcomes: OnOutcomes | None, steps: int, reading: SettleProgress
) -> Stepped:
    total = Stepped()
    for _ in range(steps):
        done = ledger.run(replays.step(ledger.core, spout, on_outcomes, reading))
        total = Stepped(total.acked + done.acked, total.replayed + done.replayed, total.dead + done.dead)
        if not done.all and not reading.more:
            break
    return total


def _each(actions: Iterable[Callable[[], T]]) -> list[T]:
    """Does all, whatever one of them raises; raises the first error when all were tried."""
    results: list[T] = []
    first: BaseException | None = None
    for action in actions:
        try:
            results.append(action())
        except BaseException as error:  # `on_outcomes` is the user's: it may raise anything, SystemExit, too
            if is_interrupt(error):
                raise
            first = first or error
    if first is not None:
        raise first
    return results


def recover(ledger: Ledger, spout: str | None = None) -> int:
    """Has trees failed that the ledger has lost (`acker.streams.spouts.lost_trees`); returns how many.

    Raises as `settle` does, when the other spouts are looked after.
    """
    return sum(
        _each(partial(ledger.run, lost_trees.recover(ledger.core, name)) for name in _named(ledger, spout))
    )


def _named(ledger: Ledger, spout: str | None) -> list[str]:
    return [check_name(spout, "spout")] if spout is not None else ledger.run(_spouts(ledger))


def _claimed(ledger: Ledger, spout: str | None, claim: bool) -> Operation[list[str]]:
    """The spouts to settle. claim: the caller takes their outcomes, so others leave them alone."""
    if not ledger.config.ackers:
        return []
    names = [check_name(spout, "spout")] if spout is not None else (yield from _spouts(ledger))
    if not names:
        return []
    counts = [keys.Spout(ledger.config.name, name).counts for name in names]
    if claim:
        yield [command("HSET", key, keys.Spout.TAKEN, 1) for key in counts]
    elif spout is not None:
        yield [command("HDEL", key, keys.Spout.TAKEN) for key in counts]
    else:
        marks = yield from _marks(counts)
        names = [name for name, mark in zip(names, marks, strict=True) if mark is None]
    return names


def _marks(counts: list[bytes]) -> Operation[list[Reply]]:
    """Whether somebody takes the outcomes of each spout; None where it cannot be read: settling says why."""
    try:
        return (yield [command("HGET", key, keys.Spout.TAKEN) for key in counts])
    except MissingRights:
        raise
    except StoreError:
        if len(counts) == 1:
            return [None]
        marks: list[Reply] = []
        for key in counts:
            marks += yield from _marks([key])
        return marks


def _spouts(ledger: Ledger) -> Operation[list[str]]:
    """The spouts that have, or had, kept rows."""
    yield from ledger.core.refresh_spouts()
    names = sorted(ledger.core.spouts)
    if not names or not ledger.config.ackers:
        return []
    there = yield [command("EXISTS", keys.Spout(ledger.config.name, name).counts) for name in names]
    return [name for name, found in zip(names, there, strict=True) if found]


def with_room(ledger: Ledger, commit: Callable[[], T], timeout: float | None = None) -> T:
    """Runs a commit, again and again where there is no room for its roots, settling what has an outcome.

    timeout: seconds, by default twice the message timeout. Raises SpoutPendingFull or TrackRejected then.
    What keeps outcomes from being settled is logged: they may be another spout's.
    """
    wait = 2 * ledger.config.message_timeout if timeout is None else timeout
    deadline, trouble = time.monotonic() + wait, ""
    readings: dict[str, SettleProgress] = {}
    while True:
        try:
            return commit()
        except (SpoutPendingFull, TrackRejected):
            if time.monotonic() >= deadline:
                raise
            try:
                settled = settle(ledger, steps=1, readings=readings).all
            except AckerError as error:
                settled = 0
                if trouble != str(error):
                    trouble = str(error)
                    _log.warning(
                        "a commit waits for room, and outcomes of topology %s wait: %s",
                        ledger.config.name,
                        error,
                    )
            if not settled:
                time.sleep(_WAIT)


class Settler(Rounds):
    """Settles the outcomes of topologies of a store (all, where `names` is None), until `stop`.

    spout: only of this one. on_outcomes: is called with each batch of outcomes
    (`acker.streams.spouts.replays.OUTCOMES`) before they are settled; where it raises, they come again. Where
    several settle at once, each may get the same. A store that is away is waited for.
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
        self._stepping = threading.RLock()  # reentrant only so that it knows its owner
        self._ledgers: dict[str, Ledger] = {}
        self._looked: dict[str, float] = {}
        self._readings: dict[str, dict[str, SettleProgress]] = {}

    def step(self) -> int:
        """Settles what there is now; returns how many rows. Trouble with one topology is logged.

        For any thread: one at a time settles. Raises AckerError where `on_outcomes` calls it, and where that
        has not returned in another thread for a minute.
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
