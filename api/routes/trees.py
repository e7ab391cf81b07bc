"""Trees in flight: pages of them, one of them, and what an operator does to them by hand."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from acker.inspect.operate import manual
from acker.inspect.operate.activity import NAMED
from acker.inspect.operate.manual import FailedByHand
from acker.inspect.trees import clocks, pages, tree_state
from acker.inspect.trees.pages import TreesPage
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.settings.config import MESSAGE_ID_BYTES
from acker.ledger.trees import trees
from acker.ledger.trees.buckets import Standing
from api.asgi.logs import note
from api.asgi.noting import noting
from api.fields import ByMessageId, Id, Name
from api.models.answers import FailResult, Trees, TreeState
from api.models.trees import FailBody, FailManyBody, ResetManyBody, ResetResult
from api.problems import Refused, declared, known_cursor
from api.service.service import LedgerDep, check_spout

router = APIRouter(prefix="/topologies/{topology}", tags=["trees"])

Anchor = Annotated[Id, Path()]
_FILTERS = ("bucket", "spout", "shard", "state")


class TreesQuery(ByMessageId):
    """A filter of trees: all conditions that are given must hold. A message id also finds finished trees."""

    bucket: Standing | None = None
    spout: Name | None = None
    shard: Annotated[int, Field(ge=0, le=1023)] | None = None
    state: trees.State | None = Field(default=None, description="`finished` goes with a message id only.")
    older_than: Annotated[float, Field(ge=0, le=1e9, description="Tracked so many seconds ago or more.")] = (
        0.0
    )
    limit: Annotated[int, Field(ge=1, le=pages.PAGE_TREES)] = 100

    def takes(self, tree: trees.Tree) -> bool:
        """True if a tree, found by its message id, meets the other conditions."""
        alike = all(getattr(self, name) in (None, getattr(tree, name)) for name in _FILTERS)
        return alike and tree.age >= self.older_than


@router.get("/trees", response_model=Trees, responses=declared(404))
async def list_trees(ledger: LedgerDep, query: Annotated[TreesQuery, Query()]) -> TreesPage:
    """Trees in flight, the next ones to expire first; or trees of a message id.

    A page reads a bounded piece of the ledger, so it may hold fewer trees than its limit, or none, and a
    cursor all the same: go on until there is none. Each tree comes once, also where a tick or a reset moves
    it meanwhile; but a tree that is reset after 800 more slabs were listed comes again.
    """
    _known(ledger, query)
    message_id = query.wanted
    if len(message_id or b"") > MESSAGE_ID_BYTES or (query.state == "finished" and message_id is None):
        return TreesPage((), None)
    rest: Any = {"limit": query.limit, "cursor": query.cursor}
    if message_id is None:
        operation = clocks.page(ledger.core, **rest, **query.model_dump(include={*_FILTERS, "older_than"}))
    else:
        operation = pages.find(ledger.core, message_id, **rest)
    with known_cursor():
        page = await ledger.run(operation)
    if message_id is None:
        return page
    found = await ledger.run(clocks.with_waits(ledger.core, page.trees))
    return replace(page, trees=tuple(tree for tree in found if query.takes(tree)))


@router.get("/trees/{anchor}", response_model=TreeState, responses=declared(404))
async def get_tree(ledger: LedgerDep, anchor: Anchor) -> tree_state.TreeState:
    """One tree: in flight, or recently finished, with its outcome and reason."""
    state = await ledger.run(tree_state.tree_state(ledger.core, int(anchor)))
    if state is None:
        raise _unknown(ledger, anchor)
    return state


@router.post("/trees/{anchor}/fail", response_model=FailResult, responses=declared(404, 413, 429))
async def fail_tree(request: Request, ledger: LedgerDep, anchor: Anchor, body: FailBody) -> FailedByHand:
    """Fails a tree: final and at once. Its spout learns it, and replays or gives up the record."""
    return await _fail(request, ledger, [anchor], body)


@router.post("/trees/{anchor}/reset-timeout", responses=declared(404, 413, 429))
async def reset_tree(request: Request, ledger: LedgerDep, anchor: Anchor) -> ResetResult:
    """Gives a tree, and all others of its slab, the whole message timeout again."""
    return await _reset(request, ledger, [anchor])


@router.post("/fail", response_model=FailResult, responses=declared(404, 413, 429))
async def fail_trees(request: Request, ledger: LedgerDep, body: FailManyBody) -> FailedByHand:
    """Fails trees, for one reason: final and at once. Unknown ones are passed over, and named."""
    return await _fail(request, ledger, body.anchors, body)


@router.post("/reset-timeout", responses=declared(404, 413, 429))
async def reset_trees(request: Request, ledger: LedgerDep, body: ResetManyBody) -> ResetResult:
    """Gives trees, and all others of their slabs, the whole message timeout again."""
    return await _reset(request, ledger, body.anchors)


async def _reset(request: Request, ledger: AsyncLedger, anchors: list[str]) -> ResetResult:
    """Resets the trees of anchors. A number that is no anchor is passed over, like an ended tree."""
    note(request, anchors=anchors)
    found = [number for number in sorted({int(anchor) for anchor in anchors}) if number & 1]
    async with noting(request, ledger, "reset", _named(anchors)) as noted:
        slabs = await ledger.run(manual.reset_timeout(ledger.core, found)) if found else 0
        noted.count, noted.result = slabs, f"{slabs:,} slabs reset"
    return ResetResult(slabs=slabs)


async def _fail(request: Request, ledger: AsyncLedger, anchors: list[str], body: FailBody) -> FailedByHand:
    note(request, anchors=anchors, reason=body.reason)
    numbers = [int(anchor) for anchor in anchors]
    async with noting(request, ledger, "fail", _named(anchors), reason=body.reason) as noted:
        done = await ledger.run(manual.fail(ledger.core, numbers, body.reason, retry=body.retry))
        noted.count = done.failed
        if len(done.unknown) == len(set(anchors)):
            raise _unknown(ledger, str(done.unknown[0]))
        noted.result = done.text()
    return done


def _named(anchors: list[str]) -> dict[str, object]:
    """The trees that a request names, for its activity."""
    return {"trees": len(set(anchors)), "anchors": anchors[:NAMED]}


def _unknown(ledger: AsyncLedger, anchor: str) -> Refused:
    return Refused("unknown-tree", f"topology {ledger.config.name!r} knows no tree {anchor} (any more)")


def _known(ledger: AsyncLedger, query: TreesQuery) -> None:
    """Raises Refused where the topology has no such spout or shard."""
    name = ledger.config.name
    check_spout(ledger, query.spout)
    if query.shard is not None and query.shard >= ledger.config.ackers:
        raise Refused(
            "unknown-shard", f"topology {name!r} has {ledger.config.ackers} shards, and no {query.shard}"
        )
