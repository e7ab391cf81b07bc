"""What the driver knows of its queries when they start, and others have to: where there is a JVM beside it.

A listener learns of each query of a session before that begins. It leaves what the query's plan has
(plan_check.py) for the process that commits for a query that writes by itself, and warns of what
nobody else would. Spark waits for it at the start of a query only; batches cost one empty call each.
"""

import atexit
import json
import logging
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import __version__ as spark_version
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.spark.options.options import OPTIONS, Options
from acker.spark.queries import catching_up, plan_check
from acker.spark.queries.plan_check import AnalyzedPlan, Source
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.store.client import Store
from acker.streams.commits import release

_BATCHES = "ForeachBatchSink"
_TEMPORARY = "/temporary-"
_ONE_RUN = {"AvailableNowTrigger$": "AvailableNow", "OneTimeTrigger$": "Once"}
"""Spark's class of a trigger of a run that ends by itself -> its name."""
_MOST_SESSIONS = 100
_PATIENCE = 5.0
"""Seconds that the end of a query waits for the store: Spark's listeners wait with it, and so does `stop`."""
_BROKEN = (AttributeError, KeyError, Py4JError, TypeError, ValueError)
"""What a Spark raises that is built in another way."""
_log = logging.getLogger(__name__)
_heard: dict[str, "_Listener"] = {}


def listen(spark: SparkSession) -> None:
    """Listens to the queries of a session; once for each. Nothing on Spark Connect."""
    if not hasattr(spark, "sparkContext"):
        return
    try:
        name = str(spark._jsparkSession.sessionUUID())
        if name in _heard:
            return
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        if not _heard:
            atexit.register(_leave)
        _heard[name] = listener = _Listener(spark)
        listener.wrapped = wrapper(listener)
        spark._jsparkSession.streams().addListener(listener.wrapped)
    except _BROKEN as error:
        _log.warning("queries of this Spark cannot be listened to: %s", error)
    while len(_heard) > _MOST_SESSIONS:
        del _heard[next(iter(_heard))]


def _leave() -> None:
    """Takes the listeners from sessions when this process ends, after the calls that are due.

    The end of a query is told a little later, and a JVM whose Python is gone by then logs a stack trace for
    each call. The call for the end of a query matters, too: it drops what was noted of it.
    """
    while _heard:
        _, listener = _heard.popitem()
        try:
            session = listener.spark._jsparkSession
            if not session.sparkContext().isStopped():
                session.sparkContext().listenerBus().waitUntilEmpty(int(_PATIENCE * 1000))
                session.streams().removeListener(listener.wrapped)
        except Exception as error:  # noqa: BLE001 - the JVM may be gone, or busy: nothing may disturb the end
            _log.debug("a session of Spark could not be left in order: %r", error)


class _Listener:
    """Spark calls it; what it raises, Spark would only log. Its names are Spark's."""

    class Java:
        """For py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.wrapped: Any = None
        """The object of the JVM that calls it."""
        self._started: dict[str, tuple[Any, list[Source], list[Ledger]]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Before the query begins."""
        try:
            query, run = str(event.id().toString()), str(event.runId().toString())
            self._begin(event, query, run)
        except (*_BROKEN, AckerError) as error:
            _log.warning("a query that has started cannot be looked at: %s", error)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """When the query has ended."""
        try:
            query, run = str(event.id().toString()), str(event.runId().toString())
            if run not in self._started:
                return
            execution, _, started = self._started.pop(run)
            ledgers = [_impatient(ledger) for ledger in started]
            for ledger in ledgers:
                ledger.run(plan_check.forget(ledger.core, query, run))
            if _TEMPORARY in str(execution.resolvedCheckpointRoot()):
                _give_back(ledgers, execution)
        except (*_BROKEN, AckerError) as error:
            _log.warning("a query that has ended cannot be looked at: %s", error)

    def _begin(self, event: Any, query: str, run: str) -> None:
        active = self.spark._jsparkSession.sharedState().activeStreamingQueries()
        execution = active.get(event.id())
        found = AnalyzedPlan(execution)
        ledgers = _ledgers([one.options for one in found.sources] + _written(execution))
        if not ledgers:
            return
        self._started[run] = execution, found.sources, ledgers
        verdict = replace(
            found.verdict(*_logged(execution)),
            application_id=self.spark.conf.get("spark.app.id") or "",
            application=self.spark.conf.get("spark.app.name") or "",
        )
        for ledger in ledgers:
            ledger.run(plan_check.record(ledger.core, query, run, verdict))
        if not found.sources:
            return
        name = str(event.name() or query)
        _warn_of_sink(name, execution.sink(), found.sources)
        self._warn_of_others(name, run, found.sources)
        if not LEARNS_OFFSETS and not catching_up.under_way():
            _warn_of_one_batch(name, execution.trigger(), found.sources)

    def _warn_of_others(self, name: str, run: str, sources: list[Source]) -> None:
        """Of queries that share a subscription which nobody has named."""
        own = {one.place for one in sources if not one.subscription}
        for other, (execution, theirs, _) in self._started.items():
            shared = own & {one.place for one in theirs if not one.subscription}
            if other != run and shared and execution.isActive():
                _log.warning(
                    "query %s reads stream %r of topology %r as query %s does, for the same subscription: "
                    'each of them has a part of its rows. Name one for each, .option("subscription", name), '
                    "where each is to have all",
                    name, min(shared)[1], min(shared)[0], execution.name() or execution.id().toString(),
                )  # fmt: skip


