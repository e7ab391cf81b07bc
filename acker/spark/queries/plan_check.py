"""Verdicts on a query's plan: which of its operators keep state, and over which rows.

State and trees do not go together. Spark's state swallows the replay of a record that it has seen
(`dropDuplicates`, `limit`), or keeps what is emitted with a later batch (aggregates, joins of streams); its
tuples are acked with the batch that read them all the same. So nothing of such a query is acked.

A query that writes by itself is committed by a process that does not see its plan: the driver, which does,
leaves it a record of what it has found (acker/spark/queries/query_listener.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from acker.errors import UnsafePlan
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import Record
from acker.streams.commits import origins
from acker.streams.commits.record import RECORD_TTL
from acker.streams.log import subscriptions
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots

_NOT_SAID = (
    "Spark does not tell here whether the query has an operator that keeps state (dropDuplicates, limit, an "
    "aggregate, a join of streams, ...); over rows that have trees it would lose some without a word, so "
    "nothing was acked. Write with a bolt, or, if the query has none, say so by the option stateless=true"
)
_UNLOGGED = (
    "the query tracks its progress asynchronously (asyncProgressTrackingEnabled): its checkpoint lacks "
    "batches that have begun, so after a crash other rows would come under the number of a batch that is "
    "committed. Nothing was acked; start the query without that option"
)
ANY = "*"
"""Stands for all streams, where it is not known over which of them an operator is."""
_REPLAYED = ("dropDuplicates", "distinct", "limit", "intersect", "except")
_KEYED = (
    "its state has seen a record when the replay of it comes, which would be acked and dropped. Do that in "
    "the function of a bolt: collector.once knows the keys of earlier batches"
)
_KEPT_BACK = (
    "its state keeps rows for a later batch, and they would be acked before that has emitted anything. Keep "
    "them with collector.hold, and do that in the function of a bolt"
)


@dataclass(frozen=True, slots=True)
class Verdict(Record, what="what is known of a query"):
    """operators: stream -> the operator with state over it. tracked: that over rows of `acker.spark.track`.

    twice: streams that the query reads in two places for one subscription. others: what else it reads, as
    Spark names it. application_id, application: of the driver, "" where that is not known. logged: number of
    the last batch that the checkpoint had when the run began; -1 where none. logged_at: its time (ms), ""
    where unknown. unlogged: Spark tracks the query's progress asynchronously, so it begins batches that its
    checkpoint does not have.
    """

    operators: Mapping[str, str] = field(default_factory=dict)
    tracked: str = ""
    twice: tuple[str, ...] = ()
    logged: int = -1
    logged_at: str = ""
    others: tuple[str, ...] = ()
    application_id: str = ""
    application: str = ""
    unlogged: bool = False

    def planned(self, batch: MicroBatch) -> str:
        """What tells of a batch, as an origin has it: a commit of its number may be of another one."""
        if batch.number > self.logged:
            return origins.by(batch.run)
        return origins.at(self.logged_at) if self.logged_at and batch.number == self.logged else ""


def record(core: Core, query: str, run: str, found: Verdict) -> Operation[None]:
    """Notes what is known of a run of a query."""
    yield [command("SET", keys.verdict(core.config.name, query, run), found.dump(), "EX", RECORD_TTL)]


def read(core: Core, batch: MicroBatch) -> Operation[Verdict | None]:
    """The verdict on the run that a batch is of; None where nobody could tell. Raises UnreadableRecord."""
    key = keys.verdict(core.config.name, batch.query, batch.run)
    [found, _] = yield [command("GET", key), command("EXPIRE", key, RECORD_TTL)]
    return None if found is None else Verdict.load(found)


def forget(core: Core, query: str, run: str) -> Operation[None]:
    """Drops what is known of a run."""
    yield [command("UNLINK", keys.verdict(core.config.name, query, run))]


def check_inputs(
    ledger: Ledger, found: Verdict | None, inputs: Sequence[Range | Roots], *, stateless: bool
) -> None:
    """As `check`, of a batch whose inputs are known. Where nobody could tell, trees are refused.

    stateless: the user says that no operator of the query keeps state.
    """
    ranges = [one for one in inputs if isinstance(one, Range)]
    readers = {(one.stream, one.slot): one.reader for one in ranges}
    twice = tuple(one.stream for one in ranges if readers[one.stream, one.slot] != one.reader)
    if found is not None or twice:
        known = found or Verdict()
        check(ledger, replace(known, twice=twice or known.twice), ranges)
    if found is not None or stateless or not ledger.config.ackers:
        return
    if len(ranges) < len(inputs) or any(ledger.run(has_trees(ledger.core, one)) for one in ranges):
        raise UnsafePlan(_NOT_SAID)


def check(ledger: Ledger, found: Verdict, ranges: Iterable[Range]) -> None:
    """Raises UnsafePlan where an operator with state is over rows that have trees, or a stream is read twice.

    Also where Spark may give the batch's number to another batch. ranges: what the batch reads of streams.
    """
    if found.unlogged:
        raise UnsafePlan(_UNLOGGED)
    if found.twice:
        raise UnsafePlan(
            f"the query reads stream {found.twice[0]!r} in two places for one subscription, so each of them "
            "has a part of its rows, and a self-join finds nothing: give each a subscription of its own "
            '(.option("subscription", name)), and start with a new checkpoint'
        )
    if not ledger.config.ackers:
        return
    if found.tracked:
        raise UnsafePlan(_message(found.tracked, "rows of acker.spark.track"))
    for one in ranges:
        operator = found.operators.get(one.stream) or found.operators.get(ANY)
        if operator is not None and ledger.run(has_trees(ledger.core, one)):
            raise UnsafePlan(_message(operator, f"rows of stream {one.stream!r}, which have trees"))


def has_trees(core: Core, what: Range) -> Operation[bool]:
    """Whether there are rows with trees in a range."""
    start = what.start
    while True:
        rest = Range(what.stream, what.slot, what.reader, start, what.end)
        found = yield from subscriptions.taken(core, rest)
        if not found:
            return False
        if any(piece.segment.shards for piece in found):
            return True
        start = found[-1].number


def _message(operator: str, over: str) -> str:
    why = _KEYED if operator.startswith(_REPLAYED) else _KEPT_BACK
    return f"the query has {operator} over {over}: {why}. Nothing was acked"
