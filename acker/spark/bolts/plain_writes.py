"""Warns of a bolt whose function writes the column `_acker` somewhere: such numbers mean nothing there.

Spark tells of writes by a listener, so the first batch of each run of a query is listened to. Spark Connect
tells nothing.
"""

import logging
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from acker.streams.log.segments import ANCHORS
from acker.streams.staging.external.rows.carriers import COLUMN

_BROKEN = (AttributeError, Py4JError, TypeError)
"""Errors of a Spark that is built differently."""
_MOST_RUNS = 1_000
_watched: dict[tuple[str, str], "_Listener | None"] = {}
"""The listener of each run of a query and its bolt; None when it has been listened to."""
_named = set[str]()
"""Bolts that were named in the log."""
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Listener:
    """A listener with Spark's names of methods. manager: the JVM object that it is registered with."""

    bolt: str
    manager: Any

    class Java:
        """The interfaces for py4j."""

        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)

    def onSuccess(self, _: str, execution: Any, __: int) -> None:  # noqa: N802
        """Looks at the columns of a write."""
        try:
            output = execution.analyzed().query().output()
            names = {str(output.apply(place).name()).lower() for place in range(output.size())}
        except _BROKEN:  # it is no write
            return
        if ANCHORS in names and self.bolt not in _named:
            _named.add(self.bolt)
            _log.warning(
                "bolt %r writes rows with the column %s to a sink of its own, where these numbers mean "
                "nothing, and no tree waits for its readers: write rows.drop(%r, %r), or, to have the rows "
                "tracked, collector.emit(rows, stream, to=...)",
                self.bolt, ANCHORS, ANCHORS, COLUMN,
            )  # fmt: skip

    def onFailure(self, _: str, __: Any, ___: Any) -> None:  # noqa: N802
        """Does nothing."""


def watch(spark: SparkSession, run: str, bolt: str) -> None:
    """Listens to the first batch of a run of a query. Called at the beginning of each batch.

    Args:
        spark: The session of the batch.
        run: The run.
        bolt: The name of the bolt.
    """
    place, first = (run, bolt), (run, bolt) not in _watched
    listener = _watched.get(place)
    if not hasattr(spark, "sparkContext") or (listener is None and not first):
        return
    try:
        if listener is not None:
            _watched[place] = None
            listener.manager.unregister(listener)
            return
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        listener = _watched[place] = _Listener(bolt, spark._jsparkSession.listenerManager())
        listener.manager.register(listener)
    except _BROKEN as error:
        _log.debug("writes of bolt %r cannot be listened to: %s", bolt, error)
    while len(_watched) > _MOST_RUNS:
        del _watched[next(iter(_watched))]
