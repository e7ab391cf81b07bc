"""Tuples: records on their way, each with its own id in every tree that it belongs to.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a delta is the XOR of the
ids that a call adds to a tree.
"""

import os
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeAlias, overload

import numpy as np

from acker.errors import AckerError, TupleError, ValidationError, shown
from acker.ledger import ids
from acker.ledger.ids import Ids

MAX_ROOTS = 4096
"""Most trees of one tuple."""
MAX_TARGETS = 65_536
"""Most tuples of one emit."""

Owner: TypeAlias = tuple[str, str]
"""The topology of tuples: URL of the store and name."""
MOST_ACKED = 100_000
"""Most remembered acks: a topology's collectors apply none of these twice."""
Edge: TypeAlias = tuple[int, int]
_all: "weakref.WeakSet[Taken]" = weakref.WeakSet()
ending = threading.RLock()
"""Guards the end of each tuple, and its children: bolts and external streams of several objects of a topology
may share a tuple. It is the last lock that a call takes."""
os.register_at_fork(before=ending.acquire, after_in_parent=ending.release, after_in_child=ending.release)

_SHAPE = "(anchor, tuple id) pairs, or a mapping of them"
_ID = "-?(?:0|[1-9][0-9]{0,18})"
_EDGE = re.compile(f"({_ID}):({_ID})")
_LONGEST = MAX_ROOTS * 42


is_ending: Callable[[], bool] = ending._is_owned  # type: ignore[attr-defined]
"""True if the caller's thread is in the middle of a call that ends a tuple."""


def check_targets(targets: object) -> int:
    """Returns `targets` if it is a whole number from 0 to `MAX_TARGETS`; raises ValidationError if not."""
    if not isinstance(targets, int) or isinstance(targets, bool) or not 0 <= targets <= MAX_TARGETS:
        raise ValidationError(
            f"targets: expected a whole number from 0 to {MAX_TARGETS:,}, got {shown(targets)}"
        )
    return targets


