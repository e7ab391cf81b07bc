"""Rows that a Spark job reads again from their source: for spouts whose ids alone are in the store.

A thread of the driver that tracks them asks `reread` for rows that have not ended well, as long as its
session lives. See `acker.streams.spouts.rereading`.
"""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import IntegralType, StringType

from acker.errors import AckerError, SchemaMismatch, ValidationError, shown
from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import said_by
from acker.spark.records.once import quoted
from acker.spark.runtime.versions import spark_schema
from acker.streams.sources import kept_ids
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import settler
from acker.streams.spouts.rereading import Rereader

Reread: TypeAlias = Callable[[DataFrame], DataFrame]
KEEPS = ("rows", "ids")
_ASKED = "_acker_asked_"
_FIRST, _EXIT = 30.0, 10.0
_SECRET = 4
"""Letters of a text that is hidden: a shorter one is no secret, and would hide other words."""
_log = logging.getLogger(__name__)


class SparkReread:
    """A function of DataFrames as a function of tables. It gives each id at most once.

    Args:
        spark: The session.
        function: The function. Its errors hide the texts of its attribute `secrets`, if it has any.
    """

    def __init__(self, spark: SparkSession, function: Reread) -> None:
        self.spark = spark
        self.function = function

    def __call__(self, ids: pa.Table) -> pa.Table:
        """Returns the rows of ids. Raises what the function raises."""
        see_added_jars(self.spark)
        # By a schema: Spark takes times without a zone for times of the session's zone.
        asked = self.spark.createDataFrame(ids, spark_schema(ids.schema))
        try:
            return self._read(asked, ids)
        except Exception as error:
            secrets = getattr(self.function, "secrets", ())
            text = said = said_by(error)
            for secret in sorted(secrets, key=len, reverse=True):
                text = text.replace(secret, "***") if len(secret) >= _SECRET else text
            if text != said:
                raise AckerError(text) from None
            raise

    def _read(self, asked: DataFrame, ids: pa.Table) -> pa.Table:
        rows = self.function(asked)
        if not isinstance(rows, DataFrame):
            raise ValidationError(f"reread: expected a DataFrame, got {type(rows).__name__}")
        if rows.isStreaming:
            raise ValidationError("reread: expected a DataFrame that is not streaming")
        if missing := [name for name in ids.column_names if name not in rows.columns]:
            raise SchemaMismatch(
                f"reread: expected rows with the columns {', '.join(ids.column_names)}, "
                f"got none of the name {', '.join(missing)}"
            )
        # A source may give rows of other ids, as Kafka between two offsets: these stay in the executors.
        names = {name: f"{_ASKED}{place}" for place, name in enumerate(ids.column_names)}
        wanted = asked.toDF(*names.values()).distinct()
        same = [quoted(name).eqNullSafe(F.col(other)) for name, other in names.items()]
        found = rows.join(F.broadcast(wanted), same, "left_semi").dropDuplicates(ids.column_names)
        return found.toArrow()


def id_columns(
    how: SpoutOptions, schema: pa.Schema, keep: object, reread: object, place: object
) -> tuple[str, ...]:
    """The columns that the store keeps of rows of a schema; () for whole rows. Raises ValidationError."""
    if keep not in KEEPS:
        raise ValidationError(f"keep: expected {' or '.join(KEEPS)}, got {shown(keep)}")
    if keep == "rows":
        for name, value in (("reread", reread is not None), ("place", place != ())):
            if value:
                raise ValidationError(f"{name}: expected with keep='ids'; keep='rows' never asks the source")
        return ()
    if not callable(reread):
        raise ValidationError(
            "reread: expected with keep='ids', a function of a DataFrame of ids that returns their rows, "
            f"got {shown(reread)}"
        )
    names = [place] if isinstance(place, str) else place
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ValidationError(f"place: expected names of columns, got {shown(place)}")
    ids = tuple(dict.fromkeys([how.message_id, *filter(None, (how.partition, how.offset)), *names]))
    kept_ids.check_columns(schema, ids)
    return ids


def check_names(caller: str, **given: object) -> None:
    """Raises ValidationError if an argument of a ready-made function is no text, or is empty."""
    for name, text in given.items():
        if not isinstance(text, str) or not text:
            raise ValidationError(f"{caller}: {name}: expected a text, got {shown(text)}")


def check_rows(caller: str, rows: object) -> None:
    """Raises ValidationError if `rows` is neither a function nor None."""
    if rows is not None and not callable(rows):
        raise ValidationError(f"{caller}: rows: expected a function of a DataFrame, got {shown(rows)}")


