"""Places of trees, and stuck rows."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from acker.inspect.locate import completion, drops, stuck, why
from api.fields import Id, Model, Paged
from api.models.answers import Completion, Drops, StuckPage, Why
from api.problems import declared, known_cursor
from api.service.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}", tags=["trees"])


class WhyQuery(Paged):
    """A page, and the amount of data to read."""

    rows: bool = Field(default=False, description="Reads the segments, and counts the tree's rows in them.")


@router.get("/trees/{anchor}/why", response_model=Why, responses=declared(404))
async def get_why(
    ledger: LedgerDep, anchor: Annotated[Id, Path()], query: Annotated[WhyQuery, Query()]
) -> why.Why:
    """Finds the tuples of a tree: their streams, subscriptions and readers, and whether these are all.

    A page looks at 10,000 segments, about: `complete` is of all pages in the last one.
    """
    with known_cursor():
        return await ledger.run(why.why(ledger.core, int(anchor), rows=query.rows, cursor=query.cursor))


class CompleteQuery(Model):
    """A time."""

    before: str = Field(
        max_length=64,
        description="ISO time with a zone, or an age by the store's clock: `90s`, `15m`, `2h`, `1d`.",
        examples=["2026-11-26T00:00:00Z", "15m"],
        json_schema_extra={"anyOf": [{"format": "date-time"}, {"pattern": completion.AGE_PATTERN}]},
    )


@router.get("/complete", response_model=Completion, responses=declared(404))
async def get_complete(ledger: LedgerDep, query: Annotated[CompleteQuery, Query()]) -> completion.Completion:
    """Tells whether all records that were first tracked before a time are acked or dead letters.

    A replay counts as its record. A schedule goes on where `state` is `complete`, not where it is
    `unknown`.
    """
    return await ledger.run(completion.completion(ledger.core, query.before))


@router.get("/stuck", response_model=StuckPage, responses=declared(404))
async def get_stuck(ledger: LedgerDep, query: Annotated[Paged, Query()]) -> stuck.StuckPage:
    """Shows the unacked rows of each subscription of each stream: taken ones by reader, and the others."""
    with known_cursor():
        return await ledger.run(stuck.stuck(ledger.core, cursor=query.cursor))


@router.get("/drops", response_model=Drops, responses=declared(404))
async def get_drops(ledger: LedgerDep) -> dict[str, list[drops.Drop]]:
    """Shows the latest 1,000 drops of streams: by their limits, or with a subscription."""
    return {"drops": await ledger.run(drops.drops(ledger.core))}