def _logged(execution: Any) -> tuple[int, str]:
    """The number of the last batch that the checkpoint has, and its time (ms)."""
    last = execution.offsetLog().getLatest()
    if not last.isDefined():
        return -1, ""
    number, offsets = int(last.get()._1()), last.get()._2()
    for name in ("metadataOpt", "metadata"):  # since Spark 4.3, and before
        try:
            return number, str(getattr(offsets, name)().get().batchTimestampMs())
        except Py4JError:
            continue
    return number, ""


def _warn_of_sink(name: str, sink: Any, sources: list[Source]) -> None:
    kind = sink.getClass().getSimpleName()
    if kind == _BATCHES or (kind == "PythonTable" and sink.name() == "acker"):
        return
    _log.warning(
        "query %s reads %s and acks nothing of it: its sink is %s. The trees of what it takes expire. Write "
        "with a bolt, or with format('acker'); to look at rows, use spark.read, or a subscription of its own "
        "that is dropped afterwards",
        name, _streams(sources), kind,
    )  # fmt: skip


def _warn_of_one_batch(name: str, trigger: Any, sources: list[Source]) -> None:
    """Where a source does not learn where its query is: a job on a schedule would fall behind for good."""
    kind = _ONE_RUN.get(str(trigger.getClass().getSimpleName()))
    if kind is not None:
        _log.warning(
            "query %s reads %s with Trigger.%s: on Spark %s, as on all before 4.2, that is one batch of at "
            "most max_rows rows, and what is behind after it waits for the next run. "
            "acker.spark.run_until_caught_up runs the query until nothing is behind",
            name, _streams(sources), kind, spark_version,
        )  # fmt: skip


def _streams(sources: list[Source]) -> str:
    return ", ".join(sorted({one.place[1] for one in sources}))


def _written(execution: Any) -> list[dict[str, str]]:
    """The options of a query's sink, where that is ours: those of the query, which Spark shows to nobody."""
    sink = execution.sink()
    if sink.getClass().getSimpleName() != "PythonTable" or sink.name() != "acker":
        return []
    field = execution.getClass().getDeclaredField("extraOptions")
    field.setAccessible(True)
    each, options = field.get(execution).iterator(), {}
    while each.hasNext():
        entry = each.next()
        options[str(entry._1()).lower()] = str(entry._2())
    return [options]


def _ledgers(given: list[dict[str, str]]) -> list[Ledger]:
    """Those of the topologies that a query reads and writes, by the options of their sources."""
    found = {}
    for options in given:
        known = {name: text for name, text in options.items() if name in OPTIONS}
        ledger = Options.parse(known).ledger()
        found[ledger.config.name, ledger.store.url] = ledger
    return list(found.values())


def _impatient(ledger: Ledger) -> Ledger:
    store = ledger.store
    patience = min(_PATIENCE, store.timeout)
    return Ledger(Store(store.url, timeout=patience, cluster=store.cluster), ledger.core)


def _give_back(ledgers: list[Ledger], execution: Any) -> None:
    """Gives back what a query has taken and not acked whose checkpoint was a temporary one, and is gone."""
    taken, each = [], execution.availableOffsets().valuesIterator()
    while each.hasNext():
        offset = json.loads(each.next().json())
        if isinstance(offset, dict) and {"reader", "topology", "stream", "slot"} <= offset.keys():
            taken.append(offset)
    for ledger in ledgers:
        for one in taken:
            if one["topology"] == ledger.config.name:
                core = ledger.core
                ledger.run(release.give_back(core, one["stream"], one["slot"], one["reader"]))
