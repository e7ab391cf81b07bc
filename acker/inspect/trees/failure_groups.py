"""Failed and expired trees by cause: their numbers, and the first and the last of each cause.

Dead letters are grouped in the same way (`acker.streams.dead_letters.pages`).

Terms: a tree is all that comes of one record.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from acker.inspect.trees import failures
from acker.inspect.trees.failure import Ended, Failure
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Cursor, Instant
from acker.ledger.slabs import masked
from acker.store import keys
from acker.store.operation import Operation, Request
from acker.store.replies import milliseconds
from acker.streams.dead_letters import pages
from acker.streams.dead_letters.pages import Group

LOOK = 10_000
"""Trees after which a page of groups ends, about."""


SLICES = 12
SLICE_SECONDS = 300
"""The slices of time in which the latest failures are counted: an hour."""
_Key = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class FailureGroup(Group):
    """Failed or expired trees that have cause, step and status in common."""

    lately: Annotated[
        tuple[Count, ...],
        "Of these, how many in each five minutes of the hour up to `lately_until`, the latest last.",
    ]


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """Groups of the latest failed and expired trees, largest first. The next page is to be added to it."""

    groups: tuple[FailureGroup, ...]
    lately_until: Annotated[Instant, "By the store's clock."]
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
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    last = milliseconds(instant) // 1000 // SLICE_SECONDS
    parts: list[Group] = []
    lately: dict[_Key, list[int]] = {}
    looked, calls = 0, 0
    while looked < LOOK and calls < LOOK // failures.PAGE:
        read = yield from failures.page(
            core, status=status, spout=spout, step=step, reason=reason, cause=cause, limit=failures.PAGE,
            cursor=cursor,
        )  # fmt: skip
        for tree in read.trees:
            alone = _alone(tree)
            parts.append(alone)
            before = last - int(tree.at) // SLICE_SECONDS
            counts = lately.setdefault(_key(alone), [0] * SLICES)
            if before < SLICES:
                counts[SLICES - 1 - max(0, before)] += 1
        looked, calls, cursor = looked + read.looked, calls + 1, read.cursor
        if cursor is None:
            break
    return FailureGroups(_groups(parts, lately), _end(last), len(parts), cursor)


def add_up(read: "list[FailureGroups]") -> FailureGroups:
    """The groups of several pages as one page."""
    until = max(page.lately_until for page in read)
    lately: dict[_Key, list[int]] = {}
    for page in read:
        later = round(
            (until - page.lately_until) / SLICE_SECONDS
        )  # a page may be read in the next five minutes
        for group in page.groups:
            counts = lately.setdefault(_key(group), [0] * SLICES)
            for place, count in enumerate(group.lately[later:]):
                counts[place] += count
    parts = [group for page in read for group in page.groups]
    return FailureGroups(_groups(parts, lately), until, sum(page.trees for page in read), read[-1].cursor)


def _groups(parts: Iterable[Group], lately: dict[_Key, list[int]]) -> tuple[FailureGroup, ...]:
    return tuple(
        FailureGroup(
            *_key(group), group.count, group.oldest, group.newest, group.reason, tuple(lately[_key(group)])
        )
        for group in pages.summed(parts)
    )


def _key(group: Group) -> _Key:
    return group.cause, group.step, group.status


def _end(last: int) -> float:
    """The end of a slice of time, in Unix seconds."""
    return float((last + 1) * SLICE_SECONDS)


def _alone(tree: Failure) -> Group:
    reason, step = tree.cause.reason, tree.cause.step
    return Group(masked.cause(reason), step, tree.status, 1, tree.at, tree.at, reason)
