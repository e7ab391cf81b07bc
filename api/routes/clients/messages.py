"""The acker's own messages."""

import base64
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Header, Request

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.calls import messages
from acker.ledger.calls.messages import Messages, Sent
from acker.ledger.slabs.causes import Cause
from api.asgi.logs import note
from api.models.messages import (
    STEPS,
    Ack,
    AckResult,
    Fail,
    FailMessagesResult,
    MessagesBody,
    MessagesResult,
    Track,
    TrackResult,
)
from api.problems import Refused, declared
from api.service.service import LedgerDep, Service, ServiceDep

router = APIRouter(prefix="/topologies/{topology}", tags=["messages"])

_KEY = Header(
    alias="Idempotency-Key",
    min_length=1,
    max_length=128,
    pattern=r"^[!-~]{1,128}$",
    description="Names the call, for an hour: sent again with the same content, it takes effect once.",
    examples=["7f1c4a52-6b0e-4a53-9a7c-5d2f8f0f9b11"],
)
IdempotencyKey = Annotated[str | None, _KEY]
RequiredKey = Annotated[str, _KEY]


@router.post("/messages", responses=declared(404, 409, 413, 429))
async def send_messages(
    request: Request,
    service: ServiceDep,
    ledger: LedgerDep,
    body: MessagesBody,
    idempotency_key: IdempotencyKey = None,
) -> MessagesResult:
    """Sends messages to the ledger: all messages of a tree take effect, or none.

    Where the answer is lost, send the same again under the same key: it takes effect once. A 503 may mean
    that some or all of them have taken effect.
    """
    sending = _messages(body, await _numbers(service, ledger, body))
    note(
        request,
        anchors=[message.anchor for message in body.messages],
        messages=Counter(message.type for message in body.messages),
        key=idempotency_key,
    )
    try:
        sent = await ledger.run(messages.send(ledger.core, sending, idempotency_key))
    except ValidationError as error:
        raise Refused("contradiction", str(error)) from error
    return _result(sending, sent)


async def _numbers(service: Service, ledger: AsyncLedger, body: MessagesBody) -> dict[str, int]:
    """The numbers of steps that messages name, which are at work."""
    named = {one.step for one in body.messages if isinstance(one, Ack | Fail) and one.step}
    chosen = sorted(named)[:STEPS]
    at_work = service.at_work(ledger.config.name)
    await ledger.run(at_work.note(ledger.core, chosen))
    found = {name: at_work.mark(name) for name in chosen}
    return {name: mark.step for name, mark in found.items() if mark is not None}


def _messages(body: MessagesBody, numbers: dict[str, int]) -> Messages:
    tracks: list[messages.Track] = []
    acks: list[tuple[int, int, int | None]] = []
    fails: list[tuple[int, str, int | None]] = []
    resets: list[int] = []
    for message in body.messages:
        anchor = int(message.anchor)
        if isinstance(message, Track):
            tracks.append(messages.Track(anchor, int(message.value), _message_id(message), message.spout))
        elif isinstance(message, Ack):
            acks.append((anchor, int(message.value), numbers.get(message.step or "")))
        elif isinstance(message, Fail):
            cause = Cause(message.reason, message.step or "", message.retry).text()
            fails.append((anchor, cause, numbers.get(message.step or "")))
        else:
            resets.append(anchor)
    return Messages(tracks, acks, fails, resets)


def _message_id(message: Track) -> bytes:
    if message.message_id_base64 is not None:
        return base64.b64decode(message.message_id_base64)
    return (message.message_id or "").encode()


def _result(messages: Messages, sent: Sent) -> MessagesResult:
    """Letters are of slabs; clients know trees."""
    trees: dict[str, list[str]] = {letter: [] for letter in "ADCRWP"}
    for track in messages.tracks:
        first = ids.anchor_at(ids.slab_of(track.anchor), 0)
        trees[sent.letters[first]].append(str(track.anchor))
    return MessagesResult(
        track=TrackResult(
            tracked=len(trees["A"]),
            duplicates=len(trees["D"]),
            conflicts=trees["C"],
            rejected=trees["R"] + trees["W"] + trees["P"],
        ),
        ack=AckResult(late=sent.updated.late, orphaned=sent.updated.orphaned),
        fail=FailMessagesResult(
            failed=sent.failed.failed, late=sent.failed.late, orphaned=sent.failed.orphaned
        ),
        slabs_reset=sent.slabs_reset,
    )
