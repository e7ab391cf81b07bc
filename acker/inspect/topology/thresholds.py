"""Thresholds of health: from where on a rule of `acker.inspect.topology.health_rules` finds a trouble."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from acker.errors import ValidationError, shown
from acker.ledger.settings.settings import number, settings_of

MOST_LIMIT = 1e9


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something is a trouble; 0 switches its rule off: its findings are muted for good."""

    full: float = number(0.8, 0.0, MOST_LIMIT, "The fullest shard's share of what it may hold.")
    failed: float = number(0.1, 0.0, MOST_LIMIT, "Share of the trees that ended in the last ten minutes.")
    expired: float = number(0.05, 0.0, MOST_LIMIT, "Share of the trees that ended in the last ten minutes.")
    latency: float = number(0.8, 0.0, MOST_LIMIT, "p99 in the last ten minutes, in message timeouts.")
    behind: float = number(
        1.0, 0.0, MOST_LIMIT, "How long rows wait for a subscription, in message timeouts."
    )
    silence: float = number(
        120.0,
        0.0,
        MOST_LIMIT,
        "Seconds without a sign of the bolts of a stream with rows, or a spout with outcomes.",
    )
    silent: float = number(
        5.0, 0.0, MOST_LIMIT, "How long a steady source tracks nothing, in times of its usual gap."
    )
    dead_letters: float = number(1.0, 0.0, MOST_LIMIT, "How many dead letters.")
    unreadable: float = number(1.0, 0.0, MOST_LIMIT, "How many records that could not be read.")

    def changed(self, changes: Mapping[str, float]) -> "Thresholds":
        """Returns the thresholds with some other values; ValidationError names a wrong name or value."""
        for name, value in changes.items():
            if name not in THRESHOLDS:
                known = ", ".join(THRESHOLDS)
                raise ValidationError(f"threshold: expected one of {known}, got {shown(name)}")
            THRESHOLDS[name].check(value, name)
        return replace(self, **changes)


THRESHOLDS = settings_of(Thresholds)
