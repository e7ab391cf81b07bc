"""What people do to trees by hand. It touches trees that the ledger knows only.

A message of a program may come before its tree is tracked, and waits for it. An anchor that a person has
mistyped, or a tree that has just expired, would be a ghost that waits for nothing.
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
    """The trees that were to be failed, by what became of them."""

    failed: Annotated[Whole, "Failed now."] = 0
    late: Annotated[Whole, "Were finished before."] = 0
    waiting: Annotated[
        Whole, "Known by messages that came before their track: they will fail when it comes."
    ] = 0
    unknown: Annotated[tuple[Id, ...], "Name no tree, or none any more: nothing was done."] = ()


def fail(core: Core, anchors: Sequence[int], reason: str, *, retry: bool = True) -> Operation[FailedByHand]:
    """Fails those trees that are known, final and at once; an anchor that is named twice counts once.

    reason: at most 1 KiB. retry=False: for good. Raises ValidationError.
    """
    encoded = causes.checked(reason, retry=retry)
    wanted = sorted(set(anchors))
    known = {tree.anchor for tree in (yield from trees_at(core, wanted))}
    unknown = tuple(anchor for anchor in wanted if anchor not in known)
    if not known:
        return FailedByHand(unknown=unknown)
    done = yield from idempotence.send(core, core.fail(as_ids(sorted(known), "anchors"), encoded))
    return FailedByHand(done.failed, done.late, len(known) - done.failed - done.late - done.orphaned, unknown)


def reset_timeout(core: Core, anchors: Sequence[int]) -> Operation[int]:
    """Gives trees, and all others of their slabs, the whole message timeout again; how many slabs.

    Raises ValidationError.
    """
    found = as_ids(sorted(set(anchors)), "anchors")
    if not core.config.ackers:
        return 0
    slabs = yield from idempotence.send(core, (yield from core.resetting(found)))
    if slabs:
        yield from traces.note(core, traces.resets(core, found))
    return slabs
