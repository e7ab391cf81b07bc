"""Every error that acker raises; all derive from `AckerError`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from acker.errors.texts import class_name as class_name
from acker.errors.texts import is_interrupt as is_interrupt
from acker.errors.texts import shown as shown
from acker.errors.texts import text_of as text_of


class AckerError(Exception):
    """The base of all errors of acker."""


class ValidationError(AckerError, ValueError):
    """A value is not the expected one; nothing has changed."""


_OTHER_VERSION = (
    ". Another version of acker made it, and keeps its records in another way: let that version finish the "
    "trees in flight and remove the topology (acker remove), or name another topology"
)


def _stored_wins(topology: str, wanted: Mapping[str, tuple[object, object]]) -> str:
    """Advice for a caller whose settings differ from the stored ones."""
    advice = ". The stored settings win, for all programs: leave these settings out to take it"
    if changes := " ".join(
        f"--set {name}={asked}" for name, (_, asked) in wanted.items() if name != "ackers"
    ):
        advice += f". To change it for all, run `acker configure {topology} {changes}`"
    if "ackers" in wanted:
        advice += (
            ". The number of ackers is for the life of a topology: let what is in flight finish, stop the "
            f"programs, and run `acker remove {topology} --yes`: the next one makes it anew"
        )
    return advice


class NotFound(AckerError):
    """The thing that a call names is not there; nothing has changed."""


class NotInstalled(AckerError):
    """A package is missing that the call needs; the message names the extra of acker that brings it."""


class TooLarge(ValidationError):
    """A value is larger than its limit."""


class TopologyConfigError(AckerError):
    """A topology is stored with another configuration than the one asked for; nothing has changed.

    Args:
        topology: Name of the topology.
        differences: Name of each such setting -> (stored value, value asked for).
    """

    def __init__(self, topology: str, differences: Mapping[str, tuple[object, object]]) -> None:
        self.topology = topology
        self.differences = dict(differences)
        listed = "; ".join(
            f"{name} is {stored!r}, asked for {asked!r}" for name, (stored, asked) in self.differences.items()
        )
        way_out = _OTHER_VERSION if "schema" in self.differences else _stored_wins(topology, self.differences)
        super().__init__(f"topology {topology!r} is stored with another configuration: {listed}{way_out}")

    def __reduce__(self) -> tuple[type, tuple[str, dict[str, tuple[object, object]]]]:
        return type(self), (self.topology, self.differences)


class UnknownTopology(NotFound):
    """The store holds no topology of that name."""

    @classmethod
    def for_name(cls, name: str, more: str = "") -> "UnknownTopology":
        """The error for a name.

        Args:
            name: The name.
            more: Text after the message, such as a suggestion.
        """
        return cls(f"the store holds no topology {name!r}{more}")


class TopologyInUse(AckerError):
    """A topology has trees in flight, or outcomes that are not confirmed: it is neither removed nor timed."""


class FunctionInUse(AckerError):
    """A function has calls without answer, or workers that are alive: it is not removed."""


class SpoutInUse(AckerError):
    """A spout has trees in flight, unconfirmed outcomes or kept rows: it is not removed."""


class StoreUnavailable(AckerError):
    """The store did not answer in time. Calls may have been applied; to send the same again is safe."""


class TurnedOff(AckerError):
    """acker is off, by `ACKER_OFF` or `enabled=False`, and the call needs a store. Nothing was done."""


class KafkaFailed(AckerError):
    """A consumer of Kafka cannot go on; the message has the client's own words."""


class StoreMisconfigured(AckerError):
    """The store cannot keep acker's promises: it may evict keys, or is older than 7.0."""


class StoreError(AckerError):
    """The store refused a command, and would refuse it again."""


class ValueTooLong(StoreError):
    """A value is longer than the store allows (`proto-max-bulk-len`); it is not stored.

    size, limit: in bytes; the limit is 0 where it is unknown. place: the store's URL, without a password.
    """

    def __init__(self, size: int, limit: int, place: str) -> None:
        self.size, self.limit, self.place = size, limit, place
        most = f"the {limit:,} bytes that {place} takes" if limit else f"{place} takes"
        super().__init__(
            f"a value has {size:,} bytes, more than {most} in one (proto-max-bulk-len): it was not stored"
        )

    def __reduce__(self) -> tuple[type, tuple[int, int, str]]:
        return type(self), (self.size, self.limit, self.place)


