"""Reports in the driver's log that a batch was too slow: its acks came when their trees had expired."""

import logging
from collections.abc import Sequence

from acker.ledger.client import Ledger
from acker.streams.staging.late import Late

_log = logging.getLogger(__name__)


def report(ledger: Ledger, who: str, late: Sequence[Late], seconds: float | None = None) -> int:
    """Logs what came too late of a batch, a warning where it took longer than the timeout; how many acks.

    seconds: how long the batch took, where known.
    """
    timeout = ledger.config.message_timeout
    for one in late:
        level = logging.WARNING if max(one.age, seconds or 0.0) >= timeout else logging.INFO
        _log.log(level, "%s", one.text(who, timeout, seconds))
    return sum(one.acks for one in late)
