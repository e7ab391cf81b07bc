"""acker: a shared reliability store for Spark jobs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from acker.errors import (
    AckerError,
    BufferFull,
    FailedException,
    MissingRights,
    PermanentFailure,
    SpoutPaused,
    SpoutPendingFull,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    TopologyConfigError,
    TrackConflict,
    TrackRejected,
    TupleError,
    UnknownTopology,
    ValidationError,
    WritersFull,
)

if TYPE_CHECKING:
    from acker.collectors.external.event_loop.async_topology import AsyncTopology
    from acker.collectors.outcome import Outcome
    from acker.collectors.topology import Topology
    from acker.collectors.tuples import Tuple

__all__ = [
    "AckerError",
    "AsyncTopology",
    "BufferFull",
    "FailedException",
    "MissingRights",
    "Outcome",
    "PermanentFailure",
    "SpoutPaused",
    "SpoutPendingFull",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Topology",
    "TopologyConfigError",
    "TrackConflict",
    "TrackRejected",
    "Tuple",
    "TupleError",
    "UnknownTopology",
    "ValidationError",
    "WritersFull",
]

# These need numpy and redis, which take most of the time of an import: they come with their first use.
_LATER = {
    "AsyncTopology": "acker.collectors.external.event_loop.async_topology",
    "Outcome": "acker.collectors.outcome",
    "Topology": "acker.collectors.topology",
    "Tuple": "acker.collectors.tuples",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value
