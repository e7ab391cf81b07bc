"""Connections that hold nobody up: each has a time limit for what it sends, a client has so many, all have.

uvicorn limits how long a connection is idle after an answer, and nothing else: some thousand connections that
never end their headers take every file that the process may open, those of the ticker too.
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

_SPARE_FILES = 128
"""Files that are left to the store's connections, the log and the dashboard."""

_log = logging.getLogger(__name__)


class Limits:
    """How many connections there may be, and how many there are."""

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

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP get the answer of any other bad request, and the connection ends."""
        answer = problems.answer(400, "bad-request", msg, headers={"Connection": "close"})
        head = [b"HTTP/1.1 400 Bad Request", *map(b": ".join, (*answer.raw_headers, *HEADERS.items()))]
        self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins: its headers and its body have one time limit."""
        super().on_message_begin()
        self._begin()

    def on_message_complete(self) -> None:
        """The request is here, with its body."""
        self._end()
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
