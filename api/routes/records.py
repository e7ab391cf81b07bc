"""Records by their message ids, whatever became of them."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from acker.inspect.trees import find_record
from acker.ledger.settings.config import MESSAGE_ID_BYTES
from api.fields import ByMessageId
from api.models.answers import Records
from api.problems import declared, known_cursor
from api.service.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}", tags=["records"])


class RecordsQuery(ByMessageId):
    """A message id; without one, the record without a name."""

    limit: Annotated[int, Field(ge=1, le=find_record.PAGE, description="Trees, and dead letters.")] = (
        find_record.PAGE
    )


@router.get("/records", response_model=Records, responses=declared(404))
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
