"""The rights of a client, for clients that ask before they offer an action."""

from fastapi import APIRouter, Request

from api.models.access import AccessState
from api.problems import declared

router = APIRouter(prefix="/access", tags=["access"])


@router.get("", responses=declared())
async def get_access(request: Request) -> AccessState:
    """Shows the rights of this request's token. It needs no store."""
    return AccessState(scope=request.state.scope, rows=request.state.rows)
