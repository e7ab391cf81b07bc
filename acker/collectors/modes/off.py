"""A topology that is off: a program written for acker runs without a store.

No connection is made. A spout emits untracked tuples and reports each record as acked at once, as with
`ackers=0`, so a loop that waits for outcomes goes on. Bolts change the state of their tuples and send
nothing. Rows of external streams are untracked, and get no stamps. A call that needs the store raises
TurnedOff.

Terms: a slab is the trees that one call tracked together.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Unpack

from acker.collectors.outbox import Outbox
from acker.collectors.tuples import Tuple
from acker.errors import TurnedOff, ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.settings.config import Settings, TopologyConfig, check_settings
from acker.ledger.slabs.slabs import NewSlab
from acker.store.client import Store
from acker.store.operation import Request

VARIABLE = "ACKER_OFF"
"""The environment variable that turns acker off in all topologies of a process, whatever they say."""
_MEANINGS = {"": False, "0": False, "false": False, "1": True, "true": True}


def is_off(enabled: object) -> bool:
    """Returns True if a topology is to be off.

    Args:
        enabled: The argument `enabled` of the topology.

    Raises:
        ValidationError: `enabled` is no bool, or `ACKER_OFF` is not 1, true, 0 or false.
    """
    if not isinstance(enabled, bool):
        raise ValidationError(f"enabled: expected True or False, got {shown(enabled)}")
    given = os.environ.get(VARIABLE, "")
    meant = _MEANINGS.get(given.lower())
    if meant is None:
        raise ValidationError(f"{VARIABLE}: expected 1, true, 0 or false, got {shown(given)}")
    return meant or not enabled


def off_ledger(store: Store, name: str, **settings: Unpack[Settings]) -> "OffLedger":
    """The ledger of a topology that is off. The arguments are checked as in a topology that is on."""
    given: dict[str, Any] = {**check_settings(settings), "ackers": 0}
    off = NoStore(store.url, timeout=store.timeout, cluster=store.cluster)
    return OffLedger(off, Core(TopologyConfig(name, **given)))


class NoStore(Store):
    """The store of a topology that is off: it makes no connection, and refuses each request."""

    @property
    def round_trip(self) -> float:
        """0: no request was sent."""
        return 0.0

    def send(self, requests: Sequence[Request]) -> NoReturn:
        """Raises TurnedOff."""
        raise TurnedOff(
            f"acker is turned off, by enabled=False or the environment variable {VARIABLE}, and this call "
            f"needs the store: nothing was done. Turn acker on, or leave the call out while {VARIABLE} is set"
        )


class OffLedger(Ledger):
    """The ledger of a topology that is off: no shards, and no registry of spouts."""

    off = True

    def register_spout(self, name: str, ask: bool = False) -> None:
        """Does nothing."""

    def track_slabs(self, slabs: Sequence[NewSlab], *, spout: str) -> list[str]:
        """Checks slabs, and tracks none."""
        for slab in slabs:
            slab.check()
        return ["A"] * len(slabs)


class OffOutbox(Outbox):
    """The outbox of a topology that is off: tuples change their state, and nothing is sent or kept."""

    def ack(self, tuple: Tuple, step: str) -> None:  # noqa: A002 - as the outbox has it
        """Marks an open tuple as acked."""
        tuple.ended = "acked"

    def fail(self, tuple: Tuple, step: str, cause: bytes) -> None:  # noqa: A002 - as above
        """Marks an open tuple as failed."""
        tuple.ended = "failed"

    def reset_timeout(self, anchors: Iterable[int], step: str) -> None:
        """Does nothing."""

    def count_emitted(self, tuples: int) -> None:
        """Does nothing."""

    def flush(self) -> None:
        """Does nothing, but in the middle of another call of its thread, as `Outbox.flush`."""
        self.check_whole()

    def finish(self) -> None:
        """Does nothing."""
