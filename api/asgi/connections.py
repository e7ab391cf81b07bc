"""Connections that hold nobody up: each has a time limit for what it sends, a client has so many, all have.

uvicorn limits how long a connection is idle after an answer, and nothing else: some thousand connections that
never end their headers take every file that the process may open, also the files of the ticker.
"""

import asyncio
import logging
import resource
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api import problems
from api.asgi.access import HEADERS
from api.settings.settings import Settings

HEAD_BYTES = 32 << 10
"""Most bytes of a request line with its headers, of trailers, or between two parts of a body."""
HEADERS_OF_REQUEST = 100
"""Most headers, and trailers, of a request."""
_SPARE_FILES = 128
"""Files that are left to the store's connections, the log and the dashboard."""

_log = logging.getLogger(__name__)


class Limits:
    """The number of connections, and its limits."""

    def __init__(self, settings: Settings) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(1, min(settings.connections, files - _SPARE_FILES))
        self.of_client = settings.connections_of_client
        self.seconds = settings.request_seconds
        self.proxies = frozenset(settings.proxies.replace(",", " ").split())
        self.open = 0
        self.clients: Counter[str] = Counter()

    def take(self, client: str) -> bool:
        """Counts a connection of a client; False where there is no room for it."""
        if self.open >= self.most or (self.clients[client] >= self.of_client and client not in self.proxies):
            return False
        self.open += 1
        self.clients[client] += 1
        return True

    def give_back(self, client: str) -> None:
        """Counts a connection that has ended."""
        self.open -= 1
        self.clients[client] -= 1
        if not self.clients[client]:
            del self.clients[client]


class Connection(HttpToolsProtocol):
    """A connection with limits: a subclass has them (`limited`)."""

    limits: Limits
    _taken = ""
    _left = HEAD_BYTES
    _goes_on = False
    _headers = 0
    _refused = False
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Counts it, or ends it at once; from here on the first request has its time."""
        super().connection_made(transport)
        client = self.client[0] if self.client else "local"
        if self.limits.take(client):
            self._taken = client
            self._begin()
        else:
            _log.warning("a connection of %s was refused: there are %d", client, self.limits.open)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives its place back."""
        self._end()
        self.resume_writing()
        if self._taken:
            self.limits.give_back(self._taken)
            self._taken = ""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses piece by piece, because the parser gathers a header of any length."""
        while data and not self._refused and not self.transport.is_closing():
            piece, data = data[: self._left], data[self._left :]
            self._goes_on = False
            super().data_received(piece)
            self._left = HEAD_BYTES if self._goes_on else self._left - len(piece)
            if self._left <= 0 or self._headers > HEADERS_OF_REQUEST:
                self._refuse_head()

    def _refuse_head(self) -> None:
        """Refuses a head that is too large, and ends the connection; an answer under way is cut off."""
        if self._refused:
            return
        self._refused = True
        cycle: Any = self.cycle  # None before the first request
        if cycle and not cycle.response_complete:
            self.transport.abort()
            return
        most = f"{HEAD_BYTES:,} bytes and {HEADERS_OF_REQUEST} headers"
        detail = f"expected a head of at most {most}, got a larger one"
        self._answer_and_close(b"431 Request Header Fields Too Large", "head-too-large", detail)

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP get the answer of any other bad request, and the connection ends."""
        if not self._refused:
            self._answer_and_close(b"400 Bad Request", "bad-request", msg)

    def _answer_and_close(self, status: bytes, kind: str, detail: str) -> None:
        answer = problems.answer(int(status[:3]), kind, detail, headers={"Connection": "close"})
        head = [b"HTTP/1.1 " + status, *map(b": ".join, (*answer.raw_headers, *HEADERS.items()))]
        self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins: its headers and its body have one time limit."""
        super().on_message_begin()
        self._goes_on, self._headers = True, 0
        self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after the body: so many are taken."""
        self._headers += 1
        if self._headers <= HEADERS_OF_REQUEST:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: the request begins, unless it has too many headers."""
        self._goes_on = True
        if self._headers > HEADERS_OF_REQUEST:
            self._refuse_head()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._goes_on = True
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here, with its body."""
        self._end()
        self._goes_on = True
        if not self._refused:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not take what it is sent: for so long, no longer."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken some of it."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _begin(self) -> None:
        self._end()
        self._timer = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limited(settings: Settings) -> type[Connection]:
    """The protocol for uvicorn's `http`, with limits of its own."""
    body: dict[str, Any] = {"limits": Limits(settings)}
    return type("LimitedConnection", (Connection,), body)
