"""Activity: the latest writes to a topology, with author and result, as pages and as JSON lines."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import StreamingResponse

from acker.inspect.operate import activity
from acker.inspect.operate.activity import Action, ActivityPage
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.fields import json_line
from api.fields import Model, Paged
from api.models.answers import Activities
from api.problems import declared, known_cursor
from api.service.service import LedgerDep

_LINES = "application/x-ndjson"

router = APIRouter(prefix="/topologies/{topology}/activity", tags=["activity"])


class ActivityFilter(Model):
    """A filter of writes: all conditions that are given must hold."""

    action: Action | None = None
    who: Annotated[str, Field(max_length=200)] = Field(default="", description="A part of the author.")


class ActivityQuery(ActivityFilter, Paged):
    """A filter of writes, and a page."""

    limit: Annotated[int, Field(ge=1, le=activity.PAGE)] = 50


@router.get("", response_model=Activities, responses=declared(404))
async def list_activity(ledger: LedgerDep, query: Annotated[ActivityQuery, Query()]) -> ActivityPage:
    """Writes by people and programs to a topology, the latest first: the latest 1,000 are kept.

    What spouts and steps do is no activity: tracks, acks, commits, confirmations.
    """
    with known_cursor():
        return await ledger.run(activity.page(ledger.core, **query.model_dump()))


@router.get(
    "/export",
    responses={
        200: {
            "description": "A line of JSON for each, as in a list.",
            "content": {_LINES: {"schema": {"type": "string"}}},
        },
        **declared(404),
    },
    response_class=StreamingResponse,
    response_model=None,
)
async def export_activity(ledger: LedgerDep, query: Annotated[ActivityFilter, Query()]) -> StreamingResponse:
    """All writes of a filter that are kept, the latest first, as JSON lines."""
    first = await ledger.run(activity.page(ledger.core, **query.model_dump(), limit=activity.PAGE))
    return StreamingResponse(_lines(ledger, query, first), media_type=_LINES)


async def _lines(ledger: AsyncLedger, query: ActivityFilter, page: ActivityPage) -> AsyncIterator[str]:
    while True:
        if page.activity:
            yield "".join(json_line(one) for one in page.activity)
        if page.cursor is None:
            return
        reading = activity.page(ledger.core, **query.model_dump(), limit=activity.PAGE, cursor=page.cursor)
        page = await ledger.run(reading)
