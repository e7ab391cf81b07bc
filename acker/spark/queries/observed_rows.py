"""Observed rows of a batch: tasks track them at once, and note how many there are, for the bolt.

Their trees are named by the batch and the partition, not at random: what Spark evaluates again tracks the
same trees again, which changes nothing. Nothing is staged or kept. An error of the store is logged, and then
the store is left alone for five seconds.

Terms: a tree is all that comes of one record; a slab is up to 4,096 trees stored as one record.
"""

import hashlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from acker.collectors.modes.observing import ObservedLedger
from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.ledger.slabs.slabs import NewSlab
from acker.spark.queries import microbatches
from acker.spark.queries.batch_roots import PARTITION
from acker.spark.queries.microbatches import TRACKS, MicroBatch
from acker.spark.runtime.pickling import Shipped
from acker.store import keys
from acker.store.operation import command
from acker.store.replies import pairs
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS
from acker.streams.sources import columns

PAUSE = 5.0
"""Seconds for which a process leaves the store alone after an error."""
PIECE = 65_536
"""Rows that are tracked together, at most."""
_FIELD = b"observed"
_MOST = 64
_paused: dict[str, float] = {}
_calls: dict[str, "itertools.count[int]"] = {}
_log = logging.getLogger("acker")


def attempt(ledger: ObservedLedger, consequence: str, work: Callable[[], object]) -> bool:
    """Does something at the store; returns False where it failed, which is logged, or was not tried.

    Args:
        ledger: The ledger.
        consequence: The words that the log says of a failure.
        work: The calls, which may be made again.
    """
    url = ledger.store.url
    if time.monotonic() < _paused.get(url, 0.0):
        return False
    try:
        work()
    except Exception as error:  # noqa: BLE001 - a batch must outlive it
        if len(_paused) >= _MOST:
            _paused.clear()
        _paused[url] = time.monotonic() + PAUSE
        _log.warning("acker observes topology %r: %s: %s", ledger.config.name, consequence, error)
        return False
    return True


def source_of(spout: str) -> str:
    """The name of a call of `track`: a program that starts again gives its calls the same names."""
    if len(_calls) >= _MOST:
        _calls.clear()
    return f"{spout}:{next(_calls.setdefault(spout, itertools.count()))}"


@dataclass(frozen=True, slots=True)
class ObservedRows:
    """Rows of a partition of a batch.

    source: Name of their call of `track`. first: The number of the first of them in the partition. slab: The
    trees of a slab, the unit of storage.
    """

    source: str
    partition: int
    first: int
    rows: int
    slab: int

    @property
    def spout(self) -> str:
        """The name of the spout."""
        return self.source.partition(":")[0]

    def anchors(self, batch: MicroBatch) -> Ids:
        """The trees of the rows."""
        places = np.arange(self.first, self.first + self.rows, dtype=np.int64)
        start, end = self.first // self.slab, -(-(self.first + self.rows) // self.slab)
        slabs = ids.firsts_of(ids.seeded_ids(~self._seed(batch), start, end - start))
        return slabs[places // self.slab - start] + ids.STEP * (places % self.slab)

    def values(self, batch: MicroBatch) -> Ids:
        """The tuple id of each row, with which the ack value of its tree begins."""
        return ids.seeded_ids(self._seed(batch), self.first, self.rows)

    def slabs(self, batch: MicroBatch, message_ids: Sequence[bytes]) -> list[NewSlab]:
        """The slabs of the rows, to be tracked."""
        anchors, values = self.anchors(batch), self.values(batch)
        parts = [slice(at, at + self.slab) for at in range(0, self.rows, self.slab)]
        return [NewSlab(anchors[part], values[part], message_ids[part]) for part in parts]

    def field(self) -> bytes:
        """The name of a note of the rows."""
        return b"%b:%b:%d:%d:%d" % (_FIELD, self.source.encode(), self.partition, self.first, self.slab)

    def _seed(self, batch: MicroBatch) -> int:
        named = f"{self.source}\0{self.partition}\0{self.slab}\0{batch.query}\0{batch.number}"
        return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=8).digest())


