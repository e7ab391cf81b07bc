"""Spouts: any DataFrame as the source of records, and their outcomes as a DataFrame.

Terms: a tree is all that comes of one record.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import MissingRights, SchemaMismatch, ValidationError, shown
from acker.ledger.loops import Threads
from acker.ledger.settings.config import OBSERVED, check_name
from acker.lines.coordinate_all import Coordinating
from acker.spark import letter_sink
from acker.spark.bolts.collector import AT_WORK, Collector
from acker.spark.bolts.observing import ObservingCollector
from acker.spark.external.sinks import Sink, Write, sink_of
from acker.spark.options.options import TRACK, Options, ledger_of, of_step, texts
from acker.spark.queries.batch_roots import BATCH_TIME, HASH, PARTITION, Tracker
from acker.spark.queries.observed_rows import ObservedTracker
from acker.spark.records.content_hash import content_hash
from acker.spark.records.newest import check_version, mark_version
from acker.spark.runtime.arrow import map_in_arrow
from acker.spark.runtime.versions import arrow_schema, spark_schema
from acker.spark.source import rereading
from acker.spark.source.acker_source import register
from acker.spark.source.rereading import Reread
from acker.streams.log import schemas
from acker.streams.sources import kept_rows
from acker.streams.sources.roots import anchored_schema
from acker.streams.sources.spout_options import SpoutOptions, outcomes_stream, replays_stream
from acker.streams.spouts.replays import OUTCOMES
from acker.streams.spouts.settler import Settler


def track(
    rows: DataFrame,
    *,
    url: str,
    topology: str,
    spout: str,
    message_id: str,
    keep: str = "rows",
    reread: Reread | None = None,
    place: str | Sequence[str] = (),
    dead_letters_to: Sink | Write | None = None,
    version: str | None = None,
    **settings: object,
) -> DataFrame:
    """Makes a DataFrame a spout: its rows get trees, and the column `_acker`.

        lines = track(files, url=URL, topology="words", spout="lines", message_id="name")
        lines.writeStream.foreachBatch(split).start()

    The commit of the batch tracks the rows, once whatever Spark repeats: in a bolt, or in
    `writeStream.format("acker")`. If there is no room, the batch waits up to twice the message timeout. Then
    SpoutPendingFull or TrackRejected ends the query, and a restart continues. Failed and expired rows are
    replayed among the rows of a later batch, from the stream `<spout>.replays`. Rows that a bolt's function
    never evaluates are not tracked.

    A DataFrame that is not streaming is tracked in the block of a `job`, by its commit, together with the
    replays of that time. `format("acker").option("message_id", ...)` tracks and emits it at once.

    With `observe=True`, acker only records the rows: nothing waits or fails for the store's sake, and nothing
    is replayed or buried. The bolt, or the job, says `observe=True`, too (docs/spark/bolts.md).

    Args:
        rows: The rows.
        url: The store.
        topology: The name of the topology.
        spout: The name of the spout.
        message_id: The column that names a row. A row whose name is null or over 1 KiB becomes a dead letter
            at once; with bad_message_id="untracked" it goes on without a tree.
            With observe=True it always does so.
        keep: What the store keeps of a row until it is acked or a dead letter: "rows", or "ids", for a source
            that can be asked again (docs/spark/spouts.md, "Keep ids").
        reread: With keep="ids": a function of a DataFrame of at most 5,000 ids, with the column `message_id`
            and the columns of `place`, that returns their rows, with all columns of `rows`. It is called in a
            thread of this process. It may raise: then these ids wait, the log says why, and it is asked
            again. It may return other rows, too, which are left out, and a row several times: any of
            these counts. What it leaves out becomes a dead letter, "gone from its source": so it must see
            the rows of each `track` of the spout.
        place: With keep="ids": the columns that tell where a row lies, for `reread`; `partition` and `offset`
            are always among them. A row must have a name and place of its own: rows of one name and place
            come again as the same row.
        dead_letters_to: A sink, as of `collector.emit(..., to=...)`, that gets each dead letter of the spout
            as well, at least once, and earlier ones first. A thread of this process writes them. The sink may
            raise: then they wait in the store, and it is asked again (docs/spark/spouts.md, "Letters in a
            topic or table").
        version: The column that grows with each change of what a row is about: `collector.newest(rows, key)`
            of a bolt, or job, of these rows orders them by it. Replays come later than newer rows.
        **settings: Options of the spout (`acker.streams.SpoutOptions`) and of the data source.

    Returns:
        The rows with the column `_acker`, and the replays of earlier rows.

    Raises:
        ValidationError: An argument is invalid.
        SchemaMismatch: The rows lack a column that the spout's earlier rows had.
    """
    given = {"url": url, "topology": topology, "spout": spout, "message_id": message_id, **settings}
    options = of_step(replays_stream(spout), given, TRACK)
    how, wanted = _checked(rows, options)
    ids = rereading.id_columns(how, wanted, keep, reread, place)
    check_version(rows, version)
    letter_to = None if dead_letters_to is None else sink_of(dead_letters_to, "dead_letters_to")
    if options.off:
        return mark_version(_untracked(rows, how, wanted), version)
    collector = None if rows.isStreaming else AT_WORK.get()
    if options.observe:
        return mark_version(_observed(rows, options, how, wanted, collector), version)
    if not rows.isStreaming and collector is None:
        raise ValidationError(
            "track: expected a streaming DataFrame, or one of a batch in the block of `with job(...)`, in "
            "the thread of the block; or write it with format('acker') and the option message_id"
        )
    spark = rows.sparkSession
    register(spark)
    ledger = options.ledger()
    hashed = rows.withColumns({HASH: content_hash(rows, "track"), PARTITION: F.spark_partition_id()})
    if rows.isStreaming:
        hashed = hashed.withColumn(BATCH_TIME, F.unix_millis(F.current_timestamp()))
    try:
        ledger.run(schemas.record(ledger.core, options.stream, wanted))
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"track: rows of spout {spout!r} have other columns than before, and earlier rows may still "
            f"be replayed: {error}. Keep a column that is gone as null, "
            "`withColumn(name, lit(None).cast(type))`, or name another spout"
        ) from error
    schema = spark_schema(wanted)
    job = collector.job if collector else None
    tracker = Tracker(ledger, how, options.staging(), secrets.token_hex(8), wanted, job, ids)
    if reread is not None:
        rereading.start(spark, ledger, how.spout, reread)
    if letter_to is not None:
        letter_sink.start(spark, ledger, how.spout, letter_to)
    if collector is not None:
        tracked = map_in_arrow(hashed, tracker, schema)
        collector.tracked.append(tracked)
        return mark_version(collector.take_replays(tracked, options.stream, ledger), version)
    reading = texts({name: value for name, value in given.items() if name in _READING})
    again = (
        spark.readStream.format("acker")
        .schema(schema)
        .options(**reading, stream=options.stream, schema_timeout="0")
        .load()
    )
    return mark_version(map_in_arrow(hashed, tracker, schema).unionByName(again), version)


def _observed(
    rows: DataFrame, options: Options, how: SpoutOptions, wanted: pa.Schema, collector: Collector | None
) -> DataFrame:
    """Rows whose trees are only recorded. Raises ValidationError."""
    if not rows.isStreaming and not isinstance(collector, ObservingCollector):
        raise ValidationError(
            "track: expected a streaming DataFrame, or one of a batch in the block of `with job(..., "
            "observe=True)`, in the thread of the block"
        )
    spout = check_name(f"{how.spout}{OBSERVED}", f"spout, with {OBSERVED}")
    tracker = ObservedTracker(
        options.observed_ledger(), spout, how.message_id, how.attempt, wanted,
        collector.job if collector is not None else None,
    )  # fmt: skip
    numbered = rows.withColumn(PARTITION, F.spark_partition_id())
    return map_in_arrow(numbered, tracker, spark_schema(wanted))


def _checked(rows: DataFrame, options: Options) -> tuple[SpoutOptions, pa.Schema]:
    """The options of the spout of rows, and the columns of tracked rows. Raises ValidationError."""
    how = options.of_spout()
    assert how is not None
    if how.message_id not in rows.columns:
        raise ValidationError(
            f"message_id: expected one of the columns {', '.join(rows.columns)}, got {shown(how.message_id)}"
        )
    return how, anchored_schema(arrow_schema(rows.schema), how)


def _untracked(rows: DataFrame, how: SpoutOptions, wanted: pa.Schema) -> DataFrame:
    """Rows with the columns of tracked rows, where acker is turned off: each is a first attempt."""
    added = spark_schema(wanted).fields[len(rows.columns) :]
    further = {field.name: F.lit(None).cast(field.dataType) for field in added}
    if how.attempt:
        further[how.attempt] = F.lit(1)
    return rows.withColumns(further)


_READING = (
    *("after_loss", "url", "topology", "cluster", "timeout"),
    *("max_rows", "max_bytes", "max_segments", "partitions"),
)


def outcomes(
    spark: SparkSession, *, url: str, topology: str, spout: str, streaming: bool = True, **settings: object
) -> DataFrame:
    """Returns the outcomes of a spout with `outcomes=True` as rows (`spouts.replays.OUTCOMES`).

    They are in a stream, `<spout>.outcomes`, until a bolt, or a query that writes to a stream, has acked
    them.

    Args:
        spark: The session.
        url: The store.
        topology: The name of the topology.
        spout: The name of the spout.
        streaming: True reads outcomes as they arrive. False reads the present ones, and acks nothing.
        **settings: Options of the data source for reading.

    Returns:
        A DataFrame of outcomes.
    """
    register(spark)
    ledger = ledger_of(url, topology, settings)
    with suppress(MissingRights):  # a column that is new since the first outcomes were written
        ledger.run(schemas.add(ledger.core, outcomes_stream(spout), OUTCOMES))
    reader = spark.readStream if streaming else spark.read
    return (
        reader.format("acker")
        .schema(spark_schema(OUTCOMES))
        .options(**texts(settings), url=url, topology=topology, stream=outcomes_stream(spout))
        .load()
    )


def watermark(*, url: str, topology: str, spout: str, **settings: object) -> dict[str, int]:
    """Returns for each partition the first offset that is not yet done.

    See `acker.streams.sources.kept_rows.watermark`.

    Args:
        url: The store.
        topology: The name of the topology.
        spout: The name of the spout.
        **settings: Options of the data source.

    Returns:
        Offsets by partition.
    """
    ledger = ledger_of(url, topology, settings)
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
    """Settles outcomes in a thread, and so replays failed rows, while the block lasts.

    The thread coordinates lines, too (docs/lines.md).

    Args:
        url: The store.
        topology: The name of the topology.
        spout: The name of the spout; by default all spouts without a taker of outcomes.
        on_outcomes: Called with each batch of outcomes (`acker.streams.spouts.replays.OUTCOMES`) before it is
            settled. If it raises, the outcomes come again. `acker tick` then leaves the spout's outcomes to
            this caller, until the spout is settled by its name without this argument.
        **settings: Options of the data source.

    Yields:
        The settler.
    """
    ledger = ledger_of(url, topology, settings)
    if ledger.off:
        yield Settler(ledger.store, [topology], spout=spout, on_outcomes=on_outcomes)
        return
    settler = Settler(ledger.store, [topology], spout=spout, on_outcomes=on_outcomes)
    threads = Threads()
    for one in (settler, Coordinating(ledger.store, [topology])):
        threads.start(one.run, threads.stop, name=f"acker settles {topology}")
    try:
        yield settler
    finally:
        threads.end()
