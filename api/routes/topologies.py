"""Topologies: which there are, and how each of them is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, cast

from fastapi import APIRouter, Path, Query, Request, Response
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
from acker.inspect.topology import state, triage, troubles
from acker.inspect.topology.totals import totals
from acker.inspect.topology.unreadable_topology import Damaged
from acker.ledger import async_ledger
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.settings import config
from acker.store.records import reading
from acker.streams.staging.external.rotating import rotate
from api.asgi.noting import noting
from api.fields import Model, Name
from api.models.answers import Mute, Stored, Topologies, TopologyState
from api.models.topologies import (
    MuteBody,
    Removed,
    Rotated,
    RotatedStream,
    Thresholds,
    ThresholdsBody,
    TopologySettings,
)
from api.problems import Refused, declared, differs, known_cursor
from api.service.service import LedgerDep, ServiceDep

_LOOK_SECONDS = 6.0
"""Seconds: the greatest age of health in a list of all topologies. Services look every five."""

router = APIRouter(prefix="/topologies", tags=["topologies"])


class TopologiesQuery(Model):
    """A page of topologies."""

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    cursor: str | None = Field(
        default=None, pattern=triage.CURSOR_PATTERN, description="Of the page before, in the same order."
    )
    sort: triage.Sort = Field(
        default="name", description="`triage`: by severity and age, the worst and oldest first."
    )
    state: list[troubles.Level] = Field(
        default_factory=list, description="Only topologies of these severities. May be given several times."
    )
    name: Annotated[str, Field(max_length=64)] = Field(
        default="", description="Only topologies with this text in their names."
    )


@router.get("", response_model=Topologies, responses=declared(404))
async def list_topologies(service: ServiceDep, query: Annotated[TopologiesQuery, Query()]) -> state.Listing:
    """Topologies, a page at a time: what a card shows of each.

    In the order of triage, or by severity, the health of all topologies is looked at: it may be some seconds
    old.
    """
    names = [name for name in await async_ledger.names(service.store) if query.name in name]
    counts = None
    if query.sort == "triage" or query.state:

        async def look(ledger: AsyncLedger) -> triage.Standing:
            judged = await service.health(ledger, most_age=_LOOK_SECONDS)
            return triage.standing(ledger.config.name, judged)

        every = [
            triage.standing(standing.topology, standing) if isinstance(standing, Damaged) else standing
            for standing in await service.of_each(names, look)
        ]
        counts = triage.count(every)
        with known_cursor():
            left = triage.choose(every, states=query.state, sort=query.sort, cursor=query.cursor or "")
    else:
        left = [triage.Standing(name, "well") for name in names if name > (query.cursor or "")]
    page = left[: query.limit]

    async def read(ledger: AsyncLedger) -> state.Summary:
        counted = await ledger.run(totals(ledger.core))
        return state.summary(ledger.config, counted, await service.health(ledger, counted))

    cursor = None
    if len(left) > len(page):
        cursor = page[-1].topology if query.sort == "name" else page[-1].cursor
    summaries = await service.of_each([standing.topology for standing in page], read)
    return state.listing(summaries, cursor, counts)


@router.get("/{topology}", response_model=TopologyState, responses=declared(404))
async def get_topology(service: ServiceDep, ledger: LedgerDep) -> state.State:
    """A topology's configuration and counters, and how full and old its shards and buckets are."""
    with reading(f"topology {ledger.config.name!r}"):
        read = await ledger.run(totals(ledger.core))
        judged = await service.health(ledger, read)
        return await ledger.run(state.state(ledger.core, read, judged, scripts=True))


