"""Every error that acker raises; all derive from `AckerError`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread

_LONGEST_TEXT, _LONGEST_NAME = 4_096, 100


class AckerError(Exception):
    """The base of all errors of acker."""


class ValidationError(AckerError, ValueError):
    """A value is not what was expected; nothing has changed."""


_OTHER_VERSION = (
    ". Another version of acker has made it, and keeps its records in another way: let that version finish "
    "what is on its way there and remove it (acker remove), or name another topology"
)


def _stored_wins(topology: str, wanted: Mapping[str, tuple[object, object]]) -> str:
    """What to do about other settings than the stored ones."""
    said = ". The stored settings win, for all programs: leave these settings out to take it"
    if changes := " ".join(
        f"--set {name}={asked}" for name, (_, asked) in wanted.items() if name != "ackers"
    ):
        said += f". To change it for all, run `acker configure {topology} {changes}`"
    if "ackers" in wanted:
        said += (
            ". The number of ackers is for the life of a topology: let what is in flight finish, stop the "
            f"programs, and run `acker remove {topology} --yes`: the next one makes it anew"
        )
    return said


class NotFound(AckerError):
    """The thing that a call names is not there; nothing has changed."""


class NotInstalled(AckerError):
    """A package is missing that the call needs; the message names the extra of acker that brings it."""


class TooLarge(ValidationError):
    """A value is larger than what is taken."""


class TopologyConfigError(AckerError):
    """A topology is stored with another configuration than the one asked for; nothing has changed.

    `differences` maps each setting's name to (stored value, value asked for).
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
    def named(cls, name: str, more: str = "") -> "UnknownTopology":
        """The error for a name; more: what follows, as the name that was perhaps meant."""
        return cls(f"the store holds no topology {name!r}{more}")


class TopologyInUse(AckerError):
    """A topology has trees in flight, or outcomes that are not confirmed: it is neither removed nor timed."""


class FunctionInUse(AckerError):
    """A function has calls without answer, or workers that are alive: it is not removed."""


class SpoutInUse(AckerError):
    """A spout that was to be removed has trees in flight, outcomes not confirmed, or rows that are kept."""


class StoreUnavailable(AckerError):
    """The store did not answer within the time allowed.

    What was sent may have been applied or not; sending the same submission again is safe.
    """


class StoreMisconfigured(AckerError):
    """The store cannot keep acker's promises: it may evict keys, or is older than 7.0."""


class StoreError(AckerError):
    """The store refused a command for a reason that sending it again does not mend."""


class ValueTooLong(StoreError):
    """A value is longer than the store takes in one (`proto-max-bulk-len`); it is not stored.

    size: of the value, in bytes. limit: of the store; 0 where that is not known.
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
    """A record in the store was written by a newer version, or is damaged. All else of a call was done.

    anchors: the first of each slab that was passed over, where the call named any. A tick drops such a slab
    and counts it; their spout's own timer reports its trees.
    """

    def __init__(self, message: str, anchors: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.anchors = tuple(anchors)


class MissingRights(StoreError):
    """The store's user lacks rights that a call needs (Redis ACL). What lacks them has changed nothing.

    A spout or bolt keeps what it could not send: after the rights were granted, all goes on.
    user: the name of the user. commands: what it may not run, in capitals; empty where a key is
    refused. key: one of the keys of the call. what: the script or command that was sent, "" on connecting.
    said: the server's own words, if it had any. place: the store's URL, without a password.
    """

    def __init__(
        self, place: str, user: str, commands: Sequence[str], key: str = "", what: str = "", said: str = ""
    ) -> None:
        self.place, self.user, self.commands = place, user, tuple(commands)
        self.key, self.what, self.said = key, what, said
        lacks = f"run {', '.join(self.commands)}" if self.commands else "use a key that is needed"
        if key:
            lacks += f" (a key of the call is {key!r})"
        wanted = f", which {what!r} needs" if what else ""
        grant = " ".join(f"+{name.lower()}" for name in self.commands) or "~acker:* (%R~acker:* to read only)"
        super().__init__(
            f"{place} refuses this client: user {user!r} has no permission to {lacks}{wanted}. "
            f"It has changed nothing. Grant with ACL SETUSER {user}: {grant}" + (f" ({said})" if said else "")
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.place, self.user, self.commands, self.key, self.what, self.said)


class WritersFull(StoreError):
    """A shard remembers as many writers as it may, and the call comes from a new one; it changed nothing.

    The same submission can be sent again: there is room when the ticks have forgotten silent writers.
    """


class TrackRejected(AckerError):
    """The topology holds as many trees as its high-water mark allows; nothing was tracked."""


class TrackConflict(AckerError):
    """A slab of that name is tracked with other content; nothing has changed."""


class KeyConflict(AckerError):
    """A key was used for another call, or so long ago that the store is about to forget what for."""


class TupleError(AckerError, ValueError):
    """A tuple is malformed, foreign, or was acked or failed before."""


class BufferFull(AckerError):
    """As many messages wait to be sent as may, and nothing but `flush` sends them; nothing has changed."""


class SpoutsFull(AckerError):
    """A topology has as many spouts as it may; nothing has changed."""


class SpoutPendingFull(AckerError):
    """The spout has `max_spout_pending` trees without an outcome and was asked not to wait."""


class FailedException(AckerError):
    """Raised by user code to fail the tuples at hand (Storm's FailedException)."""


class PermanentFailure(FailedException):
    """Raised by user code to fail the tuples at hand for good: their records are not tried again."""


class DeadLettersFull(AckerError):
    """A spout has as many dead letters as it may: replay or delete some. Outcomes wait, nothing is lost."""


class UnknownDeadLetter(NotFound):
    """The topology holds no dead letter of that id: it was replayed or deleted, or never was."""


class UnknownTree(NotFound):
    """The ledger knows none of the trees named, or not any more; nothing has changed."""


class UnknownStream(NotFound):
    """The topology holds no stream of that name."""


class UnknownSubscription(NotFound):
    """The stream has no subscription of that name: there was none, or it was dropped."""


class UnknownQuery(AckerError):
    """On Spark Connect, a bolt cannot tell which query has called it: name that after the bolt."""


class SchemaMismatch(AckerError):
    """Rows do not have the schema that their stream has; nothing was written."""


class StoreLost(AckerError):
    """The store does not hold any more what a spout's query has committed to it: rows that waited are lost.

    The message names the batches. `acker.spark.read_again` lets the query read these again from its source.
    """


class LineConflict(AckerError):
    """A line was to be declared that is there with other content, or a stream that gathers otherwise."""


class UnknownSpout(NotFound, ValidationError):
    """The topology has no spout of that name."""


class UnknownReader(NotFound):
    """The subscription has no reader of that name."""


class UnknownLine(NotFound):
    """A topology has no line of that name."""


class FunctionConflict(AckerError):
    """A function was to be registered that is there with other content, or in another topology."""


class UnknownFunction(NotFound):
    """The store has no function of that name."""


class UnknownRequest(NotFound, ValidationError):
    """A function or a line has no request of that name, or has forgotten it since its answer."""


class DRPCFailed(AckerError):
    """A request of a function has failed; the message names the step and the reason.

    reason: what the step raised, or why there is no result. step: who has failed it, "" where that is not
    known, or was no step, as where the call was cancelled.
    """

    def __init__(self, reason: str, step: str = "") -> None:
        self.reason, self.step = reason, step
        super().__init__(f"in step {step}: {reason}" if step else reason)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.reason, self.step)