class UnreadableRecord(StoreError):
    """A record in the store was written by a newer version, or is damaged. The rest of a call was done.

    A tick drops an unreadable slab and counts it; the spout's own timer reports its trees. anchors: the first
    anchor of each slab that was passed over, where the call named slabs.
    """

    def __init__(self, message: str, anchors: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.anchors = tuple(anchors)


class MissingRights(StoreError):
    """The store's user lacks rights that a call needs (Redis ACL). The refused call has changed nothing.

    A spout or bolt keeps its unsent messages, and sends them after the rights were granted.

    Args:
        place: The store's URL, without a password.
        user: Name of the user.
        commands: Commands that the user may not run, in capitals; empty where a key is refused.
        key: One of the call's keys.
        call: The script or command that was sent; "" on connecting.
        said: The server's message, if there is one.
    """

    def __init__(
        self, place: str, user: str, commands: Sequence[str], key: str = "", call: str = "", said: str = ""
    ) -> None:
        self.place, self.user, self.commands = place, user, tuple(commands)
        self.key, self.call, self.said = key, call, said
        lacks = f"run {', '.join(self.commands)}" if self.commands else "use a key that is needed"
        if key:
            lacks += f" (a key of the call is {key!r})"
        wanted = f", which {call!r} needs" if call else ""
        grant = " ".join(f"+{name.lower()}" for name in self.commands) or "~acker:* (%R~acker:* to read only)"
        super().__init__(
            f"{place} refuses this client: user {user!r} has no permission to {lacks}{wanted}. "
            f"It has changed nothing. Grant with ACL SETUSER {user}: {grant}" + (f" ({said})" if said else "")
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.place, self.user, self.commands, self.key, self.call, self.said)


class WritersFull(StoreError):
    """A shard remembers no further writer: nothing changed. Send the same again when ticks have made room."""


class TrackRejected(AckerError):
    """The topology holds as many trees as its high-water mark allows; nothing was tracked."""


class TrackConflict(AckerError):
    """A slab of that name is tracked with other content; nothing has changed."""


class KeyConflict(AckerError):
    """An idempotency key was used for another call, or is about to expire."""


class TupleError(AckerError, ValueError):
    """A tuple is malformed, foreign, or was acked or failed before."""


class BufferFull(AckerError):
    """The buffer of unsent messages is full, and only `flush` sends them; nothing has changed."""


class SpoutsFull(AckerError):
    """A topology has its most spouts; nothing has changed."""


class SpoutPendingFull(AckerError):
    """The spout has `max_spout_pending` trees without an outcome and was asked not to wait."""


class SpoutPaused(SpoutPendingFull, TrackRejected):
    """The spout is paused: nothing was tracked. The message has the author and the reason of the pause."""


class FailedException(AckerError):
    """Raised by user code to fail the tuples at hand (Storm's FailedException)."""


class PermanentFailure(FailedException):
    """Raised by user code to fail the tuples at hand for good: their records are not tried again."""


class DeadLettersFull(AckerError):
    """A spout has its most dead letters: replay or discard some. Outcomes wait, nothing is lost."""


class UnknownDeadLetter(NotFound):
    """The topology holds no dead letter of that id: it was replayed or deleted, or never was."""


class UnknownTree(NotFound):
    """The ledger holds none of the named trees, or no longer holds them; nothing has changed."""


class UnknownStream(NotFound):
    """The topology holds no stream of that name."""


class UnknownSubscription(NotFound):
    """The stream has no subscription of that name: there was none, or it was dropped."""


class UnknownQuery(AckerError):
    """On Spark Connect, a bolt cannot tell which query called it: name the query after the bolt."""


class SchemaMismatch(AckerError):
    """Rows do not have the schema that their stream has; nothing was written."""


class StoreLost(AckerError):
    """The store has lost rows of the named batches; `acker.spark.read_again` has a query read them again."""


class LineConflict(AckerError):
    """A declared line exists with other content, or its stream gathers in another way."""


class UnknownSpout(NotFound, ValidationError):
    """The topology has no spout of that name."""


class UnknownReader(NotFound):
    """The subscription has no reader of that name."""


class UnknownLine(NotFound):
    """A topology has no line of that name."""


class FunctionConflict(AckerError):
    """A registered function exists with other content, or in another topology."""


class UnknownFunction(NotFound):
    """The store has no function of that name."""


class UnknownRequest(NotFound, ValidationError):
    """A function or a line has no request of that name, or has forgotten it since its answer."""


class DRPCFailed(AckerError):
    """A request of a function has failed; the message names the step and the reason.

    reason: the text of the step's error, or the cause of a missing result. step: the step that failed the
    request; "" if it is unknown, or for a cancelled call.
    """

    def __init__(self, reason: str, step: str = "") -> None:
        self.reason, self.step = reason, step
        super().__init__(f"in step {step}: {reason}" if step else reason)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.reason, self.step)


class DRPCTimeout(AckerError):
    """A request of a function was not answered in time; the message names its last known place."""


class DRPCFull(AckerError):
    """A function has its most unanswered requests: this request was not begun."""


class RunCommitted(AckerError):
    """A run of that name was committed before, with other rows: none of the new rows was written."""


class ReaderFenced(AckerError):
    """A reader's segments were given back to other readers: none of its results is committed."""


class SegmentGone(AckerError):
    """A segment is no longer in the store: it was acked or dropped before it was read."""


class UnsafePlan(AckerError):
    """A query's plan could silently lose rows that have trees. Nothing was acked."""


class UnknownOffset(AckerError):
    """A checkpoint has an offset of another stream or reader; nothing was read, and nothing has changed."""


class VersionMismatch(AckerError):
    """A Spark driver and its executors run different versions of acker. Nothing was done."""


class StagingExpired(AckerError):
    """The staged data of a commit has outlived its time. Nothing was published; run the batch again."""


class StreamKindError(AckerError):
    """A stream is managed, and the call is for external ones, or the reverse. Nothing was written."""


class StreamFull(AckerError):
    """A bound of an external stream is reached. The flush goes on where it is called again."""


class SubscriptionInUse(AckerError):
    """Another step serves the subscription of an external stream: the two would ack for each other."""


class StampsExpired(AckerError):
    """A flush comes too late for its stamps. Start the process again from its committed offsets."""


class StreamLost(AckerError):
    """The store has lost an external stream. Start the process again from its committed offsets."""


class EffectsFull(AckerError):
    """The limit of remembered effects is reached; nothing was recorded, the batch can run again."""


class CommitOrderError(AckerError):
    """A commit comes after later commits of its writer: its checkpoint is older than the store's records."""


@contextmanager
def needing_pyarrow(feature: str) -> Iterator[None]:
    """Raises NotInstalled where the imports of its block miss pyarrow, which reads rows."""
    try:
        yield
    except ImportError as error:
        raise NotInstalled(
            f"{feature} takes pyarrow: install acker with its extra 'spark' ({error})"
        ) from error
