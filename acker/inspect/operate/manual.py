"""Operations on trees by hand, only for trees that the ledger has.

A message of a program may come before its tree is tracked, and waits for it. A mistyped anchor, or a tree
that has just expired, would become a ghost that waits for nothing.

Terms: an anchor is the number of a tree; a slab is the trees that one call tracked together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from acker.ledger.calls import idempotence, traces
from acker.ledger.calls.core import Core
from acker.ledger.fields import Id, Whole
from acker.ledger.ids import as_ids
from acker.ledger.slabs import causes
from acker.ledger.trees.trees import trees_at
from acker.store.operation import Operation


@dataclass(frozen=True, slots=True)
class FailedByHand:
    """The trees that were to be failed, by their result."""

    failed: Annotated[Whole, "Failed now."] = 0
    late: Annotated[Whole, "Were finished before."] = 0
    waiting: Annotated[
        Whole, "Known by messages that came before their track: they will fail when it comes."
    ] = 0
    unknown: Annotated[tuple[Id, ...], "Name no tree, or none any more: nothing was done."] = ()

    def text(self) -> str:
        """The result in words."""
        parts = [f"{self.failed:,} failed"]
        if self.late:
            parts.append(f"{self.late:,} were finished before")
        if self.waiting:
            parts.append(f"{self.waiting:,} will fail when they are tracked")
        if self.unknown:
            parts.append(f"{len(self.unknown):,} unknown")
        return ", ".join(parts)


def fail(core: Core, anchors: Sequence[int], reason: str, *, retry: bool = True) -> Operation[FailedByHand]:
    """Fails those trees that are known, final and at once; an anchor that is named twice counts once.

    reason: at most 1 KiB. retry=False: for good. Raises ValidationError.
    """
    encoded = causes.checked(reason, retry=retry)
    wanted = sorted(set(anchors))
    tracked = {tree.anchor for tree in (yield from trees_at(core, wanted))}
    unknown = tuple(anchor for anchor in wanted if anchor not in tracked)
    if not tracked:
        return FailedByHand(unknown=unknown)
    done = yield from idempotence.send(core, core.fail(as_ids(sorted(tracked), "anchors"), encoded))
    return FailedByHand(
        done.failed, done.late, len(tracked) - done.failed - done.late - done.orphaned, unknown
    )


def reset_timeout(core: Core, anchors: Sequence[int]) -> Operation[int]:
    """Gives trees, and all others of their slabs, the whole message timeout again; how many slabs.

    Raises ValidationError.
    """
    wanted_ids = as_ids(sorted(set(anchors)), "anchors")
    if not core.config.ackers:
        return 0
    slabs = yield from idempotence.send(core, (yield from core.resetting(wanted_ids)))
    if slabs:
        yield from traces.note(core, traces.resets(core, wanted_ids))
    return slabs
