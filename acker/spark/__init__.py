"""acker for Spark: the data source "acker", bolts and jobs. Executors need the wheel only."""

from acker.errors import FailedException
from acker.spark.bolts import Bolt, bolt, job
from acker.spark.collector import Collector
from acker.spark.source import AckerSource, register
from acker.spark.spouts import dead_letters, outcomes, replay, settling, track, watermark
from acker.spark.tuning import tuned

__all__ = [
    "AckerSource",
    "Bolt",
    "Collector",
    "FailedException",
    "bolt",
    "dead_letters",
    "job",
    "outcomes",
    "register",
    "replay",
    "settling",
    "track",
    "tuned",
    "watermark",
]
