"""Roots of a batch: tasks register their staged roots, and the commit takes the registered ones.

lua/streams/sources/register_roots.lua makes this exact: whatever Spark runs again, registered rows keep their
roots.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; roots are rows of a spout
that were staged together, and get a tree each.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import redis
from pyspark import TaskContext

from acker.errors import AckerError, StagingExpired
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.spark.queries import microbatches, plan_check
from acker.spark.queries.microbatches import TRACKS, MicroBatch
from acker.spark.runtime.pickling import Shipped
from acker.store import keys, records
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import Codec
from acker.store.replies import pairs
from acker.streams.commits import origins
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS
from acker.streams.sources import roots
from acker.streams.sources import scripts as spouts_lua
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.staging.staging import Staged, Staging

HASH = "_acker_hash"
"""Column: xxhash64 of all others, for the fingerprint."""
PARTITION = "_acker_partition"
"""Column: the number of the partition in which rows are tracked, whatever a union makes of it above."""
BATCH_TIME = "_acker_batch_time"
"""Column: the time of the batch (ms), of streaming rows.

Spark logs it with the batch's offsets: a batch that runs again has the same time, a newly planned one
another.
"""
STAGED: Codec[tuple[Roots, ...]] = Codec(tuple[Roots, ...], "roots of a task")
_ENDED = "ended"
_TIME = "time"
_UNTRACKED = "untracked"


class Tracker(Shipped):
    """Makes roots of the rows of a task, with `HASH` and `PARTITION`, for `mapInArrow`.

    job: the job of the rows; None for a batch of a query, which tasks know. ids: the columns that the store
    keeps; () for all of each row.
    """

    __name__ = TRACKS

    def __init__(
        self,
        ledger: Ledger,
        how: SpoutOptions,
        staging: Staging,
        source: str,
        wanted: pa.Schema,
        job: MicroBatch | None = None,
        ids: Sequence[str] = (),
    ) -> None:
        self.ids = ids
        self.ledger = ledger
        self.how = how
        self.staging = staging
        self.source = source
        self.wanted = wanted
        self.job = job

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows with their anchors, or with the anchors that another attempt has registered."""
        if not self.ledger.config.ackers:
            yield from self._untracked(batches)
            return
        context, batch = TaskContext.get(), self.job or microbatches.of_task()
        if context is None or batch is None:
            raise AckerError(
                "tracked rows of a streaming DataFrame belong to a batch: start it as a query; where a "
                "bolt's function evaluates them in a thread of its own, make that a pyspark.InheritableThread"
            )
        if self.job is None:
            plan_check.check_sink(self.ledger, batch)
        rows = _Fingerprint(batches)
        core = self.ledger.core
        staged = self.ledger.run(roots.stage(core, self.how, self.staging, rows, self.ids))
        if self.job is None:
            staged = tuple(replace(piece, origin=(batch.query, batch.number)) for piece in staged)
        key = key_of(core, batch)
        stored = STAGED.dump(staged)
        task = context.stageId(), context.partitionId(), context.taskAttemptId()
        requests = [
            spouts_lua.register_roots(key, RECORD_TTL, self.source, task, rows.text(), stored, rows.partition)
        ]
        if any(piece.untracked for piece in staged):
            requests.append(command("HSET", key, _UNTRACKED, 1))
        if rows.time:
            requests.append(command("HSET", key, _TIME, rows.time))
        chosen = self.ledger.store.send(requests)[0]
        if isinstance(chosen, redis.ResponseError):
            raise AckerError(f"rows of spout {self.how.spout!r}: {str(chosen).removeprefix('ACKER ')}")
        if chosen.decode() != stored:
            spout = keys.Spout(core.config.name, self.how.spout)
            names = [name for piece in staged for name in roots.staged_keys(core, piece)]
            self.ledger.run(_drop([*names, *(spout.rows(piece.id, "staged_rows") for piece in staged)]))
        for piece in STAGED.load(chosen):
            yield from self._rows(piece)

    def _rows(self, registered: Roots) -> Iterator[pa.RecordBatch]:
        if registered.refused and not registered.untracked:
            return
        rows = self.ledger.run(roots.staged_rows(self.ledger.core, registered))
        if rows is None:
            raise StagingExpired(
                f"rows that spout {self.how.spout!r} has staged ran out of time before their commit"
            )
        anchors = (
            pa.nulls(registered.rows, pa.int64()) if registered.untracked else pa.array(registered.anchors())
        )
        for batch in rows.append_column(ANCHORS, anchors).to_batches():
            yield segments.read(batch, self.wanted)

    def _untracked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.how.attempt:
                batch = batch.append_column(
                    self.how.attempt, pa.array(np.ones(batch.num_rows, dtype=np.int32))
                )
            yield segments.read(batch, self.wanted)