class DRPCTimeout(AckerError):
    """A request of a function was not answered in time; the message says what it waited for."""


class DRPCFull(AckerError):
    """A function has as many requests without answer as it may: this one was not begun."""


class RunCommitted(AckerError):
    """A run of that name was committed before, with other rows: nothing of this one was written."""


class ReaderFenced(AckerError):
    """What a reader had taken was given back to others: nothing that it made of that is committed."""


class SegmentGone(AckerError):
    """A segment that was to be read is not in the store any more: it was acked or dropped meanwhile."""


class UnsafePlan(AckerError):
    """What a query does with rows that have trees could lose some without a word. Nothing was acked."""


class UnknownOffset(AckerError):
    """A checkpoint goes on at a place that its source does not have: that of another stream, or reader.

    Nothing was read, and nothing has changed.
    """


class VersionMismatch(AckerError):
    """A Spark driver and its executors run different versions of acker. Nothing was done."""


class StagingExpired(AckerError):
    """What a commit was to publish is not in the store any more: its time to live was over.

    Nothing was published; running the batch again is safe.
    """


class EffectsFull(AckerError):
    """As many effects are remembered as the limit allows; nothing was recorded, the batch can run again."""


class CommitOrderError(AckerError):
    """A commit comes after later ones of the same writer: a checkpoint is older than what the store knows."""


def is_interrupt(error: BaseException) -> bool:
    """Return True for Ctrl-C: whoever catches all that code of the user's raises lets that through.

    In another thread a KeyboardInterrupt is no more than what that code has raised.
    """
    return issubclass(type(error), KeyboardInterrupt) and current_thread() is main_thread()


def text_of(value: object) -> str:
    """The text of an object of the user's, up to 4,096 characters; "" if it cannot be had.

    All texts of exceptions, reasons and names of the user's are taken by this, `class_name` and `shown`: a
    `__str__` may raise anything, SystemExit too, or return text of a class of its own.
    """
    try:
        return _plain(str(value), _LONGEST_TEXT)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return ""


def class_name(value: object) -> str:
    """The name of an object's class, also where the class gives itself another."""
    return _plain(type.__dict__["__name__"].__get__(type(value)), _LONGEST_NAME)


def shown(value: object) -> str:
    """A value for an error message, cut to a bearable length; also one that cannot be shown itself."""
    try:
        text = _plain(repr(value[:100] if isinstance(value, str | bytes) else value), _LONGEST_TEXT)
    except BaseException as error:
        if is_interrupt(error):
            raise
        text = f"<{class_name(value)} that cannot be shown: {class_name(error)}>"
    return text if len(text) <= 120 else text[:117] + "..."


def _plain(text: str, most: int) -> str:
    """Text as a plain str of whole characters: that of a class of its own may do anything."""
    return str.__getitem__(text, slice(most)).encode("utf-8", "replace").decode()


@contextmanager
def needing_pyarrow(what: str) -> Iterator[None]:
    """Raises NotInstalled where the imports of its block miss pyarrow, which reads rows."""
    try:
        yield
    except ImportError as error:
        raise NotInstalled(f"{what} takes pyarrow: install acker with its extra 'spark' ({error})") from error
