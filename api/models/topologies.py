"""Topologies: their settings, counters and thresholds."""

from typing import Any, Literal

from pydantic import Field

from acker.inspect.topology.health import MOST_MUTED
from acker.inspect.topology.thresholds import THRESHOLDS
from acker.ledger.outcomes.counts import COUNTERS
from acker.ledger.settings.config import SETTINGS
from acker.ledger.settings.settings import Setting
from api.fields import Answer, Count, Model, Name, Numbers, Reason, Seconds, counted, with_fields


def _settings(listed: dict[str, Setting], *, optional: bool) -> dict[str, Any]:
    """Settings as fields; optional: each may be left out."""
    fields = {}
    for name, setting in listed.items():
        kind: Any = Literal[setting.choices] if setting.choices else setting.kind
        bounds: Any = {} if setting.choices else {"ge": setting.low, "le": setting.high}
        field = Field(default=None if optional else ..., description=setting.words, **bounds)
        fields[name] = kind | None if optional else kind, field
    return fields


@with_fields(_settings(SETTINGS, optional=False))
class Configuration(Answer):
    """The configuration of a topology, as stored."""

    tick_period: Seconds = Field(description="Seconds between two rotations of a shard's buckets.")


@with_fields(_settings(SETTINGS, optional=True))
class TopologySettings(Numbers):
    """The settings of a topology. One that is left out is taken as it is stored, or else from its default."""


@with_fields(counted(COUNTERS, Count))
class Counters(Answer):
    """Exact counts since the topology was made."""


@with_fields(_settings(THRESHOLDS, optional=False))
class Thresholds(Answer):
    """From where on something is a trouble; 0 switches its rule off."""


@with_fields(_settings(THRESHOLDS, optional=True))
class ThresholdsBody(Numbers):
    """Thresholds to set. Others stay as they are."""


class RotatedStream(Answer):
    """An external stream whose stamps have a new key."""

    stream: Name
    dropped: Count = Field(description="Its open segments whose stamps are no longer accepted.")


class Rotated(Answer):
    """The external streams of a topology, after a rotation of their keys."""

    topology: Name
    streams: list[RotatedStream]


class MuteBody(Model):
    """The mute of a trouble."""

    reason: Reason = Field(min_length=1, description="Why, for others to read. At most 1 KiB of UTF-8.")
    seconds: float = Field(
        default=8 * 3600.0, ge=1, le=MOST_MUTED, description="How long; at most 30 days.", strict=True
    )


class Removed(Answer):
    """A topology that is gone."""

    topology: Name
    dropped: Count = Field(description="Its trees that were in flight, or had an outcome not confirmed.")
