"""The filter of dead letters, one for every face."""

from dataclasses import astuple, dataclass

from acker.errors import ValidationError, shown
from acker.ledger.settings.config import REASON_BYTES, check_name
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.masked import cause
from acker.streams.sources.dead_letter_store import Head

STATUSES = ("failed", "expired")
_MOST_AGE = 1e9


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of dead letters. All given conditions must hold; None, and "" for `reason`, matches all.

    Attributes:
        spout: The spout.
        status: The status of the last tree: failed or expired.
        step: The step that gave the reason; "" for letters without a known step.
        reason: A part of the reason, in capitals or not.
        cause: The whole cause (`cause`).
        stream: The stream in which a replay is published.
        older_than, newer_than: Seconds since the last outcome, by the store's clock.
        ended_until: Unix seconds by that clock: letters with a later last outcome do not match.

    Raises:
        ValidationError: A condition has a value that it does not take.
    """

    spout: str | None = None
    status: str | None = None
    step: str | None = None
    reason: str = ""
    cause: str | None = None
    stream: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    ended_until: float | None = None

    def __post_init__(self) -> None:
        for name in ("spout", "stream"):
            if (value := getattr(self, name)) is not None:
                check_name(value, name)
        if self.status is not None and self.status not in STATUSES:
            raise ValidationError(f"status: expected {' or '.join(STATUSES)}, got {shown(self.status)}")
        for name in ("step", "reason", "cause"):
            value = getattr(self, name)
            if name != "reason" and value is None:
                continue
            if not isinstance(value, str) or len(value) > REASON_BYTES:
                raise ValidationError(
                    f"{name}: expected text of at most {REASON_BYTES:,} characters, got {shown(value)}"
                )
        for name in ("older_than", "newer_than"):
            age = getattr(self, name)
            if age is not None:
                check_number(age, name, 0, _MOST_AGE, float)

    @property
    def narrows(self) -> bool:
        """True if some dead letter may not match."""
        return self != Filter()

    def takes(self, letter: Head, now: float) -> bool:
        """Return True if a dead letter matches, at `now` (Unix seconds by the store's clock)."""
        return (
            self.spout in (None, letter.spout)
            and self.status in (None, letter.status)
            and self.step in (None, letter.step)
            and self.stream in (None, letter.stream)
            and (self.older_than is None or now - letter.at >= self.older_than)
            and (self.newer_than is None or now - letter.at <= self.newer_than)
            and (self.ended_until is None or letter.at <= self.ended_until)
            and (not self.reason or self.reason.casefold() in letter.reason.casefold())
            and (self.cause is None or self.cause == cause(letter.reason))
        )

    def parts(self) -> tuple[object, ...]:
        """The values of the filter, in order."""
        return astuple(self)
