"""How values are written as JSON, by every face."""

import base64
from datetime import UTC, datetime


def instant(seconds: float) -> str:
    """A time in Unix seconds as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_id_fields(message_id: bytes | None) -> dict[str, str | None]:
    """A message id for JSON: as text, null where it is no UTF-8, and always as base64."""
    if message_id is None:
        return {"message_id": None, "message_id_base64": None}
    try:
        text = message_id.decode()
    except UnicodeDecodeError:
        text = None
    return {"message_id": text, "message_id_base64": base64.b64encode(message_id).decode()}
