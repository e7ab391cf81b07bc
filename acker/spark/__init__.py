"""acker for Spark: the data source "acker", bolts and jobs. Executors need the wheel only."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from acker.errors import FailedException, PermanentFailure

if TYPE_CHECKING:
    from acker.spark.anchoring import anchors
    from acker.spark.bolts import Bolt, bolt
    from acker.spark.collector import Collector
    from acker.spark.drpc import SparkSteps, StepCollector
    from acker.spark.face import Acker
    from acker.spark.gathering import gathered
    from acker.spark.jobs import job
    from acker.spark.queries.again import read_again
    from acker.spark.queries.catching_up import run_until_caught_up
    from acker.spark.source.data_source import AckerSource, register
    from acker.spark.spouts import dead_letters, discard, outcomes, replay, settling, track, watermark
    from acker.spark.tuning import tuned

__all__ = [
    "Acker",
    "AckerSource",
    "Bolt",
    "Collector",
    "FailedException",
    "PermanentFailure",
    "SparkSteps",
    "StepCollector",
    "anchors",
    "bolt",
    "dead_letters",
    "discard",
    "gathered",
    "job",
    "outcomes",
    "read_again",
    "register",
    "replay",
    "run_until_caught_up",
    "settling",
    "track",
    "tuned",
    "watermark",
]

# They come with their first use: Spark starts a process for each query's source, which needs only that.
_LATER = {
    "anchoring": ("anchors",),
    "queries.again": ("read_again",),
    "queries.catching_up": ("run_until_caught_up",),
    "bolts": ("Bolt", "bolt"),
    "jobs": ("job",),
    "collector": ("Collector",),
    "drpc": ("SparkSteps", "StepCollector"),
    "face": ("Acker",),
    "gathering": ("gathered",),
    "source.data_source": ("AckerSource", "register"),
    "spouts": ("dead_letters", "discard", "outcomes", "replay", "settling", "track", "watermark"),
    "tuning": ("tuned",),
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"acker.spark.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