def is_number(value: object) -> bool:
    """Returns True for an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def key_names(caller: str, key: object) -> Sequence[str]:
    """The columns of a key. Raises ValidationError."""
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, Sequence) or not names or not all(isinstance(one, str) and one for one in names):
        raise ValidationError(f"{caller}: key: expected names of columns, got {shown(key)}")
    return names


def by_key(caller: str, read: Callable[[SparkSession], DataFrame], key: object) -> Reread:
    """A function that finds the rows of ids in a table by the columns of its key.

    The table gets texts and numbers as a filter, by which its reader may leave out files. Raises
    ValidationError for the key.
    """
    names = key_names(caller, key)

    def find(ids: DataFrame) -> DataFrame:
        keys = ids.select(*(quoted(name) for name in names)).distinct().collect()
        there = read(ids.sparkSession)
        for place, name in enumerate(names):
            values = {row[place] for row in keys}
            if None not in values and isinstance(ids.schema[name].dataType, (StringType, IntegralType)):
                there = there.filter(quoted(name).isin(sorted(values)))
        return there

    return find


def start(spark: SparkSession, ledger: Ledger, spout: str, reread: Reread) -> None:
    """Reads the present rows of a spout that wait, and later ones in a thread.

    A spout has one thread in a process: a later call gives it another function. The thread ends with the
    session, and with the process. The caller waits for the first rows for half a minute at most, and for what
    one call of the function takes.
    """
    key = ledger.store.url, ledger.config.name, spout
    function = SparkReread(spark, reread)
    with _lock:
        running = _running.get(key)
        if running is None or running.removed or not _lives(_session(running)):
            running = _running[key] = Rereader(ledger, spout, function)
            rereader = running
            stop = SessionStop(lambda: _session(rereader), lambda: rereader.removed)
            run_until_exit(partial(_run, key, rereader), stop, f"acker reads rows of {spout} again")
        running.reread = function
    until = time.monotonic() + _FIRST
    try:
        while running.step() and time.monotonic() < until:
            settler.settle(ledger)
    except AckerError as error:
        _log.warning("outcomes of topology %s wait: %s", ledger.config.name, error)


def run_until_exit(run: Callable[[threading.Event], object], stop: threading.Event, name: str) -> None:
    """Runs a loop in a thread until `stop` is set, which the end of the process does.

    An interpreter that ends while a thread is in code of Arrow may abort. So its end waits for the loop, but
    for ten seconds at most: a user's function may hang.
    """

    def end() -> None:
        stop.set()
        thread.join(_EXIT)

    def go() -> None:
        try:
            run(stop)
        finally:
            atexit.unregister(end)

    thread = threading.Thread(target=go, name=name, daemon=True)
    atexit.register(end)
    thread.start()


def _run(key: tuple[str, str, str], rereader: Rereader, stop: threading.Event) -> None:
    rereader.run(stop)
    with _lock:
        if _running.get(key) is rereader:
            del _running[key]


def see_added_jars(spark: SparkSession) -> None:
    """Lets this thread use the jars that the program gave the session by ADD JAR, in another thread."""
    jvm = getattr(spark, "_jvm", None)  # none with Spark Connect, where the server has the jars
    if jvm is not None:
        loader = spark._jsparkSession.sharedState().jarClassLoader()
        jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)


def _session(rereader: Rereader) -> SparkSession:
    assert isinstance(rereader.reread, SparkReread)
    return rereader.reread.spark


class SessionStop(threading.Event):
    """An event that is set when a session has ended, or a topology was removed.

    Args:
        session: Returns the session.
        is_removed: Returns True if the topology was removed.
    """

    def __init__(self, session: Callable[[], SparkSession], is_removed: Callable[[], bool]) -> None:
        super().__init__()
        self._session = session
        self._is_removed = is_removed

    def is_set(self) -> bool:
        """Returns True if the session has ended, or the topology was removed."""
        return super().is_set() or self._is_removed() or not _lives(self._session())


def _lives(spark: SparkSession) -> bool:
    """True if a session can still be used."""
    if not hasattr(spark, "sparkContext"):
        return not getattr(spark, "is_stopped", False)
    try:
        return spark.sparkContext._jsc is not None and not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 - the JVM is gone
        return False


_lock = threading.Lock()
_running: dict[tuple[str, str, str], Rereader] = {}
