"""Topologies: which there are, and how each of them is."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, cast

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from acker.errors import (
    MissingRights,
    StoreError,
    TopologyConfigError,
    UnknownTopology,
    UnreadableRecord,
    ValidationError,
)
from acker.inspect.operate import removal
from acker.inspect.operate.configure import configure
from acker.inspect.topology import health as rules
from acker.inspect.topology import state
from acker.inspect.topology.totals import totals
from acker.inspect.topology.unreadable_topology import Damaged, damaged, readable
from acker.ledger import async_ledger
from acker.ledger.settings import config
from api.fields import Name
from api.models.answers import Stored, Topologies, TopologyState
from api.models.topologies import (
    Removed,
    Thresholds,
    ThresholdsBody,
    TopologySettings,
)
from api.problems import Refused, contradiction, declared, differs
from api.service.service import LedgerDep, Service, ServiceDep

_AT_ONCE = 8

router = APIRouter(prefix="/topologies", tags=["topologies"])


class TopologiesQuery(BaseModel):
    """Which page of topologies."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    cursor: Name | None = Field(default=None, description="Of the page before.")


@router.get("", response_model=Topologies, responses=declared())
async def list_topologies(service: ServiceDep, query: Annotated[TopologiesQuery, Query()]) -> state.Listing:
    """Topologies by name, a page at a time: what a card shows of each."""
    names = [name for name in await async_ledger.names(service.store) if name > (query.cursor or "")]
    page = names[: query.limit]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def read(name: str) -> state.Summary | Damaged | None:
        async with turns:
            return await _summary_of(service, name)

    found = await asyncio.gather(*(read(name) for name in page))
    cursor = page[-1] if len(names) > len(page) else None
    return state.listing((one for one in found if one is not None), cursor)


@router.get("/{topology}", response_model=TopologyState, responses=declared(404))
async def get_topology(service: ServiceDep, ledger: LedgerDep) -> state.State:
    """A topology's configuration and counters, and how full and old its shards and buckets are."""
    with readable(ledger.config.name):
        read = await ledger.run(totals(ledger.core))
        return await ledger.run(state.state(ledger.core, read, await service.health(ledger, read)))


@router.put(
    "/{topology}",
    response_model=Stored,
    responses={201: {"model": Stored, "description": "It is new."}, **declared(409, 413, 429)},
)
async def put_topology(
    service: ServiceDep, topology: Annotated[Name, Path()], body: TopologySettings, response: Response
) -> state.Stored:
    """Stores a topology with these settings, where there is none.

    200 where it is stored with them already, 409 where it is stored with others: `errors` names each.
    """
    settings = cast(config.Settings, body.model_dump(exclude_none=True))
    with _settings_refused(settings):
        try:
            ledger = await async_ledger.open_ledger(service.store, topology, create=False, **settings)
        except UnknownTopology:
            ledger = await async_ledger.open_ledger(service.store, topology, **settings)
            response.status_code = HTTPStatus.CREATED
    return state.stored(ledger.config)


@router.patch("/{topology}", response_model=Stored, responses=declared(404, 409, 413, 429))
async def configure_topology(
    service: ServiceDep, topology: Annotated[Name, Path()], body: TopologySettings
) -> state.Stored:
    """Changes settings of a topology, all of them at once; others stay as they are.

    409 for another number of ackers, for another message timeout while anything is in flight, and for
    settings that do not agree: nothing has changed then.
    """
    asked = cast(config.Settings, body.model_dump(exclude_none=True))
    with _settings_refused(asked):
        found = await service.store.run(configure(topology, asked))
    return state.stored(found)


@contextmanager
def _settings_refused(asked: config.Settings) -> Iterator[None]:
    """Refuses by 409 settings that are not the stored ones, do not agree, or ask too much of the store."""
    try:
        yield
    except TopologyConfigError as error:
        raise differs(error) from error
    except ValidationError as error:
        raise contradiction(error) from error
    except StoreError as error:
        waits = asked.get("wait_fsync") or asked.get("wait_replicas")
        if isinstance(error, MissingRights | UnreadableRecord) or not waits:
            raise
        detail = f"expected a store that can wait as the settings say, got {error}"
        raise Refused(HTTPStatus.CONFLICT, "unsupported-setting", detail) from error


class RemovalQuery(BaseModel):
    """Whether a topology is removed whatever it holds."""

    model_config = ConfigDict(extra="forbid")

    force: bool = Field(default=False, description="Also with trees in flight: no spout hears of them again.")


@router.delete("/{topology}", responses=declared(404, 409, 429))
async def remove_topology(ledger: LedgerDep, query: Annotated[RemovalQuery, Query()]) -> Removed:
    """Removes a topology with all that it holds: streams, kept rows and dead letters, too.

    Refused while trees are in flight or have an outcome that is not confirmed, unless it is forced. Stop its
    jobs first: who still works on it stores it again.
    """
    dropped = await ledger.run(removal.remove(ledger.config.name, force=query.force))
    return Removed(topology=ledger.config.name, dropped=dropped)


async def _summary_of(service: Service, name: str) -> state.Summary | Damaged | None:
    try:
        ledger = await service.ledger(name)
        read = await ledger.run(totals(ledger.core))
        return state.summary(ledger.config, read, await service.health(ledger, read))
    except UnknownTopology:
        return None
    except Exception as error:  # noqa: BLE001 - one topology must not keep the others from being seen
        return damaged(name, error)


@router.patch("/{topology}/thresholds", responses=declared(404, 413, 429))
async def set_thresholds(service: ServiceDep, ledger: LedgerDep, body: ThresholdsBody) -> Thresholds:
    """Sets from where on something is a trouble of this topology; what is left out stays as it is."""
    wanted = await ledger.run(rules.set_thresholds(ledger.core, body.model_dump(exclude_none=True)))
    service.forget_health(ledger.config.name)
    return Thresholds(**asdict(wanted))
