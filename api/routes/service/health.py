"""Liveness and readiness of the service."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from api.fields import Answer
from api.problems import declared
from api.service.service import ServiceDep

router = APIRouter(tags=["health"])

_AWAY: dict[int | str, dict[str, Any]] = {503: declared()[503]}


class Alive(Answer):
    """The service answers."""

    status: str = Field(examples=["ok"])


@router.get("/healthz")
async def get_health() -> Alive:
    """Answers if the process lives. It needs no store."""
    return Alive(status="ok")


@router.get("/livez")
async def get_liveness() -> Alive:
    """Answers if the process lives, as /healthz does. It needs no store."""
    return Alive(status="ok")


@router.get("/readyz", responses=_AWAY)
async def get_readiness(service: ServiceDep) -> Alive:
    """Answers if the store answers."""
    await service.ping()
    return Alive(status="ok")
