"""Topologies: their settings, counters and thresholds."""

from typing import Any, Literal

from pydantic import Field

from acker.inspect.topology.health_rules import THRESHOLDS
from acker.ledger.outcomes.counts import COUNTERS
from acker.ledger.settings.config import SETTINGS
from acker.ledger.settings.settings import Setting
from api.fields import Answer, Count, Name, Numbers, Seconds, counted, with_fields


def _settings(listed: dict[str, Setting], *, asked: bool) -> dict[str, Any]:
    """Settings as fields; asked: each may be left out."""
    found = {}
    for name, one in listed.items():
        kind: Any = Literal[one.choices] if one.choices else one.kind
        bounds: Any = {} if one.choices else {"ge": one.low, "le": one.high}
        field = Field(default=None if asked else ..., description=one.words, **bounds)
        found[name] = kind | None if asked else kind, field
    return found


@with_fields(_settings(SETTINGS, asked=False))
class Configuration(Answer):
    """The configuration of a topology, as stored."""

    tick_period: Seconds = Field(description="Seconds between two rotations of a shard's buckets.")


@with_fields(_settings(SETTINGS, asked=True))
class TopologySettings(Numbers):
    """The settings of a topology. One that is left out is taken as it is stored, or else from its default."""


@with_fields(counted(COUNTERS, Count))
class Counters(Answer):
    """Exact counts since the topology was made."""


@with_fields(_settings(THRESHOLDS, asked=False))
class Thresholds(Answer):
    """From where on something is a trouble; 0 switches its rule off."""


@with_fields(_settings(THRESHOLDS, asked=True))
class ThresholdsBody(Numbers):
    """Thresholds to set. Others stay as they are."""


class Removed(Answer):
    """A topology that is gone."""

    topology: Name
    dropped: Count = Field(description="Its trees that were in flight, or had an outcome not confirmed.")
