"""Structured logs: one JSON object a line, on stderr. Whatever clients send is escaped by that."""

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import unquote_plus

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.settings.settings import Settings

LINES = 1_000
"""Most lines that wait for the reader of the log."""
_END_SECONDS = 2.0
_ANCHORS = 20
"""Most anchors that a line names."""
_LONGEST = 1_000
_BROKEN_OFF = 499
"""The status of a request whose client left before its answer began; nginx has introduced the number."""
_REFUSED = (401, 403, 429)
"""Without a token that is known, without the right, too often."""

_SECRET = ("token", "password", "passwd", "pwd", "secret", "auth", "bearer", "credential")
"""Parts of the names of parameters whose values are no log's business; no parameter of ours has them."""

_log = logging.getLogger("api.requests")


class JSONLines(logging.Formatter):
    """Formats a record as JSON: time, level, logger, message, and what `extra` named `fields` holds."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class TextLines(logging.Formatter):
    """Formats a record as text, with what `extra` named `fields` holds behind it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - named by logging
        """The record as a line, without its exception."""
        named = (f"{name}={_shown(value)}" for name, value in getattr(record, "fields", {}).items())
        return " ".join([super().formatMessage(record), *named])


def _shown(value: object) -> str:
    """A value of a field on one line."""
    return json.dumps(value, ensure_ascii=True, default=str)


class Lines(logging.Handler):
    """Writes lines in a thread of its own, so that a log which nobody reads does not hold the service up.

    A pipe takes some 64 KiB and then blocks its writer. If `LINES` lines wait, further lines are dropped, and
    their number is logged as soon as there is room.
    """

    def __init__(self, file: int) -> None:
        super().__init__()
        self._file = file
        self._waiting: queue.Queue[str | None] = queue.Queue(LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Hands a record on; `logging` holds this handler's lock meanwhile."""
        try:
            if self._dropped:
                text = f"{self._dropped} lines of the log were dropped, which nobody read"
                warning = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)
                self._waiting.put_nowait(self.format(warning))
                self._dropped = 0
            self._waiting.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:  # noqa: BLE001 - as every handler: a line that cannot be written fails no request
            self.handleError(record)

    def close(self) -> None:
        """Waits a little for what is still to be written; Python's exit calls this."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_END_SECONDS)
            self._thread.join(_END_SECONDS)
        super().close()

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            left = f"{line}\n".encode(errors="backslashreplace")
            with contextlib.suppress(OSError):  # its reader is gone
                while left:
                    # Not through sys.stderr: a thread that waits in there keeps Python from ending.
                    left = left[os.write(self._file, left) :]


def configure(settings: Settings) -> None:
    """Sends all logs to stderr as the settings say."""
    handler = Lines(sys.stderr.fileno())
    if settings.log_format == "json":
        handler.setFormatter(JSONLines())
    else:
        handler.setFormatter(TextLines())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # Requests are logged by `Requests`, with their client and their duration.
    logging.getLogger("uvicorn.access").disabled = True


def note(request: Request, *, anchors: Sequence[str] = (), **fields: object) -> None:
    """Has the line of a request tell more of what was asked: of many anchors the first, and how many."""
    if anchors:
        fields |= {"anchors": list(anchors[:_ANCHORS]), "trees": len(set(anchors))}
    request.scope.setdefault("state", {}).setdefault("noted", {}).update(fields)


class Requests:
    """ASGI middleware: logs each request when it is answered.

    Writes are logged at level INFO with their arguments, refusals and failures at WARNING, reads at DEBUG.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        status, gone = 0, False

        async def heard() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, heard, noted)
        except Exception:
            status = status or 500
            raise
        finally:
            status = status or (_BROKEN_OFF if gone else 500)
            state, query = scope.get("state", {}), scope.get("query_string", b"")
            fields = {
                "method": scope["method"],
                "path": scope["path"][:_LONGEST],
                "status": status,
                "client": state.get("client", (scope.get("client") or ("",))[0]),
                "ms": round((time.monotonic() - started) * 1000, 1),
                **({"query": _query(query[:_LONGEST].decode("ascii", "replace"))} if query else {}),
                **state.get("noted", {}),
            }
            said = scope["method"], scope["path"][:_LONGEST], status
            _log.log(_level(scope["method"], status), "%s %r %d", *said, extra={"fields": fields})


def _query(text: str) -> str:
    """A query without the values of parameters that are named as secrets."""
    return "&".join(map(_parameter, text.split("&")))


def _parameter(text: str) -> str:
    name, equals, _ = text.partition("=")
    plain = unquote_plus(name).lower()
    return f"{name}=..." if equals and any(word in plain for word in _SECRET) else text


def _level(method: str, status: int) -> int:
    if status >= 500 or status in _REFUSED:
        return logging.WARNING
    return logging.DEBUG if method in ("GET", "HEAD", "OPTIONS") else logging.INFO
