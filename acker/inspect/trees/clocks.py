"""Trees with the waits of their clocks: a tree whose clock stands still says what it waits for.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together, which have
one clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from acker.inspect.trees import pages
from acker.inspect.trees.pages import TreesPage
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.trees import trees
from acker.ledger.trees.buckets import WAITING, Standing
from acker.ledger.trees.trees import State, Tree
from acker.ledger.trees.wait import Wait
from acker.store.operation import Operation
from acker.store.records import passing_over


def tree(core: Core, anchor: int) -> Operation[Tree | None]:
    """The tree of an anchor; None if the ledger does not hold it. Raises ValidationError."""
    found = yield from trees.tree(core, anchor)
    return None if found is None else (yield from with_waits(core, [found]))[0]


def page(
    core: Core,
    *,
    bucket: Standing | None = None,
    spout: str | None = None,
    shard: int | None = None,
    state: State | None = None,
    older_than: float = 0.0,
    limit: int = 100,
    cursor: str | None = None,
) -> Operation[TreesPage]:
    """A page of trees, as `acker.inspect.trees.pages.trees` gives it.

    A tree whose clock stands still is in the bucket `waiting`, and in no other. So a page of a bucket may be
    empty and not the last. Raises ValidationError.
    """
    trees_page = yield from pages.trees(
        core, bucket=None if bucket == "waiting" else bucket, spout=spout, shard=shard, state=state,
        older_than=older_than, limit=limit, cursor=cursor,
    )  # fmt: skip
    with_their_waits = yield from with_waits(core, trees_page.trees)
    taken = tuple(one for one in with_their_waits if bucket in (None, one.bucket))
    return replace(trees_page, trees=taken)


def with_waits(core: Core, members: Sequence[Tree]) -> Operation[list[Tree]]:
    """Trees with the waits of their clocks.

    It reads up to 10,000 segments of each subscription; many of them only once in five seconds.
    """
    asked: dict[int, set[bytes]] = {}
    for member in members:
        if _has_clock(member):
            asked.setdefault(member.shard, set()).add(ids.slab_of(member.anchor))
    if not asked:
        return list(members)
    try:
        from acker.drpc import keeping
        from acker.streams import downtime
    except ImportError:  # no pyarrow: streams are not looked into
        return list(members)
    waits: dict[bytes, Wait] = {}
    with passing_over(f"{core.config.name}: waits of trees are not known", refusals=True):
        waits |= yield from downtime.waits(core, asked)
    with passing_over(f"{core.config.name}: waits of calls are not known", refusals=True):
        for slab, call in (yield from keeping.waits(core, asked)).items():
            # A call ends at its deadline, wherever its rows are.
            waits[slab] = replace(waits.get(slab, call), until=call.until)
    return list(_waiting(members, waits))


def _has_clock(member: Tree) -> bool:
    """True if the clock of a tree may stand still: waiting trees, and those set aside, have none of a row."""
    return member.state == "pending" and member.bucket != "expiring"


def _waiting(members: Iterable[Tree], waits: dict[bytes, Wait]) -> Iterable[Tree]:
    for member in members:
        wait = waits.get(ids.slab_of(member.anchor)) if _has_clock(member) else None
        if wait is None:
            yield member
            continue
        now, earliest = member.tracked_at + member.age, member.time_left_earliest or 0.0
        if wait.until is not None:
            earliest = max(earliest, wait.until - now)
        yield replace(member, bucket=WAITING, wait=wait, time_left_earliest=earliest, time_left_latest=None)
