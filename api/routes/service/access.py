"""The rights of a client, for clients that ask before they offer an action."""

from fastapi import APIRouter, Request

from acker.store.address import shown
from api.models.access import AccessState, ServiceState
from api.problems import declared
from api.service.service import ServiceDep

router = APIRouter(tags=["access"])


@router.get("/access", responses=declared())
async def get_access(request: Request) -> AccessState:
    """Shows the rights of this request's token. It needs no store."""
    return AccessState(scope=request.state.scope, rows=request.state.rows)


@router.get("/service", responses=declared())
async def get_service(request: Request, service: ServiceDep) -> ServiceState:
    """Shows which store this is, of which environment, and as whom the client acts. It needs no store."""
    return ServiceState(
        store=shown(service.settings.url.get_secret_value()),
        environment=service.settings.environment,
        version=request.app.version,
        client=request.state.client,
        proved=request.state.proved,
    )
