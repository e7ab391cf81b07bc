"""Finding a record among all topologies of a store, some topologies at a time.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from acker.inspect.trees import find_record
from acker.inspect.trees.find_record import FoundState
from acker.inspect.trees.tree_state import tree_state
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Id, Name
from acker.store.operation import Operation

PAGE = 20
"""Most topologies in a page."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A topology that knows a record, or may know it."""

    topology: Name
    anchor: Annotated[Id | None, "The anchor that was asked for; null if the topology has no such tree."]
    state: Annotated[FoundState | None, "Of that tree."]
    attempts: Annotated[Count, "Trees of the message id."]
    dead_letters: Annotated[Count, "Dead letters of the message id."]
    more: Annotated[bool, "True if a part of the topology was searched, and it may have more."]

    @property
    def known(self) -> bool:
        """True if something was found."""
        return self.anchor is not None or self.attempts + self.dead_letters > 0


@dataclass(frozen=True, slots=True)
class Unsearched:
    """A topology that could not be searched."""

    topology: Name
    reason: Annotated[str, "In words: one line."]


@dataclass(frozen=True, slots=True)
class FoundEverywhere:
    """A page of the search for a record among all topologies, in the order of their names."""

    topologies: Annotated[tuple[Hit, ...], "The topologies that know the record."]
    unfinished: Annotated[
        tuple[Name, ...], "Topologies that were searched in part, without a find: search each of them alone."
    ]
    unreadable: Annotated[tuple[Unsearched, ...], "They could not be searched."]
    looked: Annotated[Count, "How many topologies this page and the pages before have looked at."]
    of: Annotated[Count, "How many there are."]
    cursor: Annotated[Name | None, "Of the next page; null where all topologies were asked."]


def look(core: Core, message_id: bytes | None, anchor: int | None) -> Operation[Hit]:
    """Looks for a record in one topology, in a bounded piece of it (`find_record.find`). Changes nothing.

    Args:
        core: The topology.
        message_id: The spout's name for the record; None looks for the anchor alone.
        anchor: An anchor of one of its trees; None looks for the message id alone.

    Raises:
        ValidationError: For a message id of more than 1 KiB, or no anchor.
    """
    tree = None if anchor is None else (yield from tree_state(core, anchor))
    state: FoundState | None = None
    if tree is not None:
        state = "finished" if tree.outcome is None else tree.outcome.status
        if tree.outcome is None and tree.tree is not None and tree.tree.state != "finished":
            state = "pending"
    attempts = letters = 0
    more = False
    if message_id is not None:
        answer = yield from find_record.find(core, message_id)
        records = answer.records
        attempts = sum(len(record.attempts) for record in records)
        letters = sum(len(record.letters) for record in records)
        more = answer.cursor is not None
    return Hit(core.config.name, None if tree is None else anchor, state, attempts, letters, more)


def page(names: Sequence[str], cursor: str | None) -> tuple[list[str], int]:
    """The topologies that the page after `cursor` asks, and how many come after them."""
    left = [name for name in names if name > (cursor or "")]
    return left[:PAGE], len(left[PAGE:])


def summed(
    hits: Sequence[Hit], failed: Sequence[Unsearched], names: Sequence[str], asked: Sequence[str], left: int
) -> FoundEverywhere:
    """The page with these answers.

    Args:
        hits: The answers of topologies.
        failed: Topologies that could not be searched.
        names: All topologies.
        asked: The topologies of the page.
        left: The number of topologies after the page.
    """
    return FoundEverywhere(
        tuple(hit for hit in hits if hit.known),
        tuple(hit.topology for hit in hits if hit.more and not hit.known),
        tuple(failed),
        len(names) - left,
        len(names),
        asked[-1] if left else None,
    )


def add_up(pages: Sequence[FoundEverywhere]) -> FoundEverywhere:
    """Several pages, each with the cursor of the page before, as one."""
    last = pages[-1]
    return FoundEverywhere(
        tuple(hit for one in pages for hit in one.topologies),
        tuple(name for one in pages for name in one.unfinished),
        tuple(unreadable for one in pages for unreadable in one.unreadable),
        last.looked,
        last.of,
        last.cursor,
    )
