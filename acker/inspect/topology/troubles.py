"""Troubles: what a rule of health has found, how bad it is, and who has muted it."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

from acker.ledger.fields import HIDDEN, SPREAD, Examples, Instant, Name, instant

Code: TypeAlias = Literal[
    "no-ticks",
    "full",
    "nearly-full",
    "drain-behind",
    "failing",
    "expiring",
    "slow",
    "no-bolt",
    "behind",
    "unstamped",
    "unheard",
    "no-spout",
    "unread",
    "unsent",
    "silent",
    "paused",
    "dead-letters-full",
    "dead-letters",
    "unreadable",
]
CODES: tuple[Code, ...] = get_args(Code)

Severity: TypeAlias = Literal["critical", "look"]
"""Critical: records are lost to their jobs, or will be soon. The rest needs a look."""
Level: TypeAlias = Literal["critical", "look", "muted", "well"]
"""The severity of a topology is the severity of its worst trouble; muted if all its troubles are muted."""
LEVELS: tuple[Level, ...] = get_args(Level)
"""From the worst to the best."""


class Place(NamedTuple):
    """The place of a trouble: a spout, a stream, or what a subscription reads.

    kind: failed and expired stand for the node with the most such trees.
    """

    kind: Literal["spout", "stream", "reads", "failed", "expired"]
    name: str = ""
    subscription: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A thing that needs a human."""

    code: Code
    severity: Severity
    text: Annotated[str, "In words."]
    advice: Annotated[str, "What to do."]
    since: Annotated[Instant | None, "By the store's clock; null where that is not known."]
    threshold: Annotated[str | None, "The name of the threshold that it is over; null where there is none."]
    limit: Annotated[float | None, "The threshold."]
    value: Annotated[float | None, "What was compared with the threshold, in the same unit."]
    place: Annotated[Place | None, HIDDEN] = None


@dataclass(frozen=True, slots=True)
class Mute:
    """Somebody's word that a trouble needs nobody until then."""

    by: Annotated[str, Examples("ann"), "The name of the token, or the user and host of a command line."]
    reason: str
    until: Annotated[
        Instant | None, "null: it has no end, as of a threshold that is switched off, or a paused spout."
    ]


@dataclass(frozen=True, slots=True)
class Muted:
    """A trouble that is muted: it is there, and counts for nothing."""

    trouble: Annotated[Trouble, SPREAD]
    mute: Annotated[Mute, SPREAD]


@dataclass(frozen=True, slots=True)
class PausedSpout:
    """A spout whose new tracks are rejected, by somebody's word."""

    spout: Name
    by: Annotated[str, Examples("ann"), "The author; empty where the record cannot be read."]
    reason: str
    since: Annotated[Instant | None, "By the store's clock; null where that is not known."]
    whole: Annotated[
        bool, "False where a part of the store still takes its tracks: pause it again, or resume it."
    ] = True

    @property
    def text(self) -> Annotated[str, HIDDEN]:
        """The pause in words."""
        by = f" by {self.by}" if self.by else ""
        since = "" if self.since is None else f" since {instant(self.since)}"
        reason = f": {self.reason}" if self.reason else ""
        return f"spout {self.spout} is {'paused' if self.whole else 'paused in part'}{by}{since}{reason}"


class Finding(NamedTuple):
    """The finding of a rule: in words, its duration in seconds, if known, what was judged, and where.

    mute: of a finding that is somebody's will.
    """

    text: str
    lasts: float | None = None
    value: float | None = None
    place: Place | None = None
    mute: Mute | None = None


def words(seconds: float) -> str:
    """A time in words, for people."""
    if seconds < 10:
        return f"{seconds:.3g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"
