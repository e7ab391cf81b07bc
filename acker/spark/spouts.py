"""Spouts: any DataFrame as the source of records, their outcomes, and their dead letters, as DataFrames."""

import json
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from acker.errors import MissingRights, SchemaMismatch, SpoutPendingFull, ValidationError, shown
from acker.ledger.client import Ledger
from acker.ledger.fields import plain
from acker.ledger.loops import Threads
from acker.ledger.settings.config import check_name
from acker.ledger.settings.suggestions import meant
from acker.lines.coordinate_all import Coordinating
from acker.spark.bolts.collector import AT_WORK
from acker.spark.options.options import OPTIONS, TRACK, of_step, texts
from acker.spark.queries.batch_roots import BATCH_TIME, HASH, PARTITION, Tracker
from acker.spark.records.once import quoted
from acker.spark.runtime.arrow import map_in_arrow
from acker.spark.runtime.versions import arrow_schema, spark_schema
from acker.spark.source.acker_source import register
from acker.store import keys
from acker.store.operation import command
from acker.streams.dead_letters import dead_letters as letters
from acker.streams.dead_letters.filters import Filter
from acker.streams.dead_letters.rounds import Rounds
from acker.streams.log import schemas
from acker.streams.sources import kept_rows
from acker.streams.sources.roots import anchored_schema
from acker.streams.sources.spout_options import outcomes_stream, replays_stream
from acker.streams.spouts.replays import OUTCOMES
from acker.streams.spouts.settler import Settler

DEAD_LETTERS = (
    "id string, spout string, message_id binary, anchor bigint, status string, reason string, step string, "
    "batch bigint, attempts int, at timestamp, stream string, row string, "
    "history array<struct<number int, status string, reason string, step string, batch bigint, at timestamp>>"
)
"""The columns of dead letters (`acker.streams.dead_letters.dead_letters.DeadLetter`); row: as JSON."""


def track(
    rows: DataFrame, *, url: str, topology: str, spout: str, message_id: str, **settings: object
) -> DataFrame:
    """Makes a DataFrame a spout: its rows get trees, and the column `_acker`.

        lines = track(files, url=URL, topology="words", spout="lines", message_id="name")
        lines.writeStream.foreachBatch(split).start()

    message_id: the column that names a row. The rows are tracked by the commit of the batch, that of a bolt
    or of `writeStream.format("acker")`, once whatever Spark repeats. A batch waits for room for its rows, up
    to twice the message timeout; then SpoutPendingFull or TrackRejected ends the query, and a restart goes
    on. What failed or expired comes again among the rows of a later batch, as a replay, from the stream
    `<spout>.replays`. Rows that a bolt's function never evaluates are not tracked.
    A DataFrame that is not streaming is tracked in the block of a `job`, and by its commit; the replays that
    there are then come along. `format("acker").option("message_id", ...)` tracks and emits it at once.
    A row whose message id is null or over 1 KiB is a dead letter at once, or with bad_message_id="untracked"
    goes on without a tree.
    settings: attempts, attempt, outcomes, max_spout_pending, offset, partition, bad_message_id, backoff,
    max_backoff, as of `acker.streams.SpoutOptions`, and those of the data source. Raises
    ValidationError, and SchemaMismatch for rows that lack a column which the spout's rows had.
    """
    collector = None if rows.isStreaming else AT_WORK.get()
    if not rows.isStreaming and collector is None:
        raise ValidationError(
            "track: expected a streaming DataFrame, or one of a batch in the block of `with job(...)`, in "
            "the thread of the block; or write it with format('acker') and the option message_id"
        )
    spark = rows.sparkSession
    register(spark)
    given = {"url": url, "topology": topology, "spout": spout, "message_id": message_id, **settings}
    options = of_step(replays_stream(spout), given, TRACK)
    how = options.of_spout()
    assert how is not None
    ledger = options.ledger()
    wanted = anchored_schema(arrow_schema(rows.schema), how)
    if message_id not in rows.columns:
        raise ValidationError(
            f"message_id: expected one of the columns {', '.join(rows.columns)}, got {shown(message_id)}"
        )
    hashes = F.xxhash64(*(_hashable(field.name, field.dataType) for field in rows.schema))
    hashed = rows.withColumns({HASH: hashes, PARTITION: F.spark_partition_id()})
    if rows.isStreaming:
        hashed = hashed.withColumn(BATCH_TIME, F.unix_millis(F.current_timestamp()))
    try:
        ledger.run(schemas.record(ledger.core, options.stream, wanted))
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"track: rows of spout {spout!r} have other columns than before, and what was tracked before may "
            f"come again: {error}. Keep a column that is gone as null, "
            "`withColumn(name, lit(None).cast(type))`, or name another spout"
        ) from error
    schema = spark_schema(wanted)
    job = collector.job if collector else None
    tracker = Tracker(ledger, how, options.staging(), secrets.token_hex(8), wanted, job)
    if collector is not None:
        return collector.take_replays(map_in_arrow(hashed, tracker, schema), options.stream, ledger)
    reading = texts({name: value for name, value in given.items() if name in _READING})
    again = (
        spark.readStream.format("acker")
        .schema(schema)
        .options(**reading, stream=options.stream, schema_timeout="0")
        .load()
    )
    return map_in_arrow(hashed, tracker, schema).unionByName(again)