@router.put(
    "/{topology}",
    response_model=Stored,
    responses={201: {"model": Stored, "description": "It is new."}, **declared(409, 413, 429)},
)
async def put_topology(
    request: Request,
    service: ServiceDep,
    topology: Annotated[Name, Path()],
    body: TopologySettings,
    response: Response,
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
            async with noting(request, ledger, "create", settings):
                pass
    return state.stored(ledger.config)


@router.patch("/{topology}", response_model=Stored, responses=declared(404, 409, 413, 429))
async def configure_topology(
    request: Request, service: ServiceDep, ledger: LedgerDep, body: TopologySettings
) -> state.Stored:
    """Changes settings of a topology, all of them at once; others stay as they are.

    409 for another number of ackers, for another message timeout while anything is in flight, and for
    settings that do not agree: nothing has changed then.
    """
    asked = cast(config.Settings, body.model_dump(exclude_none=True))
    with _settings_refused(asked):
        async with noting(request, ledger, "configure", asked):
            found = await service.store.run(configure(ledger.config.name, asked))
    return state.stored(found)


@contextmanager
def _settings_refused(settings: config.Settings) -> Iterator[None]:
    """Refuses by 409 settings that are not the stored ones, do not agree, or ask too much of the store."""
    try:
        yield
    except TopologyConfigError as error:
        raise differs(error) from error
    except ValidationError as error:
        raise Refused("contradiction", str(error)) from error
    except StoreError as error:
        waits = settings.get("wait_fsync") or settings.get("wait_replicas")
        if isinstance(error, MissingRights | UnreadableRecord) or not waits:
            raise
        detail = f"expected a store that can wait as the settings say, got {error}"
        raise Refused("unsupported-setting", detail) from error


class RemovalQuery(Model):
    """Options of a removal."""

    force: bool = Field(default=False, description="Also with trees in flight: no spout hears of them again.")


@router.delete("/{topology}", responses=declared(404, 409, 429))
async def remove_topology(
    request: Request, ledger: LedgerDep, query: Annotated[RemovalQuery, Query()]
) -> Removed:
    """Removes a topology with all that it holds: streams, kept rows and dead letters, too.

    Refused while trees are in flight or have an outcome that is not confirmed, unless it is forced. Stop its
    jobs first, because a job that still works on it stores it again.
    """
    name = ledger.config.name
    async with noting(request, ledger, "remove", {"force": query.force}) as noted:  # only a refusal stays
        noted.count = await ledger.run(remove(name, force=query.force))
    return Removed(topology=name, dropped=noted.count)


class RotationQuery(Model):
    """Options of a rotation."""

    force: bool = Field(
        default=False, description="Also with open segments of the key before: their records expire."
    )


@router.post("/{topology}/stamp-keys", responses=declared(404, 409, 429))
async def rotate_stamp_keys(
    request: Request, ledger: LedgerDep, query: Annotated[RotationQuery, Query()]
) -> Rotated:
    """Gives the stamps of each external stream of a topology a new key; rows with the key before go on.

    Refused while segments of the key before the present one are open, unless it is forced. Not for another
    try after a lost answer: that is a further rotation.
    """
    async with noting(request, ledger, "rotate-keys", {"force": query.force}) as noted:
        dropped = await ledger.run(rotate(ledger.core, force=query.force))
        noted.count = len(dropped)
    found = [RotatedStream(stream=stream, dropped=count) for stream, count in sorted(dropped.items())]
    return Rotated(topology=ledger.config.name, streams=found)


@router.patch("/{topology}/thresholds", responses=declared(404, 413, 429))
async def set_thresholds(
    request: Request, service: ServiceDep, ledger: LedgerDep, body: ThresholdsBody
) -> Thresholds:
    """Sets from where on something is a trouble of this topology; what is left out stays as it is."""
    asked = body.model_dump(exclude_none=True)
    async with noting(request, ledger, "set-thresholds", asked) as noted:
        wanted = await ledger.run(rules.set_thresholds(ledger.core, asked))
        noted.count = len(asked)
    service.forget_health(ledger.config.name)
    return Thresholds(**asdict(wanted))


CodePath = Annotated[troubles.Code, Path(description="The code of a trouble.")]


@router.put("/{topology}/mutes/{code}", response_model=Mute, responses=declared(404, 413, 429))
async def mute_trouble(
    service: ServiceDep, ledger: LedgerDep, request: Request, code: CodePath, body: MuteBody
) -> troubles.Mute:
    """Mutes a trouble for a time: it stays in health as muted, with its author, reason and end.

    It may be there already, or come later. A further mute takes the place of the one before.
    """
    asked = {"trouble": code, "seconds": body.seconds}
    async with noting(request, ledger, "mute", asked, reason=body.reason):
        mute = await ledger.run(
            rules.mute(ledger.core, code, by=request.state.client, reason=body.reason, seconds=body.seconds)
        )
    service.forget_health(ledger.config.name)
    return mute


@router.delete("/{topology}/mutes/{code}", status_code=HTTPStatus.NO_CONTENT, responses=declared(404, 429))
async def unmute_trouble(request: Request, service: ServiceDep, ledger: LedgerDep, code: CodePath) -> None:
    """Ends the mute of a trouble, if there is one."""
    async with noting(request, ledger, "unmute", {"trouble": code}):
        await ledger.run(rules.unmute(ledger.core, code))
    service.forget_health(ledger.config.name)
