"""Activity: the latest writes to a topology, with author and result, and marks on its charts."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import StreamingResponse

from acker.inspect.operate import activity, chart_marks
from acker.inspect.operate.activity import Action, ActivityPage
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.fields import json_line
from api.asgi.logs import note
from api.fields import Model, Paged
from api.models.answers import Activities, Activity
from api.problems import declared, known_cursor
from api.routes.clients.messages import IdempotencyKey
from api.service.service import LedgerDep

_LINES = "application/x-ndjson"

router = APIRouter(prefix="/topologies/{topology}", tags=["activity"])


class ActivityFilter(Model):
    """A filter of writes: all conditions that are given must hold."""

    action: Action | None = None
    who: Annotated[str, Field(max_length=200)] = Field(default="", description="A part of the author.")


class MarkBody(Model):
    """A mark on charts."""

    text: Annotated[str, Field(min_length=1, max_length=chart_marks.LONGEST, pattern=r"\S")] = Field(
        description="Not blanks alone.", examples=["deploy 1.4.2"]
    )


class ActivityQuery(ActivityFilter, Paged):
    """A filter of writes, and a page."""

    limit: Annotated[int, Field(ge=1, le=activity.PAGE)] = 50


@router.get("/activity", response_model=Activities, responses=declared(404))
async def list_activity(ledger: LedgerDep, query: Annotated[ActivityQuery, Query()]) -> ActivityPage:
    """Writes by people and programs to a topology, the latest first.

    The latest 1,000 are kept, and up to 200 marks that are earlier. What spouts and steps do
    is no activity: tracks, acks, commits, confirmations.
    """
    with known_cursor():
        return await ledger.run(activity.page(ledger.core, **query.model_dump()))


@router.get(
    "/activity/export",
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


@router.post("/marks", response_model=Activity, responses=declared(404, 409, 413, 429))
async def set_mark(
    request: Request, ledger: LedgerDep, body: MarkBody, idempotency_key: IdempotencyKey = None
) -> activity.Activity:
    """Sets a mark on the charts of a topology, at the present time: a deploy, or what else explains a bend.

    It is an entry of the activity. Where the answer is lost, send the same again under the same key: one
    mark is set.
    """
    author, proved = request.state.client, request.state.proved
    note(request, action="mark", text=body.text, key=idempotency_key)
    marking = chart_marks.mark(
        ledger.core, body.text, who=author, proved=proved, via="rest", key=idempotency_key
    )
    return await ledger.run(marking)
