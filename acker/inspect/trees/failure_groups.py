"""Failed and expired trees by cause: their numbers, and the first and the last of each cause.

Dead letters are grouped in the same way (`acker.streams.dead_letters.pages`).

Terms: a tree is all that comes of one record.
"""

from dataclasses import dataclass
from typing import Annotated

from acker.inspect.trees import failures
from acker.inspect.trees.failure import Ended, Failure
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Cursor
from acker.ledger.slabs import masked
from acker.store.operation import Operation
from acker.streams.dead_letters import pages
from acker.streams.dead_letters.pages import Group

LOOK = 10_000
"""Trees after which a page of groups ends, about."""


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """Groups of the latest failed and expired trees, largest first. The next page is to be added to it."""

    groups: tuple[Group, ...]
    trees: Annotated[Count, "Trees in all of these groups: the share of a group is its count of them."]
    cursor: Cursor


def groups(
    core: Core,
    *,
    status: Ended | None = None,
    spout: str | None = None,
    step: str | None = None,
    reason: str = "",
    cause: str | None = None,
    cursor: str | None = None,
) -> Operation[FailureGroups]:
    """Counts the latest failed and expired trees by cause, step and status: a page of 10,000 trees.

    The step of an expired tree is the one that had its rows. `acker.inspect.trees.failures.page` tells of the
    filters. Raises ValidationError, also for a cursor of another call.
    """
    parts: list[Group] = []
    looked, calls = 0, 0
    while looked < LOOK and calls < LOOK // failures.PAGE:
        read = yield from failures.page(
            core, status=status, spout=spout, step=step, reason=reason, cause=cause, limit=failures.PAGE,
            cursor=cursor,
        )  # fmt: skip
        parts += map(_alone, read.trees)
        looked, calls, cursor = looked + read.looked, calls + 1, read.cursor
        if cursor is None:
            break
    return FailureGroups(pages.summed(parts), len(parts), cursor)


def add_up(read: "list[FailureGroups]") -> FailureGroups:
    """The groups of several pages as one page."""
    summed = pages.summed(group for page in read for group in page.groups)
    return FailureGroups(summed, sum(page.trees for page in read), read[-1].cursor)


def _alone(tree: Failure) -> Group:
    reason, step = tree.cause.reason, tree.cause.step
    return Group(masked.cause(reason), step, tree.status, 1, tree.at, tree.at, reason)
