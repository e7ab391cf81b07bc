"""The query listener: stores facts of each starting query for processes without a JVM.

A listener learns of each query of a session before it begins. It stores the verdict on the query's plan
(plan_check.py) for the committing process of a query that writes by itself, and logs warnings. Spark waits
for it at the start of a query only; batches cost one empty call each.
"""

import atexit
import json
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import __version__ as spark_version
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.ledger.loops import Threads
from acker.spark.options.options import OPTIONS, Options
from acker.spark.queries import catching_up, plan_check, stopping
from acker.spark.queries.plan_check import AnalyzedPlan, Source
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.store.client import Store
from acker.streams.commits import release

_BATCHES = "ForeachBatchSink"
_SINKS = {"KafkaTable": "Kafka", "FileStreamSink": "files", "DeltaSink": "Delta", "SparkTable": "a table"}
"""The names of sinks for data, by Spark's class: people look at rows by others, as `console` and `memory`."""
_TEMPORARY = "/temporary-"
_ONE_RUN = {"AvailableNowTrigger$": "AvailableNow", "OneTimeTrigger$": "Once"}
"""The names of triggers whose run ends by itself, by Spark's class."""
_MOST_SESSIONS = 100
_PATIENCE = 5.0
"""Seconds that the end of a query waits for the store: Spark's listeners wait with it, and so does `stop`."""
_BROKEN = (AttributeError, KeyError, Py4JError, TypeError, ValueError)
"""Errors of a Spark that is built differently."""
_log = logging.getLogger(__name__)
_heard: dict[str, "_Listener"] = {}


def listen(spark: SparkSession) -> None:
    """Listens to the queries of a session, once for each session. Does nothing on Spark Connect."""
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
    """Removes the listeners from sessions when this process ends, after the pending calls.

    The end of a query is reported a little later, and a JVM whose Python is gone by then logs a stack trace
    for each call. The call for the end of a query matters, too: it deletes the query's records.
    """
    while _heard:
        _, listener = _heard.popitem()
        try:
            session = listener.spark._jsparkSession
            if not session.sparkContext().isStopped():
                session.sparkContext().listenerBus().waitUntilEmpty(int(_PATIENCE * 1000))
                session.streams().removeListener(listener.wrapped)
            listener._started.clear()
        except Exception as error:  # noqa: BLE001 - the JVM may be gone, or busy: nothing may disturb the end
            _log.debug("a session of Spark could not be left in order: %r", error)


class _Listener:
    """A listener with Spark's names of methods, called by Spark, which would only log its exceptions."""

    class Java:
        """The interfaces for py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.wrapped: Any = None
        """The object of the JVM that calls it."""
        self._started: dict[str, tuple[Any, list[Source], list[Ledger]]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Handles the start of a query, before it begins."""
        try:
            query, run = str(event.id().toString()), str(event.runId().toString())
            self._begin(event, query, run)
        except (*_BROKEN, AckerError) as error:
            _log.warning("a query that has started cannot be looked at: %s", error)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Does nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Does nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Handles the end of a query."""
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
        plan = AnalyzedPlan(execution)
        ledgers = _ledgers([one.options for one in plan.sources] + _written(execution))
        if not ledgers:
            return
        self._started[run] = execution, plan.sources, ledgers
        verdict = replace(
            plan.verdict(*_logged(execution)),
            application_id=self.spark.conf.get("spark.app.id") or "",
            application=self.spark.conf.get("spark.app.name") or "",
            sink=_SINKS.get(str(execution.sink().getClass().getSimpleName()), ""),
        )
        for ledger in ledgers:
            ledger.run(plan_check.record(ledger.core, query, run, verdict))
        if _written(execution):
            Threads().start(self._watch, execution, query, run, ledgers, name=f"acker watches {query}")
        if not plan.sources:
            return
        name = str(event.name() or query)
        _warn_of_sink(name, execution.sink(), plan.sources)
        self._warn_of_others(name, run, plan.sources)
        if not LEARNS_OFFSETS and not catching_up.under_way():
            _warn_of_one_batch(name, execution.trigger(), plan.sources)

    def _watch(self, execution: Any, query: str, run: str, ledgers: list[Ledger]) -> None:
        """Lets the commit of a query that writes by itself learn of the query's stop."""

        def forget() -> bool:
            try:
                for ledger in map(_impatient, ledgers):
                    ledger.run(plan_check.forget(ledger.core, query, run))
            except AckerError:  # the store is away
                return False
            return True

        with suppress(*_BROKEN):  # the JVM is gone
            stopping.watch(execution.isActive, lambda: run not in self._started, forget)

    def _warn_of_others(self, name: str, run: str, sources: list[Source]) -> None:
        """Warns of queries that share a subscription that is not named."""
        own = {one.place for one in sources if not one.subscription}
        for other, (execution, theirs, _) in self._started.items():
            shared = own & {one.place for one in theirs if not one.subscription}
            if other != run and shared and execution.isActive():
                _log.warning(
                    "query %s reads stream %r of topology %r as query %s does, for the same subscription: "
                    'each of them gets a part of its rows. If each must get all rows, name a '
                    'subscription for each, .option("subscription", name)',
                    name, min(shared)[1], min(shared)[0], execution.name() or execution.id().toString(),
                )  # fmt: skip