_READING = (
    *("after_loss", "url", "topology", "cluster", "timeout"),
    *("max_rows", "max_bytes", "max_segments", "partitions"),
)


def _hashable(name: str, kind: DataType) -> Column:
    if any(shape in kind.json() for shape in ("geometry(", "geography(")):
        raise ValidationError(
            f"track: column {name}: got {kind.simpleString()}, which Spark cannot hash: give it st_asbinary"
        )
    return F.to_json(F.struct(quoted(name))) if _has_no_hash(kind) else quoted(name)


def _has_no_hash(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_no_hash(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_no_hash(kind.elementType)
    return isinstance(kind, (MapType, VariantType))


def outcomes(
    spark: SparkSession, *, url: str, topology: str, spout: str, streaming: bool = True, **settings: object
) -> DataFrame:
    """The outcomes of a spout that was given `outcomes=True`, as rows.

    See `acker.streams.spouts.replays.OUTCOMES`.

    They are a stream like any other, `<spout>.outcomes`: kept until a bolt, or a query that writes to one,
    has acked them. streaming: as they come; otherwise what there is now, which acks nothing.
    """
    register(spark)
    ledger = _ledger(url, topology, settings)
    with suppress(MissingRights):  # a column that is new since the first outcomes were written
        ledger.run(schemas.add(ledger.core, outcomes_stream(spout), OUTCOMES))
    reader = spark.readStream if streaming else spark.read
    return (
        reader.format("acker")
        .schema(spark_schema(OUTCOMES))
        .options(**texts(settings), url=url, topology=topology, stream=outcomes_stream(spout))
        .load()
    )


_log = logging.getLogger(__name__)
_FILTERS = [one.name for one in fields(Filter)]


def dead_letters(
    spark: SparkSession,
    *,
    url: str,
    topology: str,
    spout: str | None = None,
    stream: str | None = None,
    status: str | None = None,
    step: str | None = None,
    reason: str = "",
    cause: str | None = None,
    older_than: float | None = None,
    newer_than: float | None = None,
    streaming: bool = False,
    **settings: object,
) -> DataFrame:
    """The dead letters of a spout, or of all, that there are now. `row` holds the row's columns as JSON.

    status, step, reason, cause, older_than, newer_than: only those, as of
    `acker.streams.dead_letters.filters.Filter`.
    streaming: those of a spout as they come, each once for a query; `row` is a struct of the row's columns.
    They are those whose replays are published in `stream`: by default that of `track`, where the spout has
    one, or else the stream of the spout's name. Raises ValidationError, UnknownStream.
    """
    for name in settings.keys() - OPTIONS.keys():
        if near := meant(name, _FILTERS):
            raise ValidationError(f"dead_letters: unknown option {name!r}{near}")
    if streaming:
        if (status, step, reason, cause, older_than, newer_than) != (None, None, "", None, None, None):
            raise ValidationError("dead_letters: with streaming=True, filter the DataFrame that is returned")
        return _dead_letters(spark, url, topology, spout, stream, settings)
    if stream is not None:
        raise ValidationError("dead_letters: stream goes with streaming=True")
    asked = Filter(spout, status, step, reason, cause, None, older_than, newer_than)
    ledger = _ledger(url, topology, settings)
    found: list[tuple[object, ...]] = []
    cursor = None
    while True:
        page = ledger.run(letters.page(ledger.core, asked, limit=letters.PAGE, cursor=cursor))
        for one in page.letters:
            row = json.dumps(plain(one.row))
            tried = [(*astuple(each)[:-1], _instant(each.at)) for each in one.history]
            found.append(
                (one.id, one.spout, one.message_id, one.anchor, one.status, one.reason, one.step,
                 one.batch, one.attempts, _instant(one.at), one.stream, row, tried)
            )  # fmt: skip
        cursor = page.cursor
        if cursor is None:
            return spark.createDataFrame(found, DEAD_LETTERS)


def _instant(seconds: float) -> datetime:
    moment: datetime = pa.scalar(round(seconds * 1e6), pa.timestamp("us", "UTC")).as_py()
    return moment


def _dead_letters(
    spark: SparkSession,
    url: str,
    topology: str,
    spout: str | None,
    stream: str | None,
    settings: dict[str, object],
) -> DataFrame:
    if spout is None:
        raise ValidationError("dead_letters: expected a spout with streaming=True: its rows have one schema")
    ledger = _ledger(url, topology, settings)
    if stream is None:
        own = check_name(replays_stream(spout), "spout, with .replays")
        [tracks] = ledger.store.send([command("EXISTS", keys.Stream(topology, own).schema)])
        stream = own if tracks else spout
    register(spark)
    return (
        spark.readStream.format("acker")
        .options(
            **texts(settings), url=url, topology=topology, stream=stream, spout=spout, dead_letters="true"
        )
        .load()
    )


def replay(
    *,
    url: str,
    topology: str,
    letter: str | None = None,
    matching: Filter | None = None,
    **settings: object,
) -> int:
    """Replays a dead letter and returns its new anchor; or all that a filter takes, and returns how many.

    A filter takes all rows that failed before the call, also those that wait until their spout has room for
    more dead letters. Raises ValidationError, UnknownDeadLetter, and SpoutPendingFull or TrackRejected where
    there is no room: the rows before that are replayed. How many of a filter's cannot be, and why, is logged.
    """
    if (letter is None) == (matching is None):
        raise ValidationError("replay: expected letter, the id of a dead letter, or matching, a filter")
    ledger = _ledger(url, topology, settings)
    if letter is not None:
        return ledger.run(letters.replay(ledger.core, letter))
    assert matching is not None
    count, rounds = 0, Rounds(ledger, matching, letters.replay_some)
    for done in rounds:
        assert isinstance(done, letters.Replayed)
        count += len(done.anchors)
        if done.refused:
            _log.warning("%d dead letters cannot be replayed: %s", len(done.refused), done.refused[0].why)
    if rounds.why:
        raise SpoutPendingFull(f"{count:,} dead letters were replayed, and no more now: {rounds.why}")
    return count


def discard(*, url: str, topology: str, matching: Filter, **settings: object) -> int:
    """Drops the dead letters that a filter takes for good, with their rows; returns how many there were."""
    rounds = Rounds(_ledger(url, topology, settings), matching, letters.discard_some)
    return sum(done.count for done in rounds if isinstance(done, letters.Discarded))


def watermark(*, url: str, topology: str, spout: str, **settings: object) -> dict[str, int]:
    """Partition -> the first offset that is not known to be done.

    See `acker.streams.sources.kept_rows.watermark`.
    """
    ledger = _ledger(url, topology, settings)
    return ledger.run(kept_rows.watermark(ledger.core, spout))


@contextmanager
def settling(
    *,
    url: str,
    topology: str,
    spout: str | None = None,
    on_outcomes: Callable[[pa.Table], object] | None = None,
    **settings: object,
) -> Iterator[Settler]:
    """Settles outcomes in a thread, so that what failed is replayed, for as long as the block takes.

    What gathers in lines goes on meanwhile, too (docs/lines.md).

    on_outcomes: is given each batch of outcomes (`acker.streams.spouts.replays.OUTCOMES`) before it is
    settled; where it raises, they come again. A spout whose outcomes somebody takes is left to them,
    so `acker tick`, which settles, too, passes it over until it is settled by its name without.
    """
    ledger = _ledger(url, topology, settings)
    settler = Settler(ledger.store, [topology], spout=spout, on_outcomes=on_outcomes)
    threads = Threads()
    for one in (settler, Coordinating(ledger.store, [topology])):
        threads.start(one.run, threads.stop, name=f"acker settles {topology}")
    try:
        yield settler
    finally:
        threads.end()


def _ledger(url: str, topology: str, settings: dict[str, object]) -> Ledger:
    return of_step("any", {"url": url, "topology": topology, **settings}).ledger()
