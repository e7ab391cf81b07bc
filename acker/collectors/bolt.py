"""Bolts: steps that take tuples, emit tuples anchored to them, and ack or fail them."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

from acker.collectors.session import Session
from acker.collectors.tuples import MAX_ROOTS, Tuple, add_children, check_targets
from acker.errors import FailedException, PermanentFailure, TupleError, ValidationError, shown
from acker.ledger.settings import config
from acker.ledger.slabs import causes
from acker.ledger.user_functions.undone import check_done

P = ParamSpec("P")
R = TypeVar("R")
Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]


class Bolt:
    """A step on tuples (Storm's IBolt and OutputCollector), for any thread. Made by `Topology.bolt`.

    What it does is buffered, and sent within the topology's linger or by `Topology.flush`. As in Storm, the
    children of a tuple are registered with its ack, in one message, so a tree never looks complete in
    between. Every method raises StoreUnavailable or StoreError where the buffer is full and cannot be sent,
    and BufferFull where it is full and the topology's `linger` is None; nothing has changed then.
    """

    def __init__(self, topology: Session, name: str) -> None:
        self.topology = topology
        self.name = config.check_name(name, "bolt")

    @property
    def repeated(self) -> int:
        """How many tuples the bolts of this topology object acked once more, which changed nothing."""
        return self.topology.outbox.repeated

    def __repr__(self) -> str:
        return f"Bolt({self.name!r} of {self.topology.name!r})"

    def emit(self, anchors: Tuple | Iterable[Tuple] = (), targets: int = 1) -> list[Tuple]:
        """Emits a record anchored to tuples: one tuple, with edges of its own, for each target.

        targets: 0 to 65,536. Several anchors make it part of all their trees; the same tuple or tree twice is
        fine; none make it untracked. Raises TupleError where an anchor is no tuple of this topology, or was
        acked or failed before, or where the tuple would belong to more than 4,096 trees.
        """
        check_targets(targets)
        self.topology.outbox.check_whole()
        given = [anchors] if isinstance(anchors, Tuple) else list(anchors)
        for anchor in given:
            _check_tuple(anchor)
        if len({root for anchor in given for root in anchor.edges}) > MAX_ROOTS:
            raise TupleError(f"a tuple belongs to at most {MAX_ROOTS:,} trees")
        owner = self.topology.owner
        with self.topology.outbox.lock:
            for anchor in given:
                anchor.check_open(owner, "an anchor")
            children = add_children(given, owner, targets)
            if children and children[0].edges:
                self.topology.outbox.count_emitted(targets)
        return children

    def ack(self, tuple: Tuple) -> None:  # noqa: A002 - Storm's name, and this project's word
        """Acks a tuple: it is done, and its children are registered. Untracked tuples change nothing.

        Raises TupleError where it is no tuple of this topology, or was acked or failed before. A queue may
        deliver a tuple twice: of one that came as text or by a pickle, and was acked here before as another
        object, only the children are registered, and `repeated` counts it. Known are the 100,000 that this
        process acked last. A second ack by another process undoes the first: the tree expires, and is never
        acked by that. So a queue has to deliver a tuple again to the process that had it: by partitions.
        """
        _check_tuple(tuple)
        self.topology.outbox.make_room()
        with self.topology.outbox.lock:
            tuple.check_open(self.topology.owner, "acked")
            self.topology.outbox.ack(tuple, self.name)

    def fail(self, tuple: Tuple, reason: str = "", *, retry: bool = True) -> None:  # noqa: A002 - as above
        """Fails all trees of a tuple, at once and finally; `reason` is at most 1 KiB. Children are void.

        retry=False: for good. The outcome tells the spout so (`Outcome.retry`): another attempt is of no use.
        Raises ValidationError for the reason, and TupleError as `ack` does.
        """
        _check_tuple(tuple)
        encoded = causes.checked(reason, self.name, retry=retry)
        self.topology.outbox.make_room()
        with self.topology.outbox.lock:
            tuple.check_open(self.topology.owner, "failed")
            self.topology.outbox.fail(tuple, self.name, encoded)

    def reset_timeout(self, tuple: Tuple) -> None:  # noqa: A002 - as above
        """Gives the trees of a tuple the whole message timeout again, and so all others of their slabs.

        Storm's OutputCollector.resetTimeout. Raises TupleError as `ack` does.
        """
        _check_tuple(tuple)
        self.topology.outbox.make_room()
        with self.topology.outbox.lock:
            tuple.check_open(self.topology.owner, "kept from its timeout")
            self.topology.outbox.reset_timeout(tuple.anchors, self.name)

    @contextmanager
    def processing(
        self,
        tuple: Tuple,  # noqa: A002 - as above
        *,
        catch: Errors = (),
    ) -> Iterator["Collector"]:
        """Acks a tuple at the end of the block, fails it on an error (Storm's BasicBoltExecutor).

        What the collector emits is anchored to the tuple. Any Exception fails the tuple, with the exception's
        text as reason; FailedException (PermanentFailure: for good) and those of `catch` end there, others
        are raised further. Anything else that ends the block (KeyboardInterrupt) leaves the tuple to its
        timeout.
        """
        _check_tuple(tuple)
        self.topology.outbox.check_whole()
        with self.topology.outbox.lock:
            tuple.check_open(self.topology.owner, "processed")
        try:
            yield Collector(self, tuple)
        except Exception as error:
            kind, reason = type(error), config.bounded_reason(causes.said_by(error))
            self.fail(tuple, reason, retry=not issubclass(kind, PermanentFailure))
            if not issubclass(kind, FailedException) and not issubclass(kind, catch):
                raise
        else:
            self.ack(tuple)

    def basic(
        self,
        function: "Callable[Concatenate[Collector, P], R]",
        *,
        catch: Errors = (),
    ) -> "BasicBolt[P, R]":
        """Makes a function a basic bolt (Storm's IBasicBolt): see `BasicBolt`."""
        return BasicBolt(self, function, catch)


class Collector:
    """What a basic bolt emits with, while it processes `tuple` (Storm's BasicOutputCollector)."""

    __slots__ = ("_bolt", "tuple")

    def __init__(self, bolt: Bolt, tuple: Tuple) -> None:  # noqa: A002 - as above
        self._bolt = bolt
        self.tuple = tuple

    def emit(self, targets: int = 1, *, also: Iterable[Tuple] = ()) -> list[Tuple]:
        """Emits a record anchored to the tuple at hand, and to the tuples `also`: see `Bolt.emit`."""
        return self._bolt.emit([self.tuple, *also], targets)

    def reset_timeout(self) -> None:
        """Gives the trees of the tuple at hand the whole message timeout again: see `Bolt.reset_timeout`."""
        self._bolt.reset_timeout(self.tuple)


class BasicBolt(Generic[P, R]):
    """A function that is called as `bolt(tuple, *args)` and runs as `function(collector, *args)`.

    The tuple is acked when the function returns, and failed when it raises, as `Bolt.processing` says. It
    fails for good where the function returns work that nobody has done: a coroutine, a Future, a generator.
    Returns what the function returns; None where it failed with FailedException or with one of `catch`.
    """

    def __init__(
        self,
        bolt: Bolt,
        function: Callable[Concatenate[Collector, P], R],
        catch: Errors = (),
    ) -> None:
        if (
            inspect.isgeneratorfunction(function)
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise ValidationError(
                "basic bolt: expected a plain function, whose work is done when it returns, got "
                f"{shown(function)}"
            )
        self.bolt = bolt
        self._function = function
        self._catch = catch
        update_wrapper(self, function)

    def __call__(self, tuple: Tuple, /, *args: P.args, **kwargs: P.kwargs) -> R | None:  # noqa: A002 - as above
        """Processes one tuple."""
        result: R | None = None
        with self.bolt.processing(tuple, catch=self._catch) as collector:
            made = self._function(collector, *args, **kwargs)
            check_done(made, asynchronous=False)
            result = made
        return result  # noqa: RET504 - the block may swallow an exception, and this is reached then


def _check_tuple(value: Any) -> None:
    if not isinstance(value, Tuple):
        raise TupleError(f"expected an acker.Tuple (Tuple.parse makes one of its text), got {shown(value)}")