def _drop(names: Sequence[bytes]) -> Operation[None]:
    yield [command("UNLINK", name) for name in names]


class _Fingerprint:
    """Passes rows on without their hashes, and sums these up: the order of rows does not matter.

    partition: the number of the rows' partition, -1 without rows. time: the time of their batch; 0 for none.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = 0
        self._sum = np.uint64(0)
        self._xor = np.int64(0)
        self.partition = -1
        self.time = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            hashes = batch.column(HASH).to_numpy(zero_copy_only=False)
            self._rows += len(hashes)
            with np.errstate(over="ignore"):
                self._sum += hashes.view(np.uint64).sum(dtype=np.uint64)
            self._xor ^= np.bitwise_xor.reduce(hashes, initial=np.int64(0))
            timed = BATCH_TIME in batch.schema.names
            if batch.num_rows:
                self.partition = batch.column(PARTITION)[0].as_py()
                self.time = batch.column(BATCH_TIME)[0].as_py() if timed else 0
            yield batch.drop_columns([HASH, PARTITION, *([BATCH_TIME] if timed else [])])

    def text(self) -> str:
        """The fingerprint."""
        return f"{self._rows}.{self._sum}.{self._xor}"


def registered(ledger: Ledger, batch: MicroBatch) -> tuple[Roots, ...]:
    """Returns the roots of a batch. Raises AckerError if two evaluations of it had different rows.

    Raises UnreadableRecord.
    """
    return ledger.run(read_registered(ledger.core, batch))


def read_registered(core: Core, batch: MicroBatch) -> Operation[tuple[Roots, ...]]:
    """Reads the roots of a batch, with the errors of `registered`."""
    [found] = yield [command("HGETALL", key_of(core, batch))]
    return parse_registered(batch, found)


def untracked(ledger: Ledger, batch: MicroBatch, staged: Sequence[Staged]) -> bool:
    """Return True if rows of a batch went on untracked; asks the store only for rows without a tree."""
    if not any(one.treeless for one in staged):
        return False
    [found] = ledger.store.send([command("HEXISTS", key_of(ledger.core, batch), _UNTRACKED)])
    return bool(found)


def parse_registered(batch: MicroBatch, reply: Reply) -> tuple[Roots, ...]:
    """Returns the roots in the hash of a batch (lua/streams/sources/register_roots.lua)."""
    with records.reading(f"the tracked rows of batch {batch.number}"):
        fields = {name.decode(): value.decode() for name, value in pairs(reply).items()}
        return tuple(_roots_of(batch, fields))


def _roots_of(batch: MicroBatch, fields: Mapping[str, str]) -> Iterator[Roots]:
    for source in sorted({name.partition("|")[0] for name in fields if "|" in name}):
        entries = {name.partition("roots:")[2] for name in fields if name.startswith(f"{source}|roots:")}
        most = max(int(fields[f"{source}|of:{stage}"]) for stage in fields[f"{source}|stages"].split())
        if most < len(entries):
            raise AckerError(
                f"batch {batch.number} was evaluated several times, with other rows or partitions each time, "
                "so its rows cannot be tracked: persist the tracked rows, or evaluate them once"
            )
        for entry in sorted(entries):
            found = STAGED.load(fields[f"{source}|roots:{entry}"])
            yield from (one for one in found if not one.untracked)


def sources(ledger: Ledger, batch: MicroBatch) -> set[str]:
    """Returns the calls of `track` whose rows a batch has read."""
    [found] = ledger.store.send([command("HKEYS", key_of(ledger.core, batch))])
    return {name.decode().partition("|")[0] for name in found if b"|" in name}


def time_of(ledger: Ledger, batch: MicroBatch) -> str:
    """Returns the time of a batch of tracked rows for its origin; "" if its tasks have recorded none."""
    [found] = ledger.store.send([command("HGET", key_of(ledger.core, batch), _TIME)])
    return "" if found is None else origins.time_identity(found.decode())


def forget_request(core: Core, batch: MicroBatch) -> Request:
    """The request that deletes the records of a batch."""
    return command("UNLINK", key_of(core, batch))


def ending(core: Core, job: MicroBatch) -> Operation[None]:
    """Records that a job is committed: a later evaluation of its rows gets an error."""
    key = key_of(core, job)
    yield [command("HSET", key, _ENDED, 1), command("EXPIRE", key, RECORD_TTL)]


def key_of(core: Core, batch: MicroBatch) -> bytes:
    """The key of a hash: what a batch has tracked."""
    return keys.tracked(core.config.name, batch.query, batch.run, batch.number)
