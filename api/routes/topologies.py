"""Topologies: which there are, and how each of them is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, cast

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from acker.errors import (
    MissingRights,
    StoreError,
    TopologyConfigError,
    UnknownTopology,
    UnreadableRecord,
    ValidationError,
)
from acker.inspect.operate.configure import configure
from acker.inspect.operate.removal import remove
from acker.inspect.topology import health as rules
from acker.inspect.topology import state
from acker.inspect.topology.totals import totals
from acker.inspect.topology.unreadable_topology import readable
from acker.ledger import async_ledger
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.settings import config
from api.fields import Model, Name
from api.models.answers import Stored, Topologies, TopologyState
from api.models.topologies import (
    Removed,
    Thresholds,
    ThresholdsBody,
    TopologySettings,
)
from api.problems import Refused, declared, differs
from api.service.service import LedgerDep, ServiceDep

router = APIRouter(prefix="/topologies", tags=["topologies"])


class TopologiesQuery(Model):
    """Which page of topologies."""

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    cursor: Name | None = Field(default=None, description="Of the page before.")


@router.get("", response_model=Topologies, responses=declared())
async def list_topologies(service: ServiceDep, query: Annotated[TopologiesQuery, Query()]) -> state.Listing:
    """Topologies by name, a page at a time: what a card shows of each."""
    names = [name for name in await async_ledger.names(service.store) if name > (query.cursor or "")]
    page = names[: query.limit]

    async def read(ledger: AsyncLedger) -> state.Summary:
        counted = await ledger.run(totals(ledger.core))
        return state.summary(ledger.config, counted, await service.health(ledger, counted))

    cursor = page[-1] if len(names) > len(page) else None
    return state.listing(await service.of_each(page, read), cursor)


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
        raise Refused("contradiction", str(error)) from error
    except StoreError as error:
        waits = asked.get("wait_fsync") or asked.get("wait_replicas")
        if isinstance(error, MissingRights | UnreadableRecord) or not waits:
            raise
        detail = f"expected a store that can wait as the settings say, got {error}"
        raise Refused("unsupported-setting", detail) from error


class RemovalQuery(Model):
    """Whether a topology is removed whatever it holds."""

    force: bool = Field(default=False, description="Also with trees in flight: no spout hears of them again.")


@router.delete("/{topology}", responses=declared(404, 409, 429))
async def remove_topology(ledger: LedgerDep, query: Annotated[RemovalQuery, Query()]) -> Removed:
    """Removes a topology with all that it holds: streams, kept rows and dead letters, too.

    Refused while trees are in flight or have an outcome that is not confirmed, unless it is forced. Stop its
    jobs first: who still works on it stores it again.
    """
    name = ledger.config.name
    return Removed(topology=name, dropped=await ledger.run(remove(name, force=query.force)))


@router.patch("/{topology}/thresholds", responses=declared(404, 413, 429))
async def set_thresholds(service: ServiceDep, ledger: LedgerDep, body: ThresholdsBody) -> Thresholds:
    """Sets from where on something is a trouble of this topology; what is left out stays as it is."""
    wanted = await ledger.run(rules.set_thresholds(ledger.core, body.model_dump(exclude_none=True)))
    service.forget_health(ledger.config.name)
    return Thresholds(**asdict(wanted))
