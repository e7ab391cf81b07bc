"""Late batches: reports in the driver's log that acks came after the expiry of their trees."""

import logging
from collections.abc import Sequence

from acker.ledger.client import Ledger
from acker.streams.staging.late import Late

_log = logging.getLogger(__name__)


def report(ledger: Ledger, who: str, late: Sequence[Late], seconds: float | None = None) -> int:
    """Logs the late acks of a batch, as a warning if it exceeded the timeout; returns their number.

    seconds: the duration of the batch, if known.
    """
    timeout = ledger.config.message_timeout
    for ack in late:
        level = logging.WARNING if max(ack.age, seconds or 0.0) >= timeout else logging.INFO
        _log.log(level, "%s", ack.text(who, timeout, seconds))
    return sum(ack.acks for ack in late)
