"""The member of a group in the store: its processes have one spout name, and outcomes of their own each."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from acker.collectors.modes.observing_spout import open_spout
from acker.collectors.session import Session
from acker.collectors.spout import Spout
from acker.errors import AckerError, StoreUnavailable
from acker.ledger.outcomes import members
from acker.ledger.outcomes.members import Membership

EVERY = 10.0
"""Seconds between two signs of life of a member in the store."""
_SPARE = 30.0
"""Seconds that a member keeps its place after its group has taken its partitions away."""
_AGAIN = 1.0
"""Seconds until another one where the store did not answer."""
_log = logging.getLogger(__name__)


class Member:
    """A spout under the name of its group, and the place of this process there.

    Where nothing is tracked, or the spout only observes, there is no place: nobody takes outcomes.

    Args:
        topology: The topology.
        name: The name of the spout.
        max_spout_pending: See `acker.Topology.spout`.
        observe: See `acker.Topology.spout`.
        consumer: The settings of the consumer, whose times say how long it may be silent.
    """

    def __init__(
        self,
        topology: Session,
        name: str,
        max_spout_pending: int | None,
        observe: bool,
        consumer: Mapping[str, Any],
    ) -> None:
        self._topology, self._most, self._observe = topology, max_spout_pending, observe
        times = (("max.poll.interval.ms", 300_000), ("session.timeout.ms", 45_000))
        silent = max(float(consumer.get(setting, usual)) for setting, usual in times)
        self._place = Membership.of(name, silent / 1000 + _SPARE)
        self._at = time.monotonic()
        self._has_place = bool(topology.config.ackers) and not (observe or topology.observes or topology.off)
        if self._has_place:
            self._claim()
        self.spout = self._open()

    @property
    def run(self) -> int:
        """The begin of the group's run, in milliseconds of the store's clock; 0 if it is not known."""
        return self._place.run

    def keep(self) -> bool:
        """Gives a sign of life now and again; returns True if the spout is another one now.

        Another process may have the place of a member that was silent for too long, or its outcomes.
        """
        now = time.monotonic()
        if not self._has_place or now - self._at < EVERY:
            return False
        try:
            moved, silent = self._claim(), now - self._at
        except StoreUnavailable:  # records are read, and offsets committed, while it is away
            self._at = max(self._at, now - EVERY + _AGAIN)
            return False
        self._at = now
        if moved:
            _log.warning(
                "spout %s: this process was silent for %.0f s, and another one may have its place or its "
                "outcomes, or the store has lost it: its records in flight are tried again",
                self.spout.name, silent,
            )  # fmt: skip
            self.spout = self._open()
        return moved

    def leave(self) -> None:
        """Gives the place to the next process; the outcomes that come for it are passed over."""
        ledger, place = self._topology.ledger, self._place
        if self._has_place:
            try:
                ledger.run(members.leave(ledger.core, place))
            except AckerError as error:
                _log.info("spout %s: its place is free in %.0f s: %s", place.spout, place.ttl, error)

    def _claim(self) -> bool:
        return self._topology.ledger.run(members.claim(self._topology.ledger.core, self._place))

    def _open(self) -> Spout:
        name, place = self._place.spout, max(1, self._place.place)
        return open_spout(self._topology, name, self._most, observe=self._observe, grouped=True, place=place)
