"""Dead letters: rows that were given up, by page and by group; their replay, their end, and their export."""

import json
import math
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import StreamingResponse

from acker.errors import SpoutPendingFull, TrackRejected, UnknownDeadLetter, ValidationError
from acker.inspect.operate.activity import NAMED
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.fields import as_json, json_line
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters.dead_letters import Filter, GroupPage, LettersPage
from api.asgi.logs import note
from api.asgi.noting import noting
from api.fields import Paged
from api.models.answers import DeadLetter, DeadLetters, Groups
from api.models.dead_letters import (
    DeadLetterId,
    DiscardResult,
    Matching,
    Named,
    Refusal,
    Replayed,
    ReplayResult,
    Those,
)
from api.problems import declared, known_cursor
from api.service.service import LedgerDep, check_spout

router = APIRouter(prefix="/topologies/{topology}/dead-letters", tags=["dead letters"])

_EXPORTED = 200
_ROW_BYTES = 65_536
"""Most bytes of a row as JSON in a list."""
_LINES = "application/x-ndjson"


class DeadLettersQuery(Matching, Paged):
    """A filter of dead letters, and a page."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50


class GroupsQuery(Matching, Paged):
    """A filter of dead letters, and the columns to group them by."""

    by: Annotated[list[dead_letters.By], Field(min_length=1, max_length=3)] = Field(
        default_factory=lambda: list(dead_letters.BY)
    )


def _answer(request: Request, letter: dead_letters.DeadLetter, most: float = math.inf) -> dict[str, Any]:
    """A dead letter as a request may see it: without its row, if that has over `most` bytes of JSON."""
    shown: dict[str, Any] = as_json(letter)
    if not request.state.rows:
        return {**shown, "row": None, "row_left_out": "scope"}
    if most < math.inf and len(json.dumps(shown["row"])) > most:
        return {**shown, "row": None, "row_left_out": "large"}
    return shown


LetterId = Annotated[DeadLetterId, Path()]


class _IdConvertor(StringConvertor):
    """An id in a path, which no other name there is: each path has just the methods that it allows."""

    regex = "[^/]*@[^/]*"


register_url_convertor("dead_letter", _IdConvertor())


@router.get("", response_model=DeadLetters, responses=declared(404))
async def list_dead_letters(
    request: Request, ledger: LedgerDep, query: Annotated[DeadLettersQuery, Query()]
) -> dict[str, Any]:
    """Rows that were given up after their last attempt: by spout, and for each the oldest first.

    A page looks at a bounded number of them, so with a filter it may hold fewer than its limit, or none, and
    a cursor all the same: go on until there is none. Rows that are given up meanwhile are not among them.
    """
    asked = _filter(ledger, query)
    with known_cursor():
        page = await ledger.run(dead_letters.page(ledger.core, asked, limit=query.limit, cursor=query.cursor))
    letters = [_answer(request, letter, _ROW_BYTES) for letter in page.letters]
    return {"dead_letters": letters, "cursor": page.cursor}


@router.get("/groups", response_model=Groups, responses=declared(404))
async def group_dead_letters(ledger: LedgerDep, query: Annotated[GroupsQuery, Query()]) -> GroupPage:
    """Counts dead letters by cause, step and status, the largest group first.

    A page counts up to 10,000 of them: add the groups of all pages up, until there is no cursor.
    """
    asked, by = _filter(ledger, query), tuple(dict.fromkeys(query.by))
    with known_cursor():
        return await ledger.run(dead_letters.groups(ledger.core, asked, by=by, cursor=query.cursor))


@router.get(
    "/export",
    responses={
        200: {
            "description": "A line of JSON for each, as in a list; a row is there however large it is.",
            "content": {_LINES: {"schema": {"type": "string"}}},
        },
        **declared(404),
    },
    response_class=StreamingResponse,
    response_model=None,
)
async def export_dead_letters(
    request: Request, ledger: LedgerDep, query: Annotated[Matching, Query()]
) -> StreamingResponse:
    """All dead letters of a filter that there are now, as JSON lines; cut short where the store goes away."""
    asked = _filter(ledger, query)
    first = await ledger.run(dead_letters.page(ledger.core, asked, limit=_EXPORTED))
    return StreamingResponse(_lines(request, ledger, asked, first), media_type=_LINES)


@router.get("/{id:dead_letter}", response_model=DeadLetter, responses=declared(404))
async def get_dead_letter(request: Request, ledger: LedgerDep, id: LetterId) -> dict[str, Any]:  # noqa: A002
    """One dead letter, with its whole row."""
    return _answer(request, await ledger.run(dead_letters.get(ledger.core, id)))


@router.post("/replay", responses=declared(404, 413, 429))
async def replay_dead_letters(request: Request, ledger: LedgerDep, body: Named | Those) -> ReplayResult:
    """Gives dead letters a new tree each, as their first attempt, and publishes their rows again.

    Of a filter's one call takes up to 500: go on until there is no cursor. What fails again meanwhile is not
    among them. Any number of clients may do it at once: each dead letter is replayed once.
    """
    if isinstance(body, Named):
        return await _replay(request, ledger, list(dict.fromkeys(body.ids)))
    matching, asked = _filter(ledger, body.matching), _noted(request, body)
    async with noting(request, ledger, "replay", asked, pieces=True) as noted:
        with known_cursor():
            done = await ledger.run(
                dead_letters.replay_some(ledger.core, matching, cursor=body.cursor, until=_until(body))
            )
        noted.count, noted.result = len(done.anchors), done.waits
        if done.refused:
            noted.result = f"{len(done.refused):,} cannot be replayed: {done.refused[0].why}"
    return ReplayResult(
        replayed=[Replayed(id=letter, anchor=str(anchor)) for letter, anchor in done.anchors.items()],
        unknown=[],
        rejected=[],
        refused=[Refusal(id=one.id, why=one.why) for one in done.refused],
        waits=done.waits or None,
        cursor=done.cursor,
    )


@router.post("/discard", responses=declared(404, 413, 429))
async def discard_dead_letters(request: Request, ledger: LedgerDep, body: Named | Those) -> DiscardResult:
    """Drops dead letters for good, with their rows. Of a filter's as `replay`, step by step."""
    if isinstance(body, Named):
        return await _discard(request, ledger, list(dict.fromkeys(body.ids)))
    matching, asked = _filter(ledger, body.matching), _noted(request, body)
    async with noting(request, ledger, "discard", asked, pieces=True) as noted:
        with known_cursor():
            done = await ledger.run(
                dead_letters.discard_some(ledger.core, matching, cursor=body.cursor, until=_until(body))
            )
        noted.count = done.count
    return DiscardResult(discarded=done.count, unknown=[], cursor=done.cursor)


