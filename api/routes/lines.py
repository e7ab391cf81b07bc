"""Lines: what waits in their gathers, and how far a request has come."""

from typing import Annotated

from fastapi import APIRouter, Path

from acker.errors import ValidationError
from acker.inspect.as_json import line_forms
from acker.inspect.lines import overview
from api.fields import Id
from api.models.lines import LineRequest, Lines
from api.problems import declared, not_found
from api.service.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}/lines", tags=["lines"])


@router.get("", responses=declared(404))
async def list_lines(ledger: LedgerDep) -> Lines:
    """All lines of a topology: what waits in each gather, and for how long."""
    found = await ledger.run(overview.overview(ledger.core))
    return Lines.model_validate({"lines": [line_forms.line(one) for one in found]})


@router.get("/requests/{anchor}", responses=declared(404))
async def get_line_request(ledger: LedgerDep, anchor: Annotated[Id, Path()]) -> LineRequest:
    """How far a request has come, by the anchor of its tree in any section of its line."""
    try:
        found = await ledger.run(overview.request(ledger.core, int(anchor)))
    except ValidationError as error:
        raise not_found("unknown-line", str(error)) from error
    return LineRequest.model_validate(line_forms.request(found))
