"""acker for Spark: the data source "acker", bolts and jobs. Executors need the wheel only."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from acker.errors import FailedException, PermanentFailure

if TYPE_CHECKING:
    from acker.spark.acker import Acker
    from acker.spark.bolts.bolt import Bolt, bolt
    from acker.spark.bolts.collector import Collector
    from acker.spark.bolts.job import job
    from acker.spark.external import files, kafka
    from acker.spark.external.sinks import Sink, sink
    from acker.spark.external.tables import delta, iceberg, jdbc
    from acker.spark.functions.spark_steps import SparkSteps
    from acker.spark.functions.step_collector import StepCollector
    from acker.spark.letters import dead_letters, discard, replay
    from acker.spark.queries.catching_up import run_until_caught_up
    from acker.spark.queries.rewind_checkpoint import read_again
    from acker.spark.reconciliation import Reconciliation, reconcile
    from acker.spark.records.anchors import anchors
    from acker.spark.records.gathered import gathered
    from acker.spark.runtime.tuning import tuned
    from acker.spark.source.acker_source import AckerSource, register
    from acker.spark.spouts import outcomes, settling, track, watermark

__all__ = [
    "Acker",
    "AckerSource",
    "Bolt",
    "Collector",
    "FailedException",
    "PermanentFailure",
    "Reconciliation",
    "Sink",
    "SparkSteps",
    "StepCollector",
    "anchors",
    "bolt",
    "dead_letters",
    "delta",
    "discard",
    "files",
    "gathered",
    "iceberg",
    "jdbc",
    "job",
    "kafka",
    "outcomes",
    "read_again",
    "reconcile",
    "register",
    "replay",
    "run_until_caught_up",
    "settling",
    "sink",
    "track",
    "tuned",
    "watermark",
]

# They come with their first use: Spark starts a process for each query's source, which needs only that.
_LATER = {
    "records.anchors": ("anchors",),
    "queries.rewind_checkpoint": ("read_again",),
    "queries.catching_up": ("run_until_caught_up",),
    "bolts.bolt": ("Bolt", "bolt"),
    "bolts.job": ("job",),
    "bolts.collector": ("Collector",),
    "external.sinks": ("Sink", "sink"),
    "functions.spark_steps": ("SparkSteps",),
    "functions.step_collector": ("StepCollector",),
    "acker": ("Acker",),
    "reconciliation": ("Reconciliation", "reconcile"),
    "records.gathered": ("gathered",),
    "source.acker_source": ("AckerSource", "register"),
    "letters": ("dead_letters", "discard", "replay"),
    "spouts": ("outcomes", "settling", "track", "watermark"),
    "runtime.tuning": ("tuned",),
}
_MODULES = {
    **{name: f"external.{name}" for name in ("files", "kafka")},
    **{name: f"external.tables.{name}" for name in ("delta", "iceberg", "jdbc")},
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"acker.spark.{_MODULES[name]}")
    for module, names in _LATER.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"acker.spark.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
