"""Spouts that are clients of the service, in any language: they read their outcomes, and confirm them."""

from contextlib import nullcontext
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from acker.errors import ValidationError
from acker.inspect.operate import pauses, removal
from acker.inspect.topology import troubles
from acker.inspect.trees import outcome_pages
from acker.ledger.settings import config
from api.asgi.logs import note
from api.asgi.noting import noting
from api.fields import Name, Paged
from api.models.answers import PausedSpout, SpoutOutcomes, SpoutOutcomesPage
from api.models.spouts import ConfirmBody, Confirmed, PauseBody, Spout
from api.problems import Refused, declared, known_cursor
from api.routes.clients.messages import IdempotencyKey
from api.service.service import LedgerDep, ServiceDep, check_spout
from api.streams import outcomes
from api.streams.declared_events import event_stream
from api.streams.live import CountedStream, LiveDep

LONGEST_WAIT = 30.0
"""Seconds for which a page waits at most."""

router = APIRouter(prefix="/topologies/{topology}/spouts/{spout}", tags=["spouts"])

SpoutName = Annotated[Name, Path()]


async def _known(ledger: LedgerDep, spout: SpoutName) -> str:
    check_spout(ledger, spout)
    return spout


SpoutDep = Annotated[str, Depends(_known)]
"""The spout that the path names, which the topology has."""


class SpoutOutcomesQuery(Paged):
    """A page of outcomes."""

    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT)] = Field(
        default=0.0, description="Seconds to wait for the first outcome, where there is none.", examples=[10]
    )
    limit: Annotated[int, Field(ge=1, le=outcome_pages.PAGE)] = Field(
        default=outcome_pages.PAGE, description="Most trees."
    )


@router.put("", responses={201: {"model": Spout, "description": "It is new."}, **declared(404, 409, 429)})
async def put_spout(ledger: LedgerDep, spout: SpoutName, response: Response) -> Spout:
    """Makes a spout known to its topology, before its first track; a track does so, too."""
    new = config.check_spout(spout) not in ledger.core.spouts
    await ledger.run(ledger.core.register_spout(spout))
    response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
    return Spout(topology=ledger.config.name, spout=spout)


@router.delete("", responses=declared(404, 409, 429))
async def remove_spout(request: Request, ledger: LedgerDep, spout: SpoutName) -> Spout:
    """Removes a spout that owes nothing, so that there is room for another: a topology has 64 at most.

    Refused while it has trees in flight, outcomes that are not confirmed, kept rows or dead letters. Stop its
    jobs first, because a track under its name creates it again.
    """
    async with noting(request, ledger, "remove-spout", {"spout": spout}):
        await ledger.run(removal.remove_spout(ledger.core, spout))
    return Spout(topology=ledger.config.name, spout=spout)


@router.put("/pause", response_model=PausedSpout, responses=declared(404, 413, 429))
async def pause_spout(
    request: Request, service: ServiceDep, ledger: LedgerDep, spout: SpoutName, body: PauseBody
) -> troubles.PausedSpout:
    """Pauses a spout: its new tracks are rejected until it is resumed, and what it has in flight goes on.

    A further pause takes the place of the one before. After an error send the same again: a spout that is
    paused in a part of the store is a trouble of its topology.
    """
    async with noting(request, ledger, "pause-spout", {"spout": spout}, reason=body.reason):
        paused = await ledger.run(
            pauses.pause(ledger.core, spout, by=request.state.client, reason=body.reason)
        )
    service.forget_health(ledger.config.name)
    return troubles.PausedSpout(spout, paused.by, paused.reason, paused.since)


@router.delete("/pause", status_code=HTTPStatus.NO_CONTENT, responses=declared(404, 429))
async def resume_spout(request: Request, service: ServiceDep, ledger: LedgerDep, spout: SpoutName) -> None:
    """Ends the pause of a spout, if there is one. After an error send the same again."""
    async with noting(request, ledger, "resume-spout", {"spout": spout}):
        await ledger.run(pauses.resume(ledger.core, spout))
    service.forget_health(ledger.config.name)


@router.get("/outcomes", response_model=SpoutOutcomesPage, responses=declared(404, 429))
async def list_spout_outcomes(
    request: Request,
    service: ServiceDep,
    live: LiveDep,
    ledger: LedgerDep,
    spout: SpoutDep,
    query: Annotated[SpoutOutcomesQuery, Query()],
) -> outcome_pages.OutcomesPage:
    """The outcomes of a spout that are not confirmed, acked ones too: each at least once.

    Go on until the cursor is null, confirm what you are done with, and begin anew without a cursor: what is
    not confirmed comes again. In a shard the oldest come first.
    """
    wait = min(query.wait, service.settings.stream_seconds)
    with known_cursor(), live.place(request.state.client) if wait else nullcontext():
        return await outcomes.page(
            live,
            ledger,
            spout,
            limit=query.limit,
            cursor=query.cursor,
            wait=wait,
            gone=request.is_disconnected,
        )


LastEventId = Annotated[
    str,
    Header(
        alias="Last-Event-ID",
        max_length=4_096,
        pattern=(
            r"^([0-9]{1,4}-[0-9]{1,20}-[0-9]{1,20}(,[0-9]{1,4}-[0-9]{1,20}-[0-9]{1,20})"
            rf"{{0,{outcomes.EVENT_SHARDS - 1}}})?$"
        ),
        description="The id of the last event that was seen: what came before it waits to be confirmed.",
        examples=["0-1795230245678-0,2-1795230245679-0"],
    ),
]

_STREAM = event_stream(
    "Server-sent events `outcomes`, whose data is a SpoutOutcomes each.",
    ["outcomes"],
    "What was sent and is not confirmed.",
    'event: outcomes\nid: 0-1795230245678-0\ndata: {"status":"acked"}\n\n',
)


@router.get(
    "/outcomes/events",
    responses={**_STREAM, **declared(404, 429)},
    response_class=StreamingResponse,
    response_model=None,
)
async def stream_spout_outcomes(
    request: Request,
    service: ServiceDep,
    live: LiveDep,
    ledger: LedgerDep,
    spout: SpoutDep,
    last_event_id: LastEventId = "",
) -> StreamingResponse:
    """The outcomes of a spout as they come, from those on that are not confirmed.

    What is not confirmed within a minute, or a message timeout where that is shorter, comes again. Of a
    shard at most 100 entries wait to be confirmed; more come when these are.
    """
    events = outcomes.follow(service, live, ledger.config.name, spout, last_event_id)
    return CountedStream(live, request.state.client, events)


@router.post("/outcomes/confirm", responses=declared(404, 409, 413, 429))
async def confirm_outcomes(
    request: Request,
    ledger: LedgerDep,
    spout: SpoutDep,
    body: ConfirmBody,
    idempotency_key: IdempotencyKey = None,
) -> Confirmed:
    """Confirms outcomes by their confirmations: they do not come again, and make room for further trees.

    Sent again it changes nothing; under the same key it is answered the same, too.
    """
    note(request, spout=spout, confirmations=len(body.confirmations), key=idempotency_key)
    try:
        confirming = outcome_pages.confirm(ledger.core, spout, body.confirmations, idempotency_key)
        return Confirmed(trees=await ledger.run(confirming))
    except ValidationError as error:
        raise Refused("unknown-confirmation", str(error)) from error


SCHEMAS = (SpoutOutcomes,)
"""Models that clients parse, and that no answer's schema names."""