@router.post("/{id}/replay", responses=declared(404, 413, 429))
async def replay_dead_letter(request: Request, ledger: LedgerDep, id: LetterId) -> ReplayResult:  # noqa: A002
    """Gives a dead letter a new tree, as its first attempt, and publishes its row again."""
    result = await _replay(request, ledger, [id])
    if result.unknown:
        raise _unknown(ledger, id)
    return result


@router.delete("/{id:dead_letter}", responses=declared(404, 429))
async def discard_dead_letter(request: Request, ledger: LedgerDep, id: LetterId) -> DiscardResult:  # noqa: A002
    """Drops a dead letter for good, with its row."""
    result = await _discard(request, ledger, [id])
    if result.unknown:
        raise _unknown(ledger, id)
    return result


async def _discard(request: Request, ledger: AsyncLedger, ids: list[str]) -> DiscardResult:
    note(request, dead_letters=ids)
    async with noting(request, ledger, "discard", _listed(ids)) as noted:
        unknown = await ledger.run(dead_letters.discard(ledger.core, ids))
        noted.count = len(ids) - len(unknown)
        if unknown:
            noted.result = f"{len(unknown):,} were no dead letters"
    return DiscardResult(discarded=noted.count, unknown=unknown, cursor=None)


async def _replay(request: Request, ledger: AsyncLedger, ids: list[str]) -> ReplayResult:
    note(request, dead_letters=ids)
    replayed, unknown, rejected, refused = [], [], [], []
    async with noting(request, ledger, "replay", _listed(ids)) as noted:
        for letter in ids:
            try:
                anchor = await ledger.run(dead_letters.replay(ledger.core, letter))
            except UnknownDeadLetter:
                unknown.append(letter)
            except (TrackRejected, SpoutPendingFull):
                rejected.append(letter)
            except ValidationError as error:
                refused.append(Refusal(id=letter, why=str(error)))
            else:
                replayed.append(Replayed(id=letter, anchor=str(anchor)))
                noted.count += 1
        if left := len(ids) - noted.count:
            noted.result = f"{left:,} were not replayed"
    return ReplayResult(
        replayed=replayed, unknown=unknown, rejected=rejected, refused=refused, waits=None, cursor=None
    )


async def _lines(
    request: Request, ledger: AsyncLedger, matching: Filter, page: LettersPage
) -> AsyncIterator[str]:
    while True:
        if page.letters:
            yield "".join(json_line(_answer(request, letter)) for letter in page.letters)
        if page.cursor is None:
            return
        page = await ledger.run(dead_letters.page(ledger.core, matching, limit=_EXPORTED, cursor=page.cursor))


def _filter(ledger: AsyncLedger, matching: Matching) -> Filter:
    """The filter that is asked for; UnknownSpout where the topology has no such spout."""
    check_spout(ledger, matching.spout)
    return Filter(**matching.model_dump(include=set(Matching.model_fields), exclude_none=True))


def _listed(ids: list[str]) -> dict[str, object]:
    """The dead letters that a request names, for its activity."""
    return {"dead letters": len(ids), "ids": ids[:NAMED]}


def _noted(request: Request, body: Those) -> dict[str, object]:
    """The filter of a request, for its activity; the log has it, too."""
    asked: dict[str, object] = body.matching.model_dump(exclude_none=True)
    note(request, matching=asked)
    return asked or {"dead letters": "all"}


def _until(body: Those) -> float | None:
    return None if body.until is None else max(0.0, body.until.timestamp())


def _unknown(ledger: AsyncLedger, letter: str) -> Exception:
    return UnknownDeadLetter(f"topology {ledger.config.name!r} has no dead letter {letter!r}")