def noted(ledger: ObservedLedger, batch: MicroBatch) -> list[ObservedRows]:
    """Returns the observed rows of a batch that its tasks have tracked."""
    observed = []
    for name, rows in pairs(ledger.store.send([command("HGETALL", _key(ledger, batch))])[0]).items():
        if name.startswith(_FIELD):
            _, spout, call, partition, first, slab = name.decode().split(":")
            observed.append(ObservedRows(f"{spout}:{call}", int(partition), int(first), int(rows), int(slab)))
    return observed


def forget(ledger: ObservedLedger, batch: MicroBatch) -> None:
    """Deletes the notes of a batch."""
    ledger.store.send([command("UNLINK", _key(ledger, batch))])


def _key(ledger: ObservedLedger, batch: MicroBatch) -> bytes:
    return keys.tracked(ledger.config.name, batch.query, batch.run, batch.number)


class ObservedTracker(Shipped):
    """Tracks the rows of a task, with `PARTITION`, for `mapInArrow`.

    job: the job of the rows; None for a batch of a query, which tasks know.
    """

    __name__ = TRACKS

    def __init__(
        self,
        ledger: ObservedLedger,
        spout: str,
        message_id: str,
        attempt: str,
        wanted: pa.Schema,
        job: MicroBatch | None = None,
    ) -> None:
        self.ledger = ledger
        self.spout = spout
        self.source = source_of(spout)
        self.message_id = message_id
        self.attempt = attempt
        self.wanted = wanted
        self.job = job

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows with their anchors; rows without a name that can be tracked have none."""
        batch = self.job or microbatches.of_task()
        if batch is None:
            raise AckerError(
                "observed rows of a streaming DataFrame belong to a batch: start it as a query; where a "
                "bolt's function evaluates them in a thread of its own, make that a pyspark.InheritableThread"
            )
        attempt(self.ledger, "the topology is not open", lambda: self.ledger.core)
        slab, count, waiting = self.ledger.config.slab_trees, 0, list[bytes]()
        partition, piece = 0, max(1, PIECE // slab) * slab
        for rows in batches:
            if not rows.num_rows:
                continue
            partition = rows.column(PARTITION)[0].as_py()
            visible = rows.drop_columns([PARTITION])
            named = columns.message_id_column(pa.Table.from_batches([visible]), self.message_id)
            good = ~columns.bad(named).to_numpy()
            tracked = ObservedRows(self.source, partition, count, int(good.sum()), slab)
            count += tracked.rows
            anchors = np.zeros(visible.num_rows, np.int64)
            if tracked.rows:
                anchors[good] = tracked.anchors(batch)
            waiting += named.cast(pa.large_binary()).filter(pa.array(good)).to_pylist()
            if self.attempt:
                first = pa.array(np.ones(visible.num_rows, dtype=np.int32))
                visible = visible.append_column(self.attempt, first)
            yield segments.read(visible.append_column(ANCHORS, pa.array(anchors, mask=~good)), self.wanted)
            while len(waiting) >= piece:
                self._track(batch, partition, count - len(waiting), waiting[:piece], slab)
                del waiting[:piece]
        self._track(batch, partition, count - len(waiting), waiting, slab)

    def _track(
        self, batch: MicroBatch, partition: int, first: int, message_ids: list[bytes], slab: int
    ) -> None:
        rows = ObservedRows(self.source, partition, first, len(message_ids), slab)
        if not message_ids:
            return

        def track() -> None:
            letters = self.ledger.track_slabs(rows.slabs(batch, message_ids), spout=self.spout)
            key = _key(self.ledger, batch)
            note = [command("HSET", key, rows.field(), rows.rows), command("EXPIRE", key, RECORD_TTL)]
            self.ledger.store.send(note)
            if refused := sum(letter not in "AD" for letter in letters):
                _log.warning(
                    "acker observes topology %r: %d of %d slabs of spout %r are not tracked: the store has "
                    "no room for them, or has other trees of their names",
                    self.ledger.config.name, refused, len(letters), self.spout,
                )  # fmt: skip

        attempt(self.ledger, f"{rows.rows} rows of spout {self.spout!r} are not tracked", track)
