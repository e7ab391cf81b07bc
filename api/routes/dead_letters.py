"""Dead letters: rows that were given up, and their replay."""

import base64
import json
import math
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from acker.aio import AsyncLedger
from acker.errors import SpoutPendingFull, TrackRejected, UnknownDeadLetter
from acker.streams import dead_letters
from api.fields import Name, instant, message_id_fields
from api.logs import note
from api.models.outcomes import DeadLetter, DeadLetterId, DeadLetters, ReplayBody, Replayed, ReplayResult
from api.problems import declared, not_found, unknown_spout
from api.service import LedgerDep

router = APIRouter(prefix="/topologies/{topology}/dead-letters", tags=["dead letters"])

_ROW_BYTES = 65_536
_EXACT = 2**53


class DeadLettersQuery(BaseModel):
    """Which page of dead letters."""

    model_config = ConfigDict(extra="forbid")

    spout: Name | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: DeadLetterId | None = Field(default=None, description="Of the page before.")


@router.get("", responses=declared(404))
async def list_dead_letters(ledger: LedgerDep, query: Annotated[DeadLettersQuery, Query()]) -> DeadLetters:
    """Rows that were given up after their last attempt: by spout, and for each the oldest first."""
    if query.spout is not None and query.spout not in ledger.core.spouts:
        raise unknown_spout(ledger.config.name, query.spout)
    page = await ledger.run(
        dead_letters.page(ledger.core, spout=query.spout, after=query.cursor, count=query.limit)
    )
    return DeadLetters(dead_letters=[_dead_letter(letter) for letter in page.letters], cursor=page.cursor)


@router.post("/replay", responses=declared(404, 413, 429))
async def replay_dead_letters(request: Request, ledger: LedgerDep, body: ReplayBody) -> ReplayResult:
    """Gives dead letters a new tree each, as their first attempt, and publishes their rows again."""
    note(request, dead_letters=body.ids)
    return await _replay(ledger, list(dict.fromkeys(body.ids)))


@router.post("/{id}/replay", responses=declared(404, 413, 429))
async def replay_dead_letter(
    request: Request,
    ledger: LedgerDep,
    id: Annotated[DeadLetterId, Path()],  # noqa: A002
) -> ReplayResult:
    """Gives a dead letter a new tree, as its first attempt, and publishes its row again."""
    note(request, dead_letters=[id])
    result = await _replay(ledger, [id])
    if result.unknown:
        raise not_found("unknown-dead-letter", f"topology {ledger.config.name!r} has no dead letter {id!r}")
    return result


async def _replay(ledger: AsyncLedger, wanted: list[str]) -> ReplayResult:
    replayed, unknown, rejected = [], [], []
    for letter in wanted:
        try:
            anchor = await ledger.run(dead_letters.replay(ledger.core, letter))
        except UnknownDeadLetter:
            unknown.append(letter)
        except (TrackRejected, SpoutPendingFull):
            rejected.append(letter)
        else:
            replayed.append(Replayed(id=letter, anchor=str(anchor)))
    return ReplayResult(replayed=replayed, unknown=unknown, rejected=rejected)


def _dead_letter(letter: dead_letters.DeadLetter) -> DeadLetter:
    row = _plain(letter.row)
    return DeadLetter(
        id=letter.id,
        spout=letter.spout,
        status=letter.status,  # type: ignore[arg-type]
        reason=letter.reason,
        anchor=str(letter.anchor),
        attempts=letter.attempts,
        at=instant(letter.at),
        stream=letter.stream,
        row=row if len(json.dumps(row)) <= _ROW_BYTES else None,
        **message_id_fields(letter.message_id),
    )


def _plain(value: object) -> Any:
    """A value of a row for JSON: as text, what is none of JSON's, and numbers that JavaScript would round."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
