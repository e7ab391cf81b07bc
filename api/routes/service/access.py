"""What a client may do, for clients that ask before they offer it."""

from fastapi import APIRouter, Request

from api.models.access import AccessState
from api.problems import declared

router = APIRouter(prefix="/access", tags=["access"])


@router.get("", responses=declared())
async def get_access(request: Request) -> AccessState:
    """What the token of this request allows. It needs no store."""
    return AccessState(scope=request.state.scope)
