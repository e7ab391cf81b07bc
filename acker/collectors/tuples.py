"""Tuples: records on their way, each with an id of its own in every tree that it belongs to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Self, TypeAlias

from acker.errors import TupleError, ValidationError, shown
from acker.ledger import ids

MAX_ROOTS = 4096
"""Most trees that one tuple belongs to."""
MAX_TARGETS = 65_536
"""Most tuples that one emit makes."""

Owner: TypeAlias = tuple[str, str]
"""Whose tuples they are: URL of the store and name of the topology."""

_ID = "-?(?:0|[1-9][0-9]{0,18})"
_EDGE = re.compile(f"({_ID}):({_ID})")
_LONGEST = MAX_ROOTS * 42


def check_targets(targets: object) -> int:
    """`targets`, if it is a whole number from 0 to `MAX_TARGETS`; else ValidationError."""
    if not isinstance(targets, int) or isinstance(targets, bool) or not 0 <= targets <= MAX_TARGETS:
        raise ValidationError(
            f"targets: expected a whole number from 0 to {MAX_TARGETS:,}, got {shown(targets)}"
        )
    return targets


class Tuple:
    """A record on its way: for each tree that it belongs to (root), a random non-zero id there.

    `edges` are (anchor, id) pairs or a mapping; none make an untracked tuple. The value never changes; two
    tuples are equal when their edges are, in order. Beside its value a tuple knows what has become of it in
    this process: the children emitted from it that are to be registered with its ack (Storm's
    TupleImpl.updateAckVal), and whether it was acked or failed. Text and pickles carry the value only.
    Raises TupleError.
    """

    __slots__ = ("_edges", "_owner", "children", "ended")

    _edges: dict[int, int]
    _owner: Owner | None
    children: dict[int, int]
    """For each tree with children, the XOR of their ids. Never changed, but replaced."""
    ended: str
    """acked or failed; empty while the tuple is open."""

    def __init__(self, edges: Mapping[int, int] | Iterable[tuple[int, int]] = ()) -> None:
        pairs = list(edges.items() if isinstance(edges, Mapping) else edges)
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
    def of(cls, owner: Owner, edges: dict[int, int]) -> Self:
        """A tuple just emitted, from edges known to be good."""
        made = cls.__new__(cls)
        made._edges, made.children, made.ended, made._owner = edges, {}, "", owner
        return made

    @classmethod
    def parse(cls, text: str) -> Self:
        """The tuple that prints as `text`; an untracked one prints as the empty string.

        A queue may deliver it again to the same process, where `Bolt.ack` takes it once. Where two processes
        ack it, it is pending again, and its tree expires.

        Raises TupleError for anything that `str` of a tuple does not give.
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
        """The trees that the tuple belongs to, in order; none where it is untracked."""
        return tuple(self._edges)

    @property
    def edges(self) -> Mapping[int, int]:
        """Anchor -> the tuple's own id in that tree."""
        return MappingProxyType(self._edges)

    def check_open(self, owner: Owner, doing: str) -> None:
        """Raises TupleError where the tuple is another topology's, or was acked or failed already."""
        self.check_owner(owner, doing)
        if self.ended:
            raise TupleError(f"tuple {shown(str(self))} was {self.ended} before: it cannot be {doing}")

    def check_owner(self, owner: Owner, doing: str) -> None:
        """Raises TupleError where the tuple is known to be another topology's."""
        if self._owner is not None and self._owner != owner:
            raise TupleError(
                f"tuple {shown(str(self))} is of topology {self._owner[1]!r}: it cannot be {doing} "
                f"in {owner[1]!r} of another store or name"
            )

    @property
    def first_edge(self) -> tuple[int, int] | None:
        """Anchor and own id in the first of its trees, as no other tuple has; None where it is untracked."""
        return next(iter(self._edges.items()), None)

    @property
    def travelled(self) -> bool:
        """Whether it came as text, or by a pickle: the same may come again, as another object."""
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
    """New tuples, with an edge from each parent in each of its trees, which the parent notes in its children.

    A child with two parents in one tree has the XOR of both edges as its id there (Storm's putXor).
    """
    parents = list({id(parent): parent for parent in parents}.values())
    noted = [dict(parent.children) for parent in parents]
    made = []
    for _ in range(targets):
        edges: dict[int, int] = {}
        for parent, children in zip(parents, noted, strict=True):
            for anchor in parent._edges:
                edge = ids.new_id()
                children[anchor] = children.get(anchor, 0) ^ edge
                edges[anchor] = edges.get(anchor, 0) ^ edge
        made.append(Tuple.of(owner, edges))
    # All at once: an interrupt comes before or after, for no line of Python runs in between.
    any(map(setattr, parents, repeat("children"), noted))
    return made
