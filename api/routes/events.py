"""Live events."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import StreamingResponse

from api.models.events import EventStream
from api.problems import declared
from api.service.service import LedgerDep, ServiceDep
from api.streams.declared_events import event_stream
from api.streams.follow import follow
from api.streams.live import CountedStream, LiveDep

router = APIRouter(prefix="/topologies/{topology}", tags=["events"])

LastEventId = Annotated[
    str,
    Header(
        alias="Last-Event-ID",
        max_length=22,
        pattern=r"^([0-9]{1,15}-[0-9]{1,6})?$",
        description="The id of the last event that was seen: the stream goes on after it.",
        examples=["1795230245678-0"],
    ),
]

_STREAM = event_stream(
    "Server-sent events: `sample` once a second, `outcome` for each failure and expiration, `outcomes` in "
    "their place beyond 20 a second. The data follow EventStream.",
    ["sample", "outcome", "outcomes"],
    "Of a sample: resumes the stream after it.",
    'event: sample\nid: 1795230245678-0\ndata: {"at":"2026-11-21T03:04:05.678Z"}\n\n',
)


@router.get(
    "/events",
    responses={**_STREAM, **declared(404, 429)},
    response_class=StreamingResponse,
    response_model=None,
)
async def stream_events(
    request: Request, service: ServiceDep, live: LiveDep, ledger: LedgerDep, last_event_id: LastEventId = ""
) -> StreamingResponse:
    """Live events of a topology. A stream ends after a time: come again with the id of its last event."""
    after = int(last_event_id.partition("-")[0]) if last_event_id else None
    events = follow(live, ledger, after, service.settings.stream_seconds)
    return CountedStream(live, request.state.client, events)


SCHEMAS = (EventStream,)
"""Models that clients parse, and that no answer's schema names."""
