"""The state of a tree: in flight, or recently finished, with its outcome.

Terms: a tree is all that comes of one record.
"""

from dataclasses import dataclass
from typing import Annotated

from acker.inspect.trees import clocks, failures
from acker.inspect.trees.failure import ACKED, Failure, TreeOutcome
from acker.ledger.calls.core import Core
from acker.ledger.fields import Id, MessageId, Name
from acker.ledger.trees.trees import Tree
from acker.store.operation import Operation


@dataclass(frozen=True, slots=True)
class TreeState:
    """A tree, in flight or recently finished."""

    anchor: Id
    tree: Annotated[Tree | None, "null once its outcome is confirmed."]
    outcome: Annotated[
        TreeOutcome | None, "null while it is in flight, and where its outcome is not kept any more."
    ]
    spout: Name | None
    message_id: MessageId


def tree_state(core: Core, anchor: int) -> Operation[TreeState | None]:
    """Returns the state of a tree; None if the ledger does not have it. Raises ValidationError."""
    tree = yield from clocks.tree(core, anchor)
    if tree is None:
        failed = yield from failures.find(core, anchor)
        if failed is None:
            return None
        return TreeState(anchor, None, failed.outcome, failed.spout, failed.message_id)
    ended = yield from failures.how_ended(core, tree)
    outcome = ended.outcome if isinstance(ended, Failure) else ended and ACKED
    return TreeState(anchor, tree, outcome, tree.spout, tree.message_id)
