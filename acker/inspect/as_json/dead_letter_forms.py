"""Dead letters, and what is found of a record, as JSON for every face.

64-bit ids are text, times ISO 8601, message ids are there twice: as text and as bytes.
"""

import base64
import json
import math
from dataclasses import asdict
from typing import Any

from acker.inspect.as_json.values import instant, message_id_fields
from acker.inspect.trees.find_record import Found, FoundAttempt
from acker.streams.dead_letters.pages import Group
from acker.streams.sources.dead_letter_store import DeadLetter, Head

ROW_BYTES = 65_536
"""Most bytes of a row as JSON in a list: a larger one is null there."""
_EXACT = 2**53


def head(one: Head) -> dict[str, Any]:
    """The facts of a dead letter, beside its row."""
    return {
        "id": one.id,
        "spout": one.spout,
        **message_id_fields(one.message_id),
        "anchor": str(one.anchor),
        "status": one.status,
        "reason": one.reason,
        "step": one.step,
        "batch": one.batch,
        "attempts": one.attempts,
        "at": instant(one.at),
        "stream": one.stream,
    }


def letter(one: DeadLetter, most: int | None = None) -> dict[str, Any]:
    """A dead letter with its row; null for a row of more than `most` bytes as JSON."""
    row = plain(one.row)
    fits = most is None or len(json.dumps(row)) <= most
    history = [asdict(each) | {"at": instant(each.at)} for each in one.history]
    return {**head(one), "row": row if fits else None, "history": history}


def line(one: DeadLetter) -> str:
    """A dead letter as a line of JSON, with its whole row."""
    return json.dumps(letter(one), separators=(",", ":")).replace("\x7f", "\\u007f") + "\n"


def group(one: Group) -> dict[str, Any]:
    """A group of dead letters."""
    return {
        "cause": one.cause,
        "step": one.step,
        "status": one.status,
        "count": one.count,
        "oldest": instant(one.oldest),
        "newest": instant(one.newest),
        "reason": one.reason,
    }


def found(one: Found) -> dict[str, Any]:
    """Finds of a message id."""
    return {
        **message_id_fields(one.message_id),
        "records": [
            {
                "spout": record.spout,
                "attempts": [_attempt(each) for each in record.attempts],
                "dead_letters": [head(each) for each in record.letters],
            }
            for record in one.records
        ],
        "looked": one.looked,
        "of": one.of,
        "cursor": one.cursor,
    }


def _attempt(one: FoundAttempt) -> dict[str, Any]:
    return {
        **asdict(one),
        "anchor": None if one.anchor is None else str(one.anchor),
        "tracked_at": None if one.tracked_at is None else instant(one.tracked_at),
        "at": None if one.at is None else instant(one.at),
    }


def plain(value: object) -> Any:
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
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
