"""Where trees are, and what is stuck."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from acker.errors import ValidationError
from acker.inspect.as_json import place_forms
from acker.inspect.locate.drops import drops
from acker.inspect.locate.stuck import stuck
from acker.inspect.locate.why import why
from api.fields import Cursor, Id
from api.models.places import Drops, StuckPage, Why
from api.problems import declared, known_cursor, unknown_cursor
from api.service.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}", tags=["trees"])


class StuckQuery(BaseModel):
    """Which page."""

    model_config = ConfigDict(extra="forbid")

    cursor: Cursor | None = Field(default=None, description="Of the page before.")


class WhyQuery(StuckQuery):
    """Which page, and how much is read."""

    rows: bool = Field(default=False, description="Reads the segments, and counts the tree's rows in them.")


@router.get("/trees/{anchor}/why", responses=declared(404))
async def get_why(
    ledger: LedgerDep, anchor: Annotated[Id, Path()], query: Annotated[WhyQuery, Query()]
) -> Why:
    """Where the tuples of a tree are: in which streams, for whom, taken by whom; and whether that is all.

    A page looks at 10,000 segments, about: `complete` is of all pages in the last one.
    """
    try:
        found = await ledger.run(why(ledger.core, int(anchor), rows=query.rows, cursor=query.cursor))
    except ValidationError as error:
        if query.cursor is None or not str(error).startswith("cursor"):
            raise
        raise unknown_cursor() from error
    return Why.model_validate(place_forms.why(found))


@router.get("/stuck", responses=declared(404))
async def get_stuck(ledger: LedgerDep, query: Annotated[StuckQuery, Query()]) -> StuckPage:
    """What each subscription of each stream has not acked: who has taken it, and how much nobody has."""
    with known_cursor():
        page = await ledger.run(stuck(ledger.core, cursor=query.cursor))
    return StuckPage.model_validate(
        {"stuck": [place_forms.stuck(one) for one in page.stuck], "cursor": page.cursor}
    )


@router.get("/drops", responses=declared(404))
async def get_drops(ledger: LedgerDep) -> Drops:
    """What streams have dropped, by their limits or with a subscription: the latest 1,000 times."""
    found = await ledger.run(drops(ledger.core))
    return Drops.model_validate({"drops": [place_forms.drop(one) for one in found]})