def _logged(execution: Any) -> tuple[int, str]:
    """Returns the number of the last batch in the checkpoint, and its time (ms)."""
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
        "query %s reads %s and acks nothing of it: its sink is %s. The trees of its rows expire. Write "
        "with a bolt, or with format('acker'); to look at rows, use spark.read, or a subscription of its own "
        "that is dropped afterwards",
        name, _streams(sources), kind,
    )  # fmt: skip


def _warn_of_one_batch(name: str, trigger: Any, sources: list[Source]) -> None:
    """Warns of a source that does not learn the position of its query: a scheduled job would fall behind."""
    kind = _ONE_RUN.get(str(trigger.getClass().getSimpleName()))
    if kind is not None:
        _log.warning(
            "query %s reads %s with Trigger.%s: on Spark %s, as on all before 4.2, that is one batch of at "
            "most max_rows rows, and the remaining rows wait for the next run. "
            "acker.spark.run_until_caught_up runs the query until no rows remain",
            name, _streams(sources), kind, spark_version,
        )  # fmt: skip


def _streams(sources: list[Source]) -> str:
    return ", ".join(sorted({one.place[1] for one in sources}))


def _written(execution: Any) -> list[dict[str, str]]:
    """Returns the options of a query's acker sink, which Spark shows nowhere else; the query's own."""
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
    """Returns the ledgers of the topologies that a query reads and writes, by the options of its sources."""
    ledgers = {}
    for options in given:
        known = {name: text for name, text in options.items() if name in OPTIONS}
        ledger = Options.parse(known).ledger()
        ledgers[ledger.config.name, ledger.store.url] = ledger
    return list(ledgers.values())


def _impatient(ledger: Ledger) -> Ledger:
    store = ledger.store
    patience = min(_PATIENCE, store.timeout)
    return Ledger(Store(store.url, timeout=patience, cluster=store.cluster), ledger.core)


def _give_back(ledgers: list[Ledger], execution: Any) -> None:
    """Gives back the unacked rows of a query whose checkpoint was temporary, and is gone."""
    taken, each = [], execution.availableOffsets().valuesIterator()
    while each.hasNext():
        offset = json.loads(each.next().json())
        if isinstance(offset, dict) and {"reader", "topology", "stream", "slot"} <= offset.keys():
            taken.append(offset)
    for ledger in ledgers:
        for taken_offset in taken:
            if taken_offset["topology"] == ledger.config.name:
                core = ledger.core
                ledger.run(
                    release.give_back(
                        core, taken_offset["stream"], taken_offset["slot"], taken_offset["reader"]
                    )
                )
