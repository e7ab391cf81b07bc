"""The latest failures and expirations."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from acker.inspect.trees import failure_groups, failures
from acker.inspect.trees.failures import FailuresPage
from acker.ledger.settings.config import REASON_BYTES
from api.fields import ByMessageId, Name, Paged
from api.models.answers import FailureGroups, Outcomes
from api.problems import declared, known_cursor
from api.service.service import LedgerDep, check_spout

router = APIRouter(prefix="/topologies/{topology}", tags=["outcomes"])


class GroupsQuery(Paged):
    """A filter of outcomes: all conditions that are given must hold."""

    status: Literal["failed", "expired"] | None = None
    spout: Name | None = None
    step: (
        Annotated[
            str, Field(max_length=64, description="That has failed them, or had them when they expired.")
        ]
        | None
    ) = None
    reason: (
        Annotated[
            str, Field(max_length=256, description="A part of it, in capitals or not.", examples=["word"])
        ]
        | None
    ) = None
    cause: (
        Annotated[str, Field(max_length=REASON_BYTES, description="The whole cause, as a group has it.")]
        | None
    ) = None

    def conditions(self) -> dict[str, Any]:
        """The conditions, as the readers of outcomes take them."""
        return {
            "status": self.status,
            "spout": self.spout,
            "step": self.step,
            "reason": self.reason or "",
            "cause": self.cause,
        }


class OutcomesQuery(GroupsQuery, ByMessageId):
    """A filter of outcomes, and a page: all conditions that are given must hold."""

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
        **query.conditions(),
        message_id=query.wanted,
        limit=query.limit,
        cursor=query.cursor,
    )
    with known_cursor():
        return await ledger.run(operation)


@router.get("/outcomes/groups", response_model=FailureGroups, responses=declared(404))
async def group_outcomes(
    ledger: LedgerDep, query: Annotated[GroupsQuery, Query()]
) -> failure_groups.FailureGroups:
    """Counts the latest failures and expirations by cause, step and status, the largest group first.

    A page counts about 10,000 of them, from the latest on: add the groups of all pages up, until there is no
    cursor.
    """
    check_spout(ledger, query.spout)
    with known_cursor():
        return await ledger.run(failure_groups.groups(ledger.core, **query.conditions(), cursor=query.cursor))
