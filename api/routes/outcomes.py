"""The latest failures and expirations."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from acker.inspect.trees import failures
from acker.inspect.trees.failures import FailuresPage
from api.fields import ByMessageId, Name
from api.models.answers import Outcomes
from api.problems import declared, known_cursor
from api.service.service import LedgerDep, check_spout

router = APIRouter(prefix="/topologies/{topology}", tags=["outcomes"])


class OutcomesQuery(ByMessageId):
    """A filter of outcomes: all conditions that are given must hold."""

    status: Literal["failed", "expired"] | None = None
    spout: Name | None = None
    step: Annotated[str, Field(max_length=64, description="The bolt that has failed them.")] | None = None
    reason: (
        Annotated[
            str, Field(max_length=256, description="A part of it, in capitals or not.", examples=["word"])
        ]
        | None
    ) = None
    limit: Annotated[int, Field(ge=1, le=failures.PAGE)] = 100


@router.get("/outcomes", response_model=Outcomes, responses=declared(404))
async def list_outcomes(ledger: LedgerDep, query: Annotated[OutcomesQuery, Query()]) -> FailuresPage:
    """The latest failures and expirations, latest first; a topology's `outcomes_kept` says how many are kept.

    A page looks at a bounded number of them, so with a filter it may hold fewer than its limit, or none, and
    a cursor all the same: go on until there is none.
    """
    check_spout(ledger, query.spout)
    operation = failures.page(
        ledger.core,
        status=query.status,
        spout=query.spout,
        step=query.step,
        reason=query.reason or "",
        message_id=query.wanted,
        limit=query.limit,
        cursor=query.cursor,
    )
    with known_cursor():
        return await ledger.run(operation)
