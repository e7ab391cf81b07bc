"""Bolts: steps that take tuples, emit tuples anchored to them, and ack or fail them.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

from acker.collectors.session import Session
from acker.collectors.tuples import MAX_ROOTS, Tuple, TupleVector, add_children, check_targets, ending, listed
from acker.errors import FailedException, PermanentFailure, TupleError, ValidationError, shown
from acker.ledger.settings import config
from acker.ledger.slabs import causes
from acker.ledger.user_functions.undone import check_done

P = ParamSpec("P")
R = TypeVar("R")
Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]


class Bolt:
    """A step on tuples (Storm's IBolt and OutputCollector), for any thread. Made by `Topology.bolt`.

    Its messages are buffered, and sent within the topology's linger or by `Topology.flush`. As in Storm, the
    children of a tuple are registered with its ack, in one message, so a tree never looks complete in
    between.

    Raises:
        StoreUnavailable: By every method: the buffer is full and cannot be sent; nothing has changed.
        StoreError: The same.
        BufferFull: By every method: the buffer is full and the topology's `linger` is None; nothing has
            changed.
    """

    def __init__(self, topology: Session, name: str) -> None:
        self.topology = topology
        self.name = config.check_name(name, "bolt")

    @property
    def repeated(self) -> int:
        """Number of tuples that the bolts of this topology object acked again, which changed nothing."""
        return self.topology.outbox.repeated

    def __repr__(self) -> str:
        return f"Bolt({self.name!r} of {self.topology.name!r})"

    def emit(self, anchors: Tuple | Iterable[Tuple] = (), targets: int = 1) -> list[Tuple]:
        """Emits a record anchored to tuples: one tuple, with edges of its own, for each target.

        Args:
            anchors: Tuples whose trees the record becomes part of, repetitions allowed. Without anchors the
                record is untracked.
            targets: Number of targets, 0 to 65,536.

        Returns:
            One tuple for each target.

        Raises:
            TupleError: An anchor is no tuple of this topology, or was acked or failed before, or the new
                tuples would belong to more than 4,096 trees.

        Examples:
            >>> [line] = spout.emit("line-1")
            >>> words = bolt.emit(line, targets=3)
            >>> bolt.ack(line)  # registers its words, too
            >>> for word in words:
            ...     bolt.ack(word)
            >>> [outcome.status for outcome in spout.outcomes(timeout=5.0)]
            ['acked']
        """
        check_targets(targets)
        self.topology.outbox.check_whole()
        given = [anchors] if isinstance(anchors, Tuple) else listed(anchors, "an acker.Tuple, or several")
        for anchor in given:
            _check_tuple(anchor)
        if len({root for anchor in given for root in anchor.edges}) > MAX_ROOTS:
            raise TupleError(f"a tuple belongs to at most {MAX_ROOTS:,} trees")
        owner = self.topology.owner
        with self.topology.outbox.lock, ending:
            for anchor in given:
                anchor.check_open(owner, "an anchor")
                self.topology.outbox.holding.take(anchor, self.name)
            children = add_children(given, owner, targets)
            if children and children[0].edges:
                self.topology.outbox.count_emitted(targets)
        return children

    def ack(self, tuple: Tuple) -> None:  # noqa: A002 - Storm's name, and this project's word
        """Acks a tuple: it is done, and its children are registered. Untracked tuples change nothing.

        A queue may deliver a tuple twice, as text or by a pickle. If this process acked it before as another
        object, the second ack registers only the children, and `repeated` counts it; the process remembers
        its last 100,000 acks. A second ack by another process undoes the first, so that the tree expires. So
        a queue must deliver a tuple again to the same process, as by partitions.

        Raises:
            TupleError: The tuple is no tuple of this topology, or was acked or failed before.

        Examples:
            >>> [order] = spout.emit("order-1")
            >>> bolt.ack(order)
            >>> order.ended
            'acked'
        """
        _check_tuple(tuple)
        self.topology.outbox.make_room()
        with self.topology.outbox.lock, ending:
            tuple.check_open(self.topology.owner, "acked")
            self.topology.outbox.ack(tuple, self.name)

    def ack_many(self, tuples: Iterable[Tuple]) -> None:
        """Acks all tuples that are still open: what was acked or failed before stays as it is.

        A `TupleVector`, as `KafkaBatch.tuples` is, costs hardly more than one tuple.

        Args:
            tuples: The tuples.

        Raises:
            TupleError: One is no tuple of this topology; those before it are acked.

        Examples:
            >>> orders = [spout.emit(f"order-{number}")[0] for number in range(3)]
            >>> bolt.fail(orders[0], "no such sku")
            >>> bolt.ack_many(orders)
            >>> [order.ended for order in orders]
            ['failed', 'acked', 'acked']
        """
        outbox, owner = self.topology.outbox, self.topology.owner
        if not isinstance(tuples, TupleVector):
            for tuple_ in listed(tuples, "several acker.Tuples"):
                _check_tuple(tuple_)
                if not tuple_.ended:
                    self.ack(tuple_)
            return
        if tuples.owner != owner:
            raise TupleError(f"tuples of topology {tuples.owner[1]!r} cannot be acked in {owner[1]!r}")
        outbox.make_room()
        with outbox.lock, ending:
            tuples.ack(outbox, self.name)

    def fail(self, tuple: Tuple, reason: str = "", *, retry: bool = True) -> None:  # noqa: A002 - as above
        """Fails all trees of a tuple, at once and finally. Its children are void.

        Args:
            tuple: The tuple.
            reason: Text for the outcome, at most 1 KiB.
            retry: False if another attempt is of no use, as the outcome then says (`Outcome.retry`).

        Raises:
            ValidationError: The reason is no str of at most 1 KiB.
            TupleError: As by `ack`.

        Examples:
            >>> [order] = spout.emit("order-1")
            >>> bolt.fail(order, "no such sku", retry=False)
            >>> [(outcome.reason, outcome.retry) for outcome in spout.outcomes(timeout=5.0)]
            [('no such sku', False)]
        """
        _check_tuple(tuple)
        encoded = causes.checked(reason, self.name, retry=retry)
        self.topology.outbox.make_room()
        with self.topology._failing(tuple):
            tuple.check_open(self.topology.owner, "failed")
            self.topology.outbox.fail(tuple, self.name, encoded)

    def reset_timeout(self, tuple: Tuple) -> None:  # noqa: A002 - as above
        """Gives the trees of a tuple, and all other trees of their slabs, the whole message timeout again.

        Storm's OutputCollector.resetTimeout.

        Raises:
            TupleError: As by `ack`.
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

        The collector's records are anchored to the tuple. Any Exception fails the tuple, with the exception's
        text as reason; PermanentFailure fails it for good. FailedException and the types of `catch` end in
        the block, other exceptions are raised further. A BaseException such as KeyboardInterrupt leaves the
        tuple to its timeout.

        Args:
            tuple: The tuple.
            catch: Types of exceptions that end in the block.
        """
        _check_tuple(tuple)
        self.topology.outbox.check_whole()
        with self.topology.outbox.lock:
            tuple.check_open(self.topology.owner, "processed")
            self.topology.outbox.holding.take(tuple, self.name)
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
    """The collector of a basic bolt, while it processes `tuple` (Storm's BasicOutputCollector)."""

    __slots__ = ("_bolt", "tuple")

    def __init__(self, bolt: Bolt, tuple: Tuple) -> None:  # noqa: A002 - as above
        self._bolt = bolt
        self.tuple = tuple

    def emit(self, targets: int = 1, *, also: Iterable[Tuple] = ()) -> list[Tuple]:
        """Emits a record anchored to the current tuple, and to the tuples `also`: see `Bolt.emit`."""
        return self._bolt.emit([self.tuple, *listed(also, "several acker.Tuples")], targets)

    def reset_timeout(self) -> None:
        """Gives the trees of the current tuple the whole message timeout again: see `Bolt.reset_timeout`."""
        self._bolt.reset_timeout(self.tuple)


class BasicBolt(Generic[P, R]):
    """A function that is called as `bolt(tuple, *args)` and runs as `function(collector, *args)`.

    The tuple is acked when the function returns, and failed when it raises, as `Bolt.processing` says. It
    fails for good if the function returns unfinished work: a coroutine, a Future, a generator. The call
    returns the function's result, or None after a FailedException or an exception of `catch`.
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
