"""Functions: ask by HTTP, wait for the answer, or come again for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from acker.drpc import calls, registry
from acker.drpc.calling.answer_listener import Call, result_of
from acker.drpc.calling.callbacks import Answer
from acker.drpc.registry import Description
from acker.errors import (
    UnknownFunction,
    UnknownTopology,
)
from acker.inspect.functions import call_progress
from acker.inspect.functions.call_progress import CallHead, Progress
from acker.inspect.functions.function_state import FunctionState, function_state
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.fields import instant
from api.asgi.logs import note
from api.asgi.noting import noting
from api.fields import Model, Name
from api.models.answers import CallProgress, Calls, Function, Functions
from api.models.drpc import Answered, CallBody, Cancelled, Pending, RequestId
from api.problems import Refused, declared
from api.routes.clients.messages import IdempotencyKey
from api.service.service import Service, ServiceDep
from api.streams.live import LiveDep

_LOOK = 1.0
"""Seconds after which it is seen that a caller has gone, or that the service ends."""

router = APIRouter(prefix="/drpc", tags=["functions"])


async def _known(service: ServiceDep, function: Annotated[Name, Path()]) -> Description:
    return await service.store.run(registry.find(function))


FunctionDep = Annotated[Description, Depends(_known)]
"""The function that the path names."""


async def _ledger(service: Service, function: Description) -> AsyncLedger:
    try:
        return await service.ledger(function.topology)
    except UnknownTopology as error:
        raise UnknownFunction(f"function {function.name!r} has gone: {error}") from error


@router.get("", response_model=Functions, responses=declared())
async def list_functions(service: ServiceDep) -> dict[str, list[FunctionState]]:
    """All functions of the store: its names are unique in it, 256 at most."""
    functions = []
    for what in await service.store.run(registry.functions()):
        try:
            functions.append(await _function(service, what))
        except UnknownFunction:
            continue
    return {"functions": functions}


@router.get("/{function}", response_model=Function, responses=declared(404))
async def get_function(service: ServiceDep, function: FunctionDep) -> FunctionState:
    """A function, its calls without answer, and who works on its steps."""
    return await _function(service, function)


async def _function(service: Service, function: Description) -> FunctionState:
    ledger = await _ledger(service, function)
    return await ledger.run(function_state(ledger.core, function))


class CallsQuery(Model):
    """The number of calls to show."""

    limit: Annotated[int, Field(ge=1, le=call_progress.MOST)] = 100


@router.get("/{function}/calls/{state}", response_model=Calls, responses=declared(404))
async def list_calls(
    service: ServiceDep,
    function: FunctionDep,
    state: Literal["pending", "ended"],
    query: Annotated[CallsQuery, Query()],
) -> dict[str, list[CallHead]]:
    """Calls without answer, in the order in which their time will be over; or the latest answers.

    Of these, the latest first, as long as their answers are kept.
    """
    ledger = await _ledger(service, function)
    look = call_progress.pending if state == "pending" else call_progress.answered
    return {"calls": await ledger.run(look(ledger.core, function, query.limit))}


_PENDING: dict[int | str, dict[str, Any]] = {
    202: {"model": Pending, "description": "It has no answer yet: ask for the request again."}
}


@router.post(
    "/{function}",
    responses={
        **declared(404, 413, 504),
        202: {
            **_PENDING[202],
            "headers": {"Location": {"description": "Of the request.", "schema": {"type": "string"}}},
        },
    },
)
async def call_function(
    request: Request,
    service: ServiceDep,
    live: LiveDep,
    function: FunctionDep,
    body: CallBody,
    idempotency_key: IdempotencyKey = None,
) -> Answered:
    """Calls a function, and waits for its answer; 202 and where to ask for it, when `wait` is over.

    A call that a step fails is 422 `drpc-failed`; that is late, 504 `drpc-timeout`; for which there is no
    room, 429 `drpc-full`; on which nobody works, 503 `no-workers`, when `wait` is over. Under the same key
    the same call is worked out once. A caller that leaves cancels nothing.
    """
    note(request, function=function.name, key=idempotency_key)
    with live.place(request.state.client):
        call = await _begin(service, function, body, idempotency_key)

        async def over() -> bool:
            """True if the caller has left, or the service is to end."""
            return live.closed or await request.is_disconnected()

        await _wait(call.future, min(body.wait, service.settings.stream_seconds), over)
    if call.future.done():
        return Answered(request=call.request, result=_result(call.future.exception() or call.future.result()))
    location = {"Location": str(request.url.path).rstrip("/") + f"/{call.request}"}
    if body.wait and not live.closed and not any(await _workers(service, function)):
        raise Refused(
            "no-workers",
            f"nobody works on function {function.name!r}: start a worker. The request waits until then, or "
            "until its time is over",
            {**location, "Retry-After": "1"},
        )
    ledger = await _ledger(service, function)
    seen = await ledger.run(calls.see(ledger.core, function, call.request))
    return _accepted(call.request, seen, location)  # type: ignore[no-any-return]


async def _workers(service: Service, function: Description) -> list[int]:
    ledger = await _ledger(service, function)
    return await ledger.run(calls.workers(ledger.core, function))


async def _begin(service: Service, function: Description, body: CallBody, key: str | None) -> Call:
    """Begins a call; when it returns, the call is written, or has its error."""
    try:
        client = await service.callers.client(function)
        call = client.begin(body.args, timeout=body.timeout, key=key)
    except UnknownTopology as error:
        raise UnknownFunction(str(error)) from error
    await _rung(call.begun, call.future).wait()
    return call


def _rung(*futures: Answer) -> asyncio.Event:
    """Returns an event that is set when a future is done. A waiter that is cancelled cancels no future."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def ring(_: object) -> None:
        with suppress(RuntimeError):  # the service has ended meanwhile
            loop.call_soon_threadsafe(event.set)

    for future in futures:
        future.ring(ring)
    return event


