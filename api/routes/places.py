"""Where trees are, and what is stuck."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from acker.inspect.locate import drops, stuck, why
from api.fields import Id, Paged
from api.models.answers import Drops, StuckPage, Why
from api.problems import declared, known_cursor
from api.service.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}", tags=["trees"])


class WhyQuery(Paged):
    """Which page, and how much is read."""

    rows: bool = Field(default=False, description="Reads the segments, and counts the tree's rows in them.")


@router.get("/trees/{anchor}/why", response_model=Why, responses=declared(404))
async def get_why(
    ledger: LedgerDep, anchor: Annotated[Id, Path()], query: Annotated[WhyQuery, Query()]
) -> why.Why:
    """Where the tuples of a tree are: in which streams, for whom, taken by whom; and whether that is all.

    A page looks at 10,000 segments, about: `complete` is of all pages in the last one.
    """
    with known_cursor():
        return await ledger.run(why.why(ledger.core, int(anchor), rows=query.rows, cursor=query.cursor))


@router.get("/stuck", response_model=StuckPage, responses=declared(404))
async def get_stuck(ledger: LedgerDep, query: Annotated[Paged, Query()]) -> stuck.StuckPage:
    """What each subscription of each stream has not acked: who has taken it, and how much nobody has."""
    with known_cursor():
        return await ledger.run(stuck.stuck(ledger.core, cursor=query.cursor))


@router.get("/drops", response_model=Drops, responses=declared(404))
async def get_drops(ledger: LedgerDep) -> dict[str, list[drops.Drop]]:
    """What streams have dropped, by their limits or with a subscription: the latest 1,000 times."""
    return {"drops": await ledger.run(drops.drops(ledger.core))}
