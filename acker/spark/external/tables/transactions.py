"""Names for the writes of a batch, by which a table knows a write that an earlier run of the batch has made.

A table leaves out a write whose name it has, whatever its rows are now. A record that failed in the earlier
run, and does not fail in this one, is then in no table. So the store notes, before each write, which rows the
run had received and failed. Where a later run differs, the trees of its batch fail, and are replayed.

Terms: a tree is all that comes of one record.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from acker.errors import AckerError, FailedException, ValidationError, shown
from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name
from acker.spark.external import verdicts
from acker.spark.external.receiving import Received
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.runtime.scope import Life
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log.subscriptions import HOLD_TTL

LIFE = b"life"
"""The field of a random text that belongs to a query: the store has another one after it has lost it."""
DOUBT = b"?"
"""The note of a write that no later run can be compared with."""
_TOGETHER = 500


@dataclass(frozen=True, slots=True)
class Transaction:
    """A write of a batch.

    Attributes:
        application: A text of the query and the write, the same in each batch.
        version: The number of the batch.
        begun: True if an earlier run of the batch has begun the write.
    """

    application: str
    version: int
    begun: bool


class Transactions:
    """The named writes of a batch.

    Args:
        ledger: The ledger; None where nothing is noted, because acker is turned off or only observes.
        batch: The batch.
        life: The life of its collector.
        received: The rows of external streams that the batch has received so far.
        job: True for a job.
    """

    def __init__(
        self, ledger: Ledger | None, batch: MicroBatch, life: Life, received: Sequence[Received], *, job: bool
    ) -> None:
        self.job = job
        self.names: list[str] = []
        self._ledger, self._batch, self._life, self._received = ledger, batch, life, received
        self._doubtful = False
        self._differs = ""

    def begin(self, name: str) -> Transaction:
        """Begins a write.

        Args:
            name: The name of the write, once in a batch.

        Raises:
            ValidationError: The name is no name, or the collector is a job's.
            AckerError: The batch has begun a write of that name.
        """
        with self._life.call("txn"):
            check_name(name, "name")
            if self.job:
                raise ValidationError(
                    f"txn, name {name!r}: a job has no number of a batch, and a further run of it may take "
                    "other rows, which the table would leave out: expected the collector of a bolt. In a job "
                    "overwrite what an earlier run wrote (replaceWhere), or MERGE by a message id"
                )
            if name in self.names:
                raise AckerError(
                    f"txn: the batch has begun a write named {name!r} before, and the table would leave out "
                    "the second one: give each write of a batch a name of its own, the same in each run"
                )
            self.names.append(name)
            query, version = self._batch.query, self._batch.number
            if self._ledger is None:
                return Transaction(f"acker:{query}:{name}", version, begun=False)
            life, begun = self._ledger.run(self._note(name, self._facts()))
            return Transaction(f"acker:{query}:{life}:{name}", version, begun)

    def doubt(self) -> None:
        """Notes that records of the batch fail, or are held, in a way that runs cannot compare."""
        self._doubtful = True
        if self.names and self._ledger is not None:
            key, fields = self._key(), [self._field(name) for name in self.names]
            doubts = [command("HSET", key, field, DOUBT) for field in fields]
            self._ledger.store.send([*doubts, command("EXPIRE", key, HOLD_TTL)])

    def check(self, may_be_of_batch: Callable[[Received], bool], taken: bool) -> None:
        """Checks the batch at the end of its function.

        Args:
            may_be_of_batch: Tells if received rows are made of the batch.
            taken: True if the function has taken streams.

        Raises:
            AckerError: Rows of the batch are of a source that may have others when the batch runs again.
            FailedException: An earlier run has begun a write, and failed other records.
        """
        if not self.names or self._ledger is None:
            return
        if taken or not all(map(may_be_of_batch, self._received)):
            raise AckerError(
                f"txn, name {self.names[0]!r}: the batch has rows that its query has not read, by "
                "collector.take or of a frame of their own. When the batch runs again they may be others, "
                "which the table would leave out, and they would be acked: nothing was committed. Read them "
                "by a query of their own"
            )
        if self._differs:
            raise FailedException(
                f"nobody knows which records the write {self._differs!r} of an earlier run of the batch had, "
                "because that run, or this one, failed or held others: the records of the batch are replayed"
            )

    def forgetting(self) -> Operation[None]:
        """Deletes the notes of a batch that is committed, and of batches before it."""
        if not self.names or self._ledger is None:
            return
        key = self._key()
        [found] = yield [command("HKEYS", key)]
        over = [field for field in found if field != LIFE and _number(field) <= self._batch.number]
        parts = [over[at : at + _TOGETHER] for at in range(0, len(over), _TOGETHER)]
        if parts:
            yield [command("HDEL", key, *part) for part in parts]

    def _note(self, name: str, facts: bytes) -> Operation[tuple[str, bool]]:
        """Notes that a write begins; returns the life of the query, and if an earlier run has begun it."""
        key, field = self._key(), self._field(name)
        _, life, first, before, _ = yield [
            command("HSETNX", key, LIFE, secrets.token_hex(4)),
            command("HGET", key, LIFE),
            command("HSETNX", key, field, facts),
            command("HGET", key, field),
            command("EXPIRE", key, HOLD_TTL),
        ]
        if not first and (before != facts or facts == DOUBT):
            self._differs = name
            yield [command("HSET", key, field, DOUBT), command("EXPIRE", key, HOLD_TTL)]
        return life.decode(), not first

    def _facts(self) -> bytes:
        """A digest of the rows that the batch has received, and of the failed ones among them."""
        if self._doubtful:
            return DOUBT
        return verdicts.digest(
            *(
                (
                    received.stream,
                    received.slot,
                    sorted(received.look.rows.items()),
                    sorted((place, sorted(fails)) for place, fails in received.fails.items()),
                )
                for received in self._received
            )
        ).encode()

    def _key(self) -> bytes:
        assert self._ledger is not None
        return keys.external(self._ledger.config.name, "txn", self._batch.query)

    def _field(self, name: str) -> str:
        return f"{self._batch.number}:{name}"


def _number(field: bytes) -> int:
    return int(field.partition(b":")[0])


class HasTransactions(Protocol):
    """A collector, as far as `delta.txn` and `iceberg.txn` need it.

    Attributes:
        transactions: The named writes of its batch.
        spark: The session of the batch.
    """

    transactions: Transactions
    spark: SparkSession


def transactions_of(collector: object) -> Transactions:
    """The named writes of a collector's batch. Raises ValidationError for another value."""
    named = getattr(collector, "transactions", None)
    if not isinstance(named, Transactions):
        raise ValidationError(f"txn: collector: expected the collector of a bolt, got {shown(collector)}")
    return named
