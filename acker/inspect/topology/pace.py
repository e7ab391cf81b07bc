"""The pace of a source: how long it usually pauses, from looks a few seconds apart.

A permanent observer looks now and again, and keeps one pace for each source. A time in which nobody has
looked is no gap of the source, and no silence.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Self

STEADY = 12
"""So many gaps make a source steady."""
BLIND = 60.0
"""Seconds; of a longer time without a look it is not known whether the source could have worked."""
_FADES = 0.98


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a source.

    Attributes:
        count: A count of the source that grows with its work, at the last look.
        worked: Unix seconds of the last look at which the count had grown, later by the times without a look
            since then; 0.0 before the first.
        looked: Unix seconds of the last look.
        gap: Its usual gap: the longest in seconds, where earlier ones count less and less.
        gaps: The number of its gaps so far, at most `STEADY`.
    """

    count: float
    worked: float
    looked: float
    gap: float = 0.0
    gaps: int = 0

    def after(self, count: float, at: float) -> "Pace":
        """Returns the pace after a further look, in Unix seconds. A count that went back begins anew."""
        if count < self.count or at < self.looked:
            return Pace(count, 0.0, at)
        blind = at - self.looked > BLIND
        if count == self.count:
            # A time without a look, as of a store that was down, is none of the silence, and ends none.
            unseen = at - self.looked if blind and self.worked else 0.0
            return replace(self, looked=at, worked=self.worked + unseen)
        if blind or not self.worked:
            return replace(self, count=count, worked=at, looked=at)
        gap = max(at - self.worked, self.gap * _FADES)
        return Pace(count, at, at, gap, min(STEADY, self.gaps + 1))

    def silence(self, at: float) -> float | None:
        """Seconds that a steady source has been silent at `at`; None if it is not steady."""
        return max(0.0, at - self.worked) if self.gaps >= STEADY else None

    def dump(self) -> str:
        """The pace as text."""
        return json.dumps(list(asdict(self).values()))

    @classmethod
    def load(cls, text: bytes) -> Self | None:
        """The pace of a text; None if it is none."""
        try:
            values = json.loads(text)
            pace = cls(*values)
            fine = all(isinstance(value, int | float) and math.isfinite(value) for value in values)
        except (ValueError, TypeError):
            return None
        return pace if fine else None
