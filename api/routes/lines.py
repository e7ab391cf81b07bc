"""Lines: what waits in their gathers, and how far a request has come."""

from typing import Annotated

from fastapi import APIRouter, Path

from acker.errors import ValidationError
from acker.inspect.lines import overview
from acker.inspect.lines.overview import LineSeen, RequestSeen
from api.fields import Id
from api.models.answers import LineRequest, Lines
from api.problems import Refused, declared
from api.service.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}/lines", tags=["lines"])


@router.get("", response_model=Lines, responses=declared(404))
async def list_lines(ledger: LedgerDep) -> dict[str, list[LineSeen]]:
    """All lines of a topology: what waits in each gather, and for how long."""
    return {"lines": await ledger.run(overview.overview(ledger.core))}


@router.get("/requests/{anchor}", response_model=LineRequest, responses=declared(404))
async def get_line_request(ledger: LedgerDep, anchor: Annotated[Id, Path()]) -> RequestSeen:
    """Shows the progress of a request, by the anchor of its tree in any section of its line."""
    try:
        return await ledger.run(overview.request(ledger.core, int(anchor)))
    except ValidationError as error:
        raise Refused("unknown-line", str(error)) from error
