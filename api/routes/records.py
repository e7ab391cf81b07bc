"""Records by their message ids, whatever became of them: in one topology, or among all."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from acker.inspect.topology.unreadable_topology import Damaged
from acker.inspect.trees import find_everywhere, find_record
from acker.inspect.trees.find_everywhere import FoundEverywhere, Hit, Unsearched
from acker.ledger import async_ledger
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.settings.config import MESSAGE_ID_BYTES
from api.fields import ByMessageId, Id, Name
from api.models.answers import EverywhereFound, Records
from api.problems import declared, known_cursor
from api.service.service import LedgerDep, ServiceDep

router = APIRouter(tags=["records"])


class RecordsQuery(ByMessageId):
    """A message id; without one, the record without a name."""

    limit: Annotated[int, Field(ge=1, le=find_record.PAGE, description="Trees, and dead letters.")] = (
        find_record.PAGE
    )


class EverywhereQuery(ByMessageId):
    """A message id, an anchor, or both; without any, the record without a name."""

    anchor: Id | None = Field(default=None, description="Of one of the record's trees.")
    cursor: Name | None = Field(default=None, description="Of the page before.")


@router.get("/records", response_model=EverywhereFound, responses=declared())
async def find_records_everywhere(
    service: ServiceDep, query: Annotated[EverywhereQuery, Query()]
) -> FoundEverywhere:
    """Topologies that know a record, by its message id or the anchor of one of its trees.

    A page asks 20 topologies, and searches a bounded piece of each: go on until there is no cursor. A
    topology without a find that was searched in part is in `unfinished`: search it alone.
    """
    anchor = None if query.anchor is None else int(query.anchor)
    message_id = b"" if query.wanted is None and anchor is None else query.wanted
    if message_id is not None and len(message_id) > MESSAGE_ID_BYTES:
        message_id = None
    names = await async_ledger.names(service.store)
    asked, left = find_everywhere.page(names, query.cursor)

    async def look(ledger: AsyncLedger) -> Hit:
        return await ledger.run(find_everywhere.look(ledger.core, message_id, anchor))

    answers = await service.of_each(asked, look)
    hits = [hit for hit in answers if isinstance(hit, Hit)]
    failed = [Unsearched(one.topology, one.reason) for one in answers if isinstance(one, Damaged)]
    return find_everywhere.summed(hits, failed, names, asked, left)


@router.get("/topologies/{topology}/records", response_model=Records, responses=declared(404))
async def find_records(ledger: LedgerDep, query: Annotated[RecordsQuery, Query()]) -> find_record.Found:
    """The attempts and dead letters of a message id, in flight or ended.

    A page looks at a bounded number of trees and dead letters, and says how many: go on until there is no
    cursor. An acked record is known until its outcome is confirmed.
    """
    message_id = query.wanted or b""
    if len(message_id) > MESSAGE_ID_BYTES:
        return find_record.Found(message_id, (), 0, 0, None)
    with known_cursor():
        return await ledger.run(
            find_record.find(ledger.core, message_id, limit=query.limit, cursor=query.cursor)
        )
