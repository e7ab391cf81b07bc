"""Steps over external streams, in any language: rows are read, stamped and committed in bulk."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from acker.collectors.external.remote import commits, rows, stamping
from acker.collectors.external.remote.commits import Plan
from acker.errors import AckerError, TooLarge, ValidationError
from acker.ledger.async_ledger import AsyncLedger
from acker.store.operation import Operation
from acker.streams.staging.external import serving
from acker.streams.upkeep import retention
from api.asgi.logs import note
from api.asgi.noting import noting
from api.fields import Name
from api.models.external import (
    CommitBody,
    Committed,
    NumberedSubscription,
    ReadRow,
    Rows,
    RowsBody,
    Stamps,
    StampsBody,
    Subscription,
    SubscriptionBody,
    SubscriptionRemoval,
    SubscriptionRemoved,
)
from api.models.messages import STEPS
from api.problems import Refused, Violation, declared
from api.routes.clients.messages import RequiredKey
from api.service.service import LedgerDep, ServiceDep

router = APIRouter(prefix="/topologies/{topology}", tags=["external streams"])

StreamName = Annotated[Name, Path()]
SubscriptionName = Annotated[Name, Path()]


@router.put(
    "/streams/{stream}/subscriptions/{subscription}",
    responses={201: {"model": Subscription, "description": "It is new."}, **declared(404, 409, 429)},
)
async def put_subscription(
    request: Request,
    ledger: LedgerDep,
    stream: StreamName,
    subscription: SubscriptionName,
    response: Response,
) -> Subscription:
    """Declares a subscription of an external stream, before its first row: the stream is made with it.

    Rows that are sent while a stream has no subscription are owed by nobody, and their records may be acked
    without them. So a step declares its own first.
    """
    with _contradictions():
        new = await ledger.run(rows.declare(ledger.core, stream, subscription))
    if new:
        asked = {"stream": stream, "subscription": subscription}
        async with noting(request, ledger, "declare-subscription", asked):
            response.status_code = HTTPStatus.CREATED
    return Subscription(topology=ledger.config.name, stream=stream, subscription=subscription)


@router.patch("/streams/{stream}/subscriptions/{subscription}", responses=declared(404, 409, 413, 429))
async def rename_subscription(
    request: Request,
    ledger: LedgerDep,
    stream: StreamName,
    subscription: SubscriptionName,
    body: SubscriptionBody,
) -> Subscription:
    """Gives a subscription of an external stream another name, with all that it owes and has received.

    409 while a live step serves it, and where the stream has a subscription of the new name.
    """
    asked = {"stream": stream, "subscription": subscription, "new": body.subscription}
    async with noting(request, ledger, "rename-subscription", asked):
        await ledger.run(serving.rename(ledger.core, stream, subscription, body.subscription))
    return Subscription(topology=ledger.config.name, stream=stream, subscription=body.subscription)


@router.delete("/streams/{stream}/subscriptions/{subscription}", responses=declared(404, 422, 429))
async def remove_subscription(
    request: Request,
    ledger: LedgerDep,
    stream: StreamName,
    subscription: SubscriptionName,
    query: Annotated[SubscriptionRemoval, Query()],
) -> SubscriptionRemoved:
    """Removes a subscription of any stream with what it has not acked: the trees of that fail.

    They are replayed for the other subscriptions. Its readers end with an error. If the answer was lost, the
    call can be sent again.
    """
    note(request, stream=stream, subscription=subscription, ack=query.ack)
    asked = {"stream": stream, "subscription": subscription, "ack": query.ack}
    async with noting(request, ledger, "remove-subscription", asked, pieces=True) as noted:
        ended = await ledger.run(retention.unsubscribe(ledger.core, stream, subscription, ack=query.ack))
        noted.count = ended
        noted.result = f"{ended:,} segments {'acked' if query.ack else 'failed'}"
    return SubscriptionRemoved(stream=stream, subscription=subscription, segments=ended)


@router.post("/streams/{stream}/subscriptions/{subscription}/rows", responses=declared(404, 409, 413, 429))
async def read_rows(
    ledger: LedgerDep, stream: StreamName, subscription: SubscriptionName, body: RowsBody
) -> Rows:
    """Reads the stamps of rows, before they are worked on: the trees of each, and what acks it.

    Nothing that a row carries is an error: a row that is not tracked is worked on all the same.
    """
    reading = rows.read(
        ledger.core, stream, subscription, body.stamps, step=body.step or "", shared=body.shared
    )
    remote_rows = await ledger.run(reading)
    return Rows(
        rows=[
            ReadRow(
                state=row.state,
                anchors=[str(anchor) for anchor in row.anchors],
                segment=row.segment or None,
                position=row.position if row.segment else None,
            )
            for row in remote_rows
        ]
    )


@router.post("/streams/{stream}/stamps", responses=declared(404, 409, 413, 429))
async def stamp_rows(ledger: LedgerDep, stream: StreamName, body: StampsBody) -> Stamps:
    """Stamps rows that are to be written to a stream. The stream becomes external by its first use.

    Nothing is stored: the commit that `commit` names hands back the stamps of the rows that were written,
    within an hour. Stamps that it leaves out have no effect, wherever their rows are.
    """
    anchors = [[int(anchor) for anchor in row] for row in body.rows]
    with _contradictions():
        stamped = await ledger.run(
            stamping.stamp(ledger.core, stream, anchors, body.commit, body.segment_rows)
        )
    numbered = [
        NumberedSubscription(number=str(slot), name=name) for slot, name in stamped.subscriptions.items()
    ]
    return Stamps(stamps=stamped.stamps, subscriptions=numbered)


@router.post("/commits", responses=declared(404, 409, 413, 429, 507))
async def commit_rows(
    request: Request, service: ServiceDep, ledger: LedgerDep, body: CommitBody, idempotency_key: RequiredKey
) -> Committed:
    """Commits the work of a step, as one: its rows are emitted first, then rows are acked and failed.

    Write the rows first, commit, and then let the transport go on. What was made of an acked row belongs to
    the same commit. Where the answer is lost, send the same again under the same key, to any server: it takes
    effect once. After 409 `stream-lost` or `stamps-expired` part of it may have taken effect, and the step
    starts again from its committed offsets.
    """
    asked = [(part.stream, part.subscription) for part in body.received]
    note(request, received=asked[:3], sent=[part.stream for part in body.sent][:3], key=idempotency_key)
    with _contradictions():
        plan = await ledger.run(_planned(ledger, idempotency_key, body))
    unknown = await ledger.run(commits.unknown_positions(ledger.core, plan))
    if unknown:
        found = [Violation(location=["body", "received"], detail=detail) for detail in unknown[:20]]
        raise Refused(
            "invalid-request", "the commit has positions that their segments do not have", errors=found
        )
    steps = sorted({part.step or part.subscription for part in body.received})[:STEPS]
    await ledger.run(service.at_work(ledger.config.name).note(ledger.core, steps))
    await ledger.run(commits.carry_out(ledger.core, plan))
    return Committed(
        acked=sum(
            last - first + 1
            for part in body.received
            for segment in part.acked
            for first, last in segment.positions
        ),
        failed=sum(len(part.failed) for part in body.received),
        sent=sum(stamp is not None for part in body.sent for stamp in part.stamps),
    )


def _planned(ledger: AsyncLedger, key: str, body: CommitBody) -> Operation[Plan]:
    """Reads a body: its commit, checked."""
    received = [
        commits.ReceivedRows(
            part.stream,
            part.subscription,
            [(acked.segment, [(first, last) for first, last in acked.positions]) for acked in part.acked],
            [
                commits.FailedRow(failed.segment, failed.stamp, failed.reason, failed.retry)
                for failed in part.failed
            ],
            part.step or "",
            part.shared,
        )
        for part in body.received
    ]
    sent = [
        commits.SentRows(
            part.stream,
            part.stamps,
            {int(subscription.number): subscription.name for subscription in part.subscriptions},
        )
        for part in body.sent
    ]
    acks = [(int(ack.anchor), int(ack.value)) for ack in body.acks]
    return commits.plan(ledger.core, key, body.model_dump_json(), received, sent, acks)


@contextmanager
def _contradictions() -> Iterator[None]:
    """Refuses by 409 what the schema takes and the stored state does not."""
    try:
        yield
    except TooLarge:
        raise
    except ValidationError as error:
        raise Refused("contradiction", str(error)) from error
    except AckerError as error:
        if type(error) is not AckerError:  # of subscriptions: too many, or one that is being dropped
            raise
        raise Refused("contradiction", str(error)) from error
