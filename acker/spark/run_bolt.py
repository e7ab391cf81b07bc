"""Runs a bolt on some rows, for tests (`acker.testing`): without a stream, a query or a checkpoint.

The rows are tracked, published and taken in a topology of their own on a real store. The bolt's function gets
them with a collector, and its work is one commit, like a batch's. The emitted rows are then acked, as later
steps would ack them, and the store tells the outcome of each row's tree.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

import atexit
import functools
import secrets
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import LongType, StringType, StructField, StructType

from acker.embedded import EmbeddedServer
from acker.errors import AckerError, ValidationError, shown
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.causes import Cause
from acker.ledger.slabs.slabs import NewSlab
from acker.spark.acker import Acker
from acker.spark.bolts import bolt_function
from acker.spark.bolts.bolt import Bolt
from acker.spark.functions.spark_steps import StepBolt
from acker.spark.runtime.versions import arrow_schema
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import StreamReader, StreamWriter
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.log import kinds, segments, subscriptions
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.staging.external import declaring
from acker.streams.staging.external.rows import sending
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.external.rows.sending import Sending
from acker.streams.staging.external.rows.stamps import Seal
from acker.streams.staging.external.segments import MOST_TREES, Stamped

MOST_ROWS = 100_000
"""Most rows for a bolt: they, and the emitted rows, are in the memory of the test."""
_INPUT = "acker-trial-input"
_SPOUT = "acker-trial"
_SLAB = 1_000


class Failed(NamedTuple):
    """A row whose tree has failed, and the reason; retry: True if its spout would try it again."""

    row: Row
    reason: str
    retry: bool


@dataclass(frozen=True)
class BoltResult:
    """The outcomes of some rows in a bolt, each list in the order of the rows.

    Attributes:
        acked: Rows that are done once their emitted rows are. Rows that waited `after` an earlier batch are
            among these lists, too.
        failed: Rows that the bolt has failed.
        waiting: Rows that it holds for a later batch.
        streams: The names of the streams that it has emitted to, sorted.
        topology: The topology in which it ran.
        url: The store in which it ran.
    """

    acked: list[Row]
    failed: list[Failed]
    waiting: list[Row]
    streams: tuple[str, ...]
    topology: str
    url: str = field(repr=False)
    _emitted: dict[str, list[tuple[Row, list[Row]]]] = field(repr=False)
    _pending: dict[int, "_Given"] = field(repr=False)
    _next: int = field(repr=False)
    _held: set[str] = field(repr=False)

    def emitted(self, stream: str) -> list[Row]:
        """Returns the rows that were emitted to a stream, without `_acker`.

        Args:
            stream: The name of the stream.
        """
        return [row for row, _ in self._emitted.get(stream, [])]

    def anchored(self, stream: str) -> list[tuple[Row, list[Row]]]:
        """Returns each row that was emitted to a stream, with the rows whose trees it is anchored to.

        Args:
            stream: The name of the stream.
        """
        return list(self._emitted.get(stream, []))


class _Given(NamedTuple):
    anchor: int
    row: Row


def run_bolt(
    bolt: Bolt, rows: DataFrame, *, url: str | None = None, after: BoltResult | None = None
) -> BoltResult:
    """Runs a bolt on a DataFrame that is not streaming: each row is a record of its own.

        result = run_bolt(split_lines, spark.createDataFrame([("a b",), ("",)], "line string"))
        assert [row.word for row in result.emitted("words")] == ["a", "b"]
        assert [(one.row.line, one.reason) for one in result.failed] == [("", "empty")]

    The bolt runs in a new topology, and does not touch its own store and topology. Exceptions of the function
    are raised here, except FailedException, which fails all rows.

    Args:
        bolt: The bolt.
        rows: 1 to 100,000 rows without `_acker`, of types that a stream takes. A bolt that receives a stream
            gets them with a stamp each, in `_acker_stamp`.
        url: The store. By default a server that this process starts once.
        after: The result of an earlier batch. The bolt continues in its topology, so it finds the held rows
            and the keys of `collector.once`.

    Returns:
        The outcomes of the rows, and the emitted rows.

    Raises:
        ValidationError: An argument is invalid.

    Examples:
        >>> @acker.bolt("words")
        ... def words(batch, collector):
        ...     collector.fail(batch.filter("line = ''"), "empty")
        >>> result = run_bolt(words, spark.createDataFrame([("the cow",), ("",)], "line string"))
        >>> [(failed.row.line, failed.reason) for failed in result.failed]
        [('', 'empty')]
    """
    if not isinstance(bolt, Bolt):
        raise ValidationError(f"run_bolt: expected a bolt, as @acker.bolt makes it, got {shown(bolt)}")
    if isinstance(bolt, StepBolt):
        raise ValidationError(
            f"run_bolt: {bolt.name!r} works on a step of a function: call the function with a request"
        )
    if rows.isStreaming:
        raise ValidationError("run_bolt: expected a DataFrame that is not streaming")
    for name in (ANCHORS, *(COLUMN,) * bool(bolt.receives)):
        if name in rows.columns:
            raise ValidationError(f"run_bolt: expected rows without {name}, which each of them gets")
    collected = rows.limit(MOST_ROWS + 1).collect()
    if not 1 <= len(collected) <= MOST_ROWS:
        raise ValidationError(f"run_bolt: expected 1 to {MOST_ROWS:,} rows, got {len(collected):,}")
    place = after.url if after else url or _server().url
    topology = after.topology if after else f"trial-{secrets.token_hex(8)}"
    ledger = open_ledger(Store(place), topology, ackers=1, message_timeout=86400.0)
    spark, first = rows.sparkSession, after._next if after else 0
    stamped: DataFrame | None = None
    if bolt.receives:
        anchors, stamps = _send(ledger, bolt, len(collected), first)
        schema = StructType([*rows.schema.fields, StructField(COLUMN, StringType())])
        together = [(*row, stamp) for row, stamp in zip(collected, stamps, strict=True)]
        stamped = spark.createDataFrame(together, schema)
    else:
        anchors = _publish(ledger, spark.createDataFrame(collected, rows.schema), first)
    given = dict(after._pending) if after else {}
    given |= {first + at: _Given(*entry) for at, entry in enumerate(zip(anchors, collected, strict=True))}
    acker = Acker(place, topology)
    with acker.job(spark, bolt.name) as collector:
        collector.transactions.job = False  # the bolt is to work as in a batch
        with_trees = StructType([*rows.schema.fields, StructField(ANCHORS, LongType())])
        batch = collector.take(_INPUT, with_trees) if stamped is None else stamped
        bolt_function.call(bolt.work, bolt.name, batch, collector)
    held = collector.holds | (after._held if after else set())
    by_anchor = {entry.anchor: entry.row for entry in given.values()}
    emitted = {}
    for stream in _managed(ledger) - {_INPUT}:
        if there := [_split(row, by_anchor) for row in acker.read(spark, stream).collect()]:
            emitted[stream] = there
            if stream not in held:  # that stays
                StreamReader(ledger, stream).ack_all()
    done = _outcomes(ledger)
    pending = {number: entry for number, entry in given.items() if number not in done}
    return BoltResult(
        acked=[entry.row for number, entry in given.items() if number in done and done[number] is None],
        failed=[
            Failed(entry.row, cause.reason, cause.retry)
            for number, entry in given.items()
            if (cause := done.get(number)) is not None
        ],
        waiting=[entry.row for entry in pending.values()],
        streams=tuple(sorted(emitted)),
        topology=topology,
        url=place,
        _emitted=emitted,
        _pending=pending,
        _next=first + len(collected),
        _held=held,
    )


def _publish(ledger: Ledger, rows: DataFrame, number: int) -> list[int]:
    """Tracks a tree for each row, and publishes them all; returns the anchors."""
    table = rows.toArrow().cast(arrow_schema(rows.schema))
    writer = StreamWriter(ledger, _INPUT)
    batch = writer.batch(table)
    anchors = _track(ledger, batch.ids(), number)
    writer.publish(batch, anchors)
    return [int(anchor) for anchor in anchors]


def _track(ledger: Ledger, values: Ids, number: int) -> Ids:
    """Tracks a tree for each row, by the id of its tuple; returns the anchors."""
    slabs = []
    for first in range(0, len(values), _SLAB):
        part = values[first : first + _SLAB]
        names = [b"%d" % (number + first + place) for place in range(len(part))]
        slabs.append(NewSlab(ids.new_anchors(len(part)), part, names))
    if set(ledger.track_slabs(slabs, spout=_SPOUT)) != {"A"}:
        raise AckerError("run_bolt: the rows of the test could not be tracked")
    return np.concatenate([slab.anchors for slab in slabs])


def _send(ledger: Ledger, bolt: Bolt, count: int, number: int) -> tuple[list[int], list[str]]:
    """Tracks a tree for each row of an external stream, and sends it; returns anchors and stamps."""
    core, stream = ledger.core, bolt.receives
    external = ledger.run(declaring.declare(core, stream))
    slot = ledger.run(subscriptions.subscribe(core, stream, bolt.name, "external"))
    seal = Seal(core.config.name, stream, external.stamp_keys, external.number)
    begun, values = external.now // 1000, segments.edge_ids(segments.new_seed(), 0, np.arange(count))
    anchors, stamps, sent = _track(ledger, values, number), list[str](), list[tuple[Segment, int]]()
    for first in range(0, count, MOST_TREES):
        part = anchors[first : first + MOST_TREES]
        once = np.ones(len(part), np.int64)
        stamped = Stamped(secrets.token_hex(14), segments.new_seed(), begun, once, part)
        segment, requests = sending.stage(core, stamped, (slot,))
        ledger.store.send(requests)
        sent.append((segment, begun))
        letters = seal.write_many(seal.head(stamped.token, begun), np.arange(len(part)), part)
        stamps += [each.decode("ascii") for each in letters]
    work = Commit(sent=(Sending(stream, external.number, external.key, tuple(sent)),))
    ledger.run(commits.commit(core, f"{_SPOUT}-{number}", 0, work))
    ledger.update(anchors, values)  # of each record its row is left
    return anchors.tolist(), stamps


def _managed(ledger: Ledger) -> set[str]:
    """The managed streams of a topology."""
    name = ledger.config.name
    [stored] = ledger.store.send([command("SMEMBERS", keys.streams(name))])
    names = sorted(text.decode("utf-8", "replace") for text in stored)
    of = [command("HEXISTS", keys.Stream(name, stream).subscriptions, kinds.FIELD) for stream in names]
    external = ledger.store.send(of) if of else []
    return {stream for stream, is_external in zip(names, external, strict=True) if not is_external}


def _split(row: Row, by_anchor: dict[int, Row]) -> tuple[Row, list[Row]]:
    """A row without its anchors, and the rows that it is anchored to."""
    values = row.asDict()
    own = values.pop(ANCHORS, None)
    anchors = own if isinstance(own, list) else [own]
    return Row(*values)(*values.values()), [by_anchor[anchor] for anchor in anchors if anchor in by_anchor]


def _outcomes(ledger: Ledger) -> dict[int, Cause | None]:
    """Number of a row -> why it failed, None where it is acked; of rows that have ended. Confirms them."""
    causes: dict[int, Cause | None] = {}
    reader = OutcomeReader(ledger.core, _SPOUT)
    while entries := ledger.outcomes(reader):
        for entry in entries:
            for slab in entry.slabs:
                cause = None if entry.status == "acked" else slab.cause
                [names] = ledger.message_ids([slab.slab]).values()
                picked = names if slab.indexes is None else [names[index] for index in slab.indexes]
                causes.update((int(name), cause) for name in picked)
        ledger.confirm(_SPOUT, [entry.confirmation for entry in entries])
    return causes


@functools.cache
def _server() -> EmbeddedServer:
    """The test store: one for each process, which ends with the process."""
    server = EmbeddedServer(append_only=False).start()
    atexit.register(server.close)
    return server
