"""Records by their message ids, whatever became of them."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field

from acker.inspect.plain import message_id_fields
from acker.ledger.settings.config import MESSAGE_ID_BYTES
from acker.streams.spouts import finding, letter_json
from api.fields import ByMessageId, Cursor
from api.models.records import Records
from api.problems import declared, known_cursor
from api.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}", tags=["records"])


class RecordsQuery(ByMessageId):
    """Which record: the one without a name, where none is given."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=finding.PAGE, description="Trees, and dead letters.")] = finding.PAGE
    cursor: Cursor | None = None


@router.get("/records", responses=declared(404))
async def find_records(ledger: LedgerDep, query: Annotated[RecordsQuery, Query()]) -> Records:
    """The attempts and dead letters of a message id, in flight or ended.

    A page looks at a bounded number of trees and dead letters, and says how many: go on until there is no
    cursor. An acked record is known until its outcome is confirmed.
    """
    wanted = query.wanted or b""
    if len(wanted) > MESSAGE_ID_BYTES:
        return Records(records=[], looked=0, of=0, cursor=None, **message_id_fields(wanted))
    with known_cursor():
        found = await ledger.run(finding.find(ledger.core, wanted, limit=query.limit, cursor=query.cursor))
    return Records.model_validate(letter_json.found(found))