def listed(values: Any, expected: str, kind: type[AckerError] = TupleError) -> list[Any]:
    """Lists the values of an argument. expected: the meaning of the argument, for the error of `kind`."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise kind(f"expected {expected}, got {shown(values)}")
    return list(values)


class Tuple:
    """A record on its way: a random non-zero id in each tree (root) that it belongs to.

    The edges never change; two tuples are equal if their edges are equal, in order. A tuple also has its
    state in this process: its emitted children, which its ack registers (Storm's TupleImpl.updateAckVal), and
    a mark of its ack or fail. Text and pickles carry only the edges.

    Args:
        edges: (anchor, id) pairs or a mapping; without any the tuple is untracked.

    Raises:
        TupleError: The edges are malformed, or are more than 4,096.
    """

    __slots__ = ("_edges", "_owner", "children", "ended")

    _edges: dict[int, int]
    _owner: Owner | None
    children: dict[int, int]
    """For each tree with children, the XOR of their ids. The dict is replaced, and never changed."""
    ended: str
    """acked or failed; empty while the tuple is open."""

    def __init__(self, edges: Mapping[int, int] | Iterable[tuple[int, int]] = ()) -> None:
        pairs = listed(edges.items() if isinstance(edges, Mapping) else edges, _SHAPE)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise TupleError(f"expected {_SHAPE}, got {shown(pairs)}")
        try:
            checked = {ids.check_id(anchor, "anchor"): ids.check_id(own, "tuple id") for anchor, own in pairs}
        except ValidationError as error:
            raise TupleError(str(error)) from None
        if len(checked) != len(pairs):
            raise TupleError(f"a tuple has one id in each tree, got an anchor twice: {shown(pairs)}")
        if len(checked) > MAX_ROOTS:
            raise TupleError(f"a tuple belongs to at most {MAX_ROOTS:,} trees, got {len(checked):,}")
        if 0 in checked.values():
            raise TupleError(f"a tuple id is not zero: {shown(pairs)}")
        self._edges, self.children, self.ended, self._owner = checked, {}, "", None

    @classmethod
    def from_edges(cls, owner: Owner, edges: dict[int, int]) -> Self:
        """A new tuple.

        Args:
            owner: Its topology.
            edges: Valid edges.
        """
        made = cls.__new__(cls)
        made._edges, made.children, made.ended, made._owner = edges, {}, "", owner
        return made

    @classmethod
    def parse(cls, text: str) -> Self:
        """The tuple that prints as `text`; an untracked tuple prints as the empty string.

        A queue may deliver it again to the same process, where `Bolt.ack` applies it once. If two processes
        ack it, it is pending again, and its tree expires.

        Args:
            text: The result of `str` of a tuple.

        Raises:
            TupleError: The text is not the text of a tuple.
        """
        if not isinstance(text, str):
            raise TupleError(f"expected text like 'anchor:tuple', got {shown(text)}")
        if len(text) > _LONGEST:
            raise TupleError(f"expected at most {_LONGEST:,} characters, got {len(text):,}: {shown(text)}...")
        pairs = []
        for part in text.split(",") if text else ():
            match = _EDGE.fullmatch(part)
            if match is None or "-0" in (match[1], match[2]):
                raise TupleError(
                    f"expected anchor:tuple[,anchor:tuple] in signed decimals, got {shown(text)}"
                )
            pairs.append((int(match[1]), int(match[2])))
        return cls(pairs)

    @property
    def anchors(self) -> tuple[int, ...]:
        """The tuple's trees, in order; empty if it is untracked."""
        return tuple(self._edges)

    @property
    def edges(self) -> Mapping[int, int]:
        """Anchor -> the tuple's own id in that tree."""
        return MappingProxyType(self._edges)

    def check_open(self, owner: Owner, doing: str) -> None:
        """Checks that the tuple is open, and does not belong to another topology.

        Args:
            owner: The topology.
            doing: The action of the caller, for the message, such as "acked".

        Raises:
            TupleError: The tuple belongs to another topology, or was acked or failed before.
        """
        self.check_owner(owner, doing)
        if self.ended:
            raise TupleError(f"tuple {shown(str(self))} was {self.ended} before: it cannot be {doing}")

    def check_owner(self, owner: Owner, doing: str) -> None:
        """Checks that the tuple is not known to belong to another topology.

        Args:
            owner: The topology.
            doing: The caller's deed, for the message, such as "acked".

        Raises:
            TupleError: The tuple belongs to another topology.
        """
        if self._owner is not None and self._owner != owner:
            raise TupleError(
                f"tuple {shown(str(self))} is of topology {self._owner[1]!r}: it cannot be {doing} "
                f"in {owner[1]!r} of another store or name"
            )

    @property
    def first_edge(self) -> tuple[int, int] | None:
        """Anchor and id in the first of its trees, unique to the tuple; None if it is untracked."""
        return next(iter(self._edges.items()), None)

    @property
    def travelled(self) -> bool:
        """True if it came as text or by a pickle: the same tuple may come again, as another object."""
        return self._owner is None

    def deltas(self) -> dict[int, int]:
        """The deltas of an ack: own id XOR children."""
        children = self.children
        return {anchor: own ^ children.get(anchor, 0) for anchor, own in self._edges.items()}

    def __str__(self) -> str:
        return ",".join(f"{anchor}:{own}" for anchor, own in self._edges.items())

    def __repr__(self) -> str:
        return f"Tuple.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tuple):
            return NotImplemented
        return tuple(self._edges.items()) == tuple(other._edges.items())

    def __hash__(self) -> int:
        return hash(tuple(self._edges.items()))

    def __reduce__(self) -> tuple[type, tuple[tuple[tuple[int, int], ...]]]:
        return type(self), (tuple(self._edges.items()),)


def add_children(parents: Sequence[Tuple], owner: Owner, targets: int) -> list[Tuple]:
    """New tuples, with an edge from each parent in each of its trees; the parent adds it to its children.

    A child with two parents in one tree has the XOR of both edges as its id there (Storm's putXor).
    """
    parents = list({id(parent): parent for parent in parents}.values())
    noted = [dict(parent.children) for parent in parents]
    tuples = []
    for _ in range(targets):
        edges: dict[int, int] = {}
        for parent, children in zip(parents, noted, strict=True):
            for anchor in parent._edges:
                edge = ids.new_id()
                children[anchor] = children.get(anchor, 0) ^ edge
                edges[anchor] = edges.get(anchor, 0) ^ edge
        tuples.append(Tuple.from_edges(owner, edges))
    # All at once: an interrupt comes before or after, because no line of Python runs in between.
    any(map(setattr, parents, repeat("children"), noted))
    return tuples


class Taken:
    """The tuples that came as text, and that a topology object has acked, or holds until a flush.

    The same tuple may come again, as another object, and a process may open a topology more than once. A
    tuple that one of these objects is to ack together with rows of external streams is held until their
    flush: no other object may ack or stamp it before.

    Attributes:
        acked: The first edges of acked tuples, the oldest first.
        held: The first edges of held tuples, and the names of the commits that will ack them.
    """

    def __init__(self) -> None:
        self.acked: OrderedDict[Edge, None] = OrderedDict()
        self.held: dict[Edge, str] = {}
        self.owner: Owner | None = None
        with ending:
            _all.add(self)

    def __contains__(self, edge: Edge | None) -> bool:
        return edge in self.acked or edge in self.held

    def note(self, edges: Iterable[Edge]) -> None:
        """Remembers acks; the oldest are forgotten."""
        with ending:
            self.acked.update(dict.fromkeys(edges))
            while len(self.acked) > MOST_ACKED:
                self.acked.popitem(last=False)

    def hold(self, tuple: Tuple, owner: Owner, commit: str) -> None:  # noqa: A002 - this project's word
        """Holds a tuple for a commit. Raises TupleError if another object of its topology holds it."""
        edge = tuple.first_edge
        if edge is None or not tuple.travelled:
            return
        with ending:
            self.owner = owner
            if any(other.owner == owner and edge in other.held for other in _all if other is not self):
                raise TupleError(
                    f"tuple {shown(str(tuple))}: rows of it were stamped by another object of the topology: "
                    "it cannot be stamped here before that object is flushed"
                )
            self.held.setdefault(edge, commit)

    def release(self, edge: Edge | None, commit: str) -> None:
        """Holds a tuple no longer for a commit."""
        with ending:
            if edge is not None and self.held.get(edge) == commit:
                del self.held[edge]

    def sent(self, commit: str) -> None:
        """Holds the tuples of a commit no longer: it has acked them."""
        with ending:
            for edge in [edge for edge, name in self.held.items() if name == commit]:
                del self.held[edge]


class AckBuffer(Protocol):
    """A buffer of acks, as a vector sees it (acker/collectors/outbox.py)."""

    def ack_vector(self, step: str, anchors: Ids, deltas: Ids) -> None:
        """Buffers a step's acks of tuples with one tree each."""


class TupleVector(Sequence[Tuple]):
    """Tuples of new records, with one tree each. Not for several threads.

    A tuple is made when it is asked for, and is the same object from then on. `Bolt.ack_many` acks all of
    them that are still open, without making any.

    Args:
        owner: Their topology.
        anchors: Their trees, in order; 0 for an untracked tuple.
        edges: The tuple's own id in each.
    """

    __slots__ = ("_anchors", "_edges", "_ended", "_owner", "_tuples")

    def __init__(self, owner: Owner, anchors: Ids, edges: Ids) -> None:
        self._owner, self._anchors, self._edges = owner, anchors, edges
        self._tuples: dict[int, Tuple] = {}
        self._ended = ""

    def __len__(self) -> int:
        return len(self._anchors)

    @overload
    def __getitem__(self, place: int) -> Tuple: ...

    @overload
    def __getitem__(self, place: slice) -> list[Tuple]: ...

    def __getitem__(self, place: int | slice) -> Tuple | list[Tuple]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        tuple_ = self._tuples.get(place)
        if tuple_ is None:
            anchor = int(self._anchors[place])
            tuple_ = Tuple.from_edges(self._owner, {anchor: int(self._edges[place])} if anchor else {})
            tuple_.ended = self._ended
            self._tuples[place] = tuple_
        return tuple_

    def __iter__(self) -> Iterator[Tuple]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self):,} tuples of {self._owner[1]!r}>"

    @property
    def owner(self) -> Owner:
        """The topology of the tuples."""
        return self._owner

    def ack(self, outbox: AckBuffer, step: str) -> None:
        """Buffers a step's acks of the open tuples; with the outbox's lock.

        After an interrupt the tuples are acked, or their trees expire.
        """
        if self._ended:
            return
        still = [(place, tuple_) for place, tuple_ in self._tuples.items() if not tuple_.ended]
        anchors, deltas = self._anchors, self._edges
        if self._tuples:
            deltas = deltas.copy()
            for place, tuple_ in still:
                for delta in tuple_.deltas().values():
                    deltas[place] = delta
            ended = [place for place, tuple_ in self._tuples.items() if tuple_.ended]
            anchors, deltas = np.delete(anchors, ended), np.delete(deltas, ended)
        tracked = anchors != 0
        if not tracked.all():
            anchors, deltas = anchors[tracked], deltas[tracked]
        any(map(setattr, [tuple_ for _, tuple_ in still], repeat("ended"), repeat("acked")))
        self._ended = "acked"
        if len(anchors):
            outbox.ack_vector(step, anchors, deltas)