async def _wait(future: Answer, seconds: float, over: Callable[[], Awaitable[bool]]) -> None:
    """Waits for an answer, until that is over."""
    until, rung = time.monotonic() + seconds, _rung(future)
    while not future.done() and (left := until - time.monotonic()) > 0:
        with suppress(TimeoutError):
            await asyncio.wait_for(rung.wait(), min(left, _LOOK))
        if not future.done() and await over():
            return


def _result(answer: Any) -> Any:
    """The result; raises the error where there is none."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _accepted(request: str, seen: calls.Seen | None, headers: dict[str, str] | None = None) -> Any:
    """Returns the response 202 for a call without an answer. seen: None if the store no longer knows it."""
    deadline = instant(seen.deadline) if seen and seen.deadline else None
    pending = Pending(request=request, deadline=deadline, waits_for=list(seen.steps) if seen else [])
    return JSONResponse(pending.model_dump(mode="json"), HTTPStatus.ACCEPTED, headers)


@router.get("/{function}/{request_id}", responses={**declared(404, 504), **_PENDING})
async def get_call(
    service: ServiceDep, function: FunctionDep, request_id: Annotated[RequestId, Path()]
) -> Answered:
    """The answer of a call, as the call itself would have it; 202 while it has none."""
    ledger = await _ledger(service, function)
    seen = await ledger.run(calls.see(ledger.core, function, request_id))
    if seen and 0 < seen.deadline < time.time():  # nobody works on the function
        await ledger.run(calls.overdue(ledger.core, function))
        seen = await ledger.run(calls.see(ledger.core, function, request_id))
    if seen is None:
        raise _unknown(function, request_id)
    if seen.status is calls.Status.PENDING:
        return _accepted(request_id, seen)  # type: ignore[no-any-return]
    return Answered(request=request_id, result=_result(result_of(function.name, seen)))


@router.get("/{function}/{request_id}/steps", response_model=CallProgress, responses=declared(404))
async def get_call_steps(
    service: ServiceDep, function: FunctionDep, request_id: Annotated[RequestId, Path()]
) -> Progress:
    """Shows the progress of each step with a call: what it waits for, or its failure and the reason."""
    ledger = await _ledger(service, function)
    progress = await ledger.run(call_progress.follow(ledger.core, function, request_id))
    if progress is None:
        raise _unknown(function, request_id)
    return progress


@router.delete("/{function}/{request_id}", responses=declared(404))
async def cancel_call(
    request: Request, service: ServiceDep, function: FunctionDep, request_id: Annotated[RequestId, Path()]
) -> Cancelled:
    """Fails a call that has no answer yet: its caller gets the failure, and its rows are dropped."""
    ledger = await _ledger(service, function)
    asked = {"function": function.name, "request": request_id}
    async with noting(request, ledger, "cancel-call", asked) as noted:
        cancelled = await ledger.run(calls.cancel(ledger.core, function, request_id))
        noted.count, noted.result = int(cancelled), "" if cancelled else "it was answered, or is unknown"
    if not cancelled and await ledger.run(calls.see(ledger.core, function, request_id)) is None:
        raise _unknown(function, request_id)
    return Cancelled(request=request_id, cancelled=cancelled)


def _unknown(function: Description, request: str) -> Refused:
    return Refused(
        "unknown-request",
        f"function {function.name!r} has no request {request!r}, or it was answered over {function.keep:g} s "
        "ago",
    )
