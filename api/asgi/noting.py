"""Notes the writes of people and programs in the activity of their topologies, and in the log."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Request

from acker.errors import AckerError
from acker.inspect.operate import activity
from acker.inspect.operate.activity import Action, Noting
from acker.ledger.async_ledger import AsyncLedger
from api.asgi.logs import note
from api.problems import Refused

_NOT_BEGUN = (404, 422)
"""Statuses of requests that were refused before anything was tried."""


@asynccontextmanager
async def noting(
    request: Request,
    ledger: AsyncLedger,
    action: Action,
    target: Mapping[str, object],
    *,
    reason: str = "",
    pieces: bool = False,
) -> AsyncIterator[Noting]:
    """Notes the write of its block when it ends: its author, what it was, and what came of it.

    Args:
        request: The request.
        ledger: The topology.
        action: The kind of write.
        target: The filter, ids or settings that it names.
        reason: The author's reason.
        pieces: True if the write is done in calls, one after the other: those on one target are one entry.
    """
    author = request.state.client
    run = _run(author, action, target, reason) if pieces else ""
    noted = Noting(author, request.state.proved, "rest", action, target, reason=reason, run=run)
    begun = True
    try:
        yield noted
    except AckerError as error:
        begun = noted.failed(error)
        raise
    except Refused as error:
        noted.done, noted.result = False, error.detail
        begun = error.status_code not in _NOT_BEGUN
        raise
    finally:
        counted: dict[str, Any] = {"count": noted.count} if action in activity.COUNTED else {}
        note(request, action=action, **counted, **({"result": noted.result} if noted.result else {}))
        if begun and noted.counts:
            await ledger.run(activity.note(ledger.core, noted))


def _run(author: str, action: str, target: Mapping[str, object], reason: str) -> str:
    """The name that all calls of one author on one target have."""
    text = json.dumps([author, action, target, reason], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
