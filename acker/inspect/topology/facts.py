"""The facts of a topology that the rules of health judge (`acker.inspect.topology.health_rules`).

Terms: a tree is all that comes of one record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from acker.inspect.topology.pace import Pace
from acker.inspect.topology.thresholds import Thresholds
from acker.inspect.topology.totals import Totals
from acker.inspect.topology.troubles import Mute, PausedSpout, words
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.steps.step_registry import Step
from acker.streams.log.stream_totals import StreamTotals


@dataclass(frozen=True, slots=True)
class Recently:
    """The ends of trees in the window. seconds: its length, None for all since the topology was made."""

    seconds: float | None = None
    acked: int = 0
    failed: int = 0
    expired: int = 0
    p99: float | None = None

    @property
    def ended(self) -> int:
        """Trees that had an outcome."""
        return self.acked + self.failed + self.expired

    @property
    def span(self) -> str:
        """The window in words."""
        return "so far" if self.seconds is None else f"in the last {words(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Facts:
    """The figures to be judged. at: Unix seconds by the store's clock.

    unconfirmed: for spouts with unconfirmed outcomes, the age in seconds of the oldest one (if its rows wait
    for their next attempt: the time since that was due), as far as it was read. dead_letters: of spouts that
    have any. damage: the presently unreadable records. since: the time at which each trouble was first
    recorded, in Unix seconds. mutes: the word of people for troubles. paces: of sources that were watched, ""
    for all spouts together. unread: for spouts whose source could not be read again lately, the reason.
    unsent: likewise, for spouts whose dead letters could not be sent. paused: the pauses of spouts.
    """

    config: TopologyConfig
    at: float
    totals: Totals
    recently: Recently = Recently()
    streams: Sequence[StreamTotals] = ()
    steps: Sequence[Step] = ()
    unconfirmed: Mapping[str, float] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    damage: str = ""
    thresholds: Thresholds = field(default_factory=Thresholds)
    since: Mapping[str, float] = field(default_factory=dict)
    mutes: Mapping[str, Mute] = field(default_factory=dict)
    paces: Mapping[str, Pace] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    unsent: Mapping[str, str] = field(default_factory=dict)
    paused: tuple[PausedSpout, ...] = ()
