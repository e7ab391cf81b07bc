"""Access: tokens, addresses, other sites, sizes and rates. All are checked before a body is read."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.asgi.dashboard import SERVICES
from api.problems import Refused
from api.settings.settings import Settings
from api.settings.tokens import Scope as TokenScope
from api.settings.tokens import Token

_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_ACCESS, _CALLS = "/api/v1/access", "/api/v1/drpc"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CLIENTS = 10_000
_BURST_SECONDS = 10.0

HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


def is_loopback(host: str) -> bool:
    """True if an address or a name is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_open(scope: Scope) -> bool:
    """True if a request needs no token: it asks for the state of the service, or for a file of the dashboard.

    The path is the one that the router sees, without the root path; what a route takes is data.
    """
    path = get_route_path(scope)
    if path in _HEALTH:
        return True
    taken = any(route.matches(scope)[0] is not Match.NONE for route in scope["app"].routes)
    return not taken and not path.startswith(SERVICES)


class Rate:
    """Token buckets, one for each client; the bucket of a client that is silent for long is dropped."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self.most = max(1.0, per_second * _BURST_SECONDS)
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Takes one; 0.0, or the seconds after which there is one."""
        now = time.monotonic()
        left, at = self._clients.pop(client, (self.most, now))
        left = min(self.most, left + (now - at) * self.per_second)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self.per_second
        self._clients[client] = (left if wait else left - 1.0, now)
        if len(self._clients) > _CLIENTS:
            self._clients.popitem(last=False)
        return wait


class Access:
    """ASGI middleware: refuses what is not allowed, and sets the headers that protect a browser.

    With tokens, each request for data needs one: `read` to look, `operate` to change, and `rows` beside these
    to see rows of dead letters. Without, requests are
    taken on the loopback address only, under its own names and not from pages of other sites, so that no page
    in a browser on this machine reaches the service.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._tokens = settings.access
        self._names = {"localhost", *settings.hosts.lower().replace(",", " ").split()}
        self._most = settings.body_bytes
        self._writes = Rate(settings.writes_per_second)
        self._reads = Rate(settings.reads_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = _protected(message["headers"], is_open(scope))
            await send(message)

        headers = Headers(scope=scope)
        body = _Body(receive, self._most)
        try:
            self._check(scope, headers)
            await self.app(scope, body.receive, guarded)
        except Refused as error:
            await error.response()(scope, receive, guarded)
        except Exception as error:
            if started:
                raise
            await problems.broken(scope["method"], scope["path"], error)(scope, receive, guarded)

    def _check(self, scope: Scope, headers: Headers) -> None:
        hosts = len(headers.getlist("host"))
        if hosts > 1 or (hosts == 0 and scope["http_version"] == "1.1"):
            # What stands before the service may have gone by the other one (RFC 9112, 3.2).
            raise Refused("bad-request", f"Host: expected one, got {hosts}")
        writes = scope["method"] not in _SAFE
        client = (scope.get("client") or ("unknown",))[0]
        allowed: TokenScope = "operate"
        rows = True
        state = scope.setdefault("state", {})
        state.update(client=client, proved=False)
        if not is_open(scope):
            if self._tokens:
                token = self._authenticate(headers)
                state.update(client=token.client, proved=True)  # for the log, if it is refused
                if time.time() >= token.until:
                    raise _unauthorized(f"the time of token {token.client!r} is over")
                _check_scope(token, scope)
                client, allowed, rows = token.client, token.scope, token.rows
            else:
                self._local(scope, headers)
            if writes and not _same_site(headers):
                raise Refused("other-site", "writes from pages of other sites are refused")
        state.update(scope=allowed, rows=rows)
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            raise Refused("bad-request", "Content-Length: expected a number")
        if int(length[:20]) > self._most:
            raise too_large(self._most)
        rate, requests = (self._writes, "writes") if writes else (self._reads, "reads")
        if (writes or not is_open(scope)) and (wait := rate.take(client)):
            raise Refused(
                f"too-many-{requests}",
                f"at most {rate.per_second:g} {requests} a second in the long run",
                {"Retry-After": str(max(1, round(wait)))},
            )

    def _authenticate(self, headers: Headers) -> Token:
        scheme, _, presented = headers.get("authorization", "").partition(" ")
        token = self._tokens.find(presented.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise _unauthorized(
                "expected the header Authorization: Bearer, with a token that the service knows"
            )
        return token

    def _local(self, scope: Scope, headers: Headers) -> None:
        server = (scope.get("server") or ("",))[0]
        if not is_loopback(server):
            raise Refused(
                "no-tokens",
                "without tokens (ACKER_TOKENS) the service answers on the loopback address only",
            )
        # A page of another site may have its name resolve to this machine (DNS rebinding).
        host = _host(headers)
        if not is_loopback(host) and host not in self._names:
            raise Refused("unknown-host", f"the service has no name {host!r}: see ACKER_HOSTS")


class _Body:
    """A request's body, refused when it gets too large whatever its headers say."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._left, self._most = receive, most, most

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise too_large(self._most)
        return message


def _unauthorized(detail: str) -> Refused:
    return Refused("unauthorized", detail, {"WWW-Authenticate": 'Bearer realm="acker"'})


def _check_scope(token: Token, scope: Scope) -> None:
    """Raises Refused for what a token does not allow."""
    path, writes = get_route_path(scope), scope["method"] not in _SAFE
    of_calls = path.startswith(_CALLS) and scope["method"] != "DELETE"
    if token.scope == "read" and writes:
        what = "calls need scope call, or operate" if of_calls else "writes need scope operate"
        raise Refused("read-only", f"token {token.client!r} allows to read; {what}")
    if token.scope == "call" and not of_calls and path != _ACCESS:
        raise Refused(
            "calls-only",
            f"token {token.client!r} allows to call functions; all else needs scope read, or operate",
        )


def too_large(most: int) -> Refused:
    """Returns the refusal of a body with more bytes."""
    return Refused("body-too-large", f"expected at most {most:,} bytes of body")


def _same_site(headers: Headers) -> bool:
    """True unless a browser reports that a page of another site sent this."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    except ValueError:  # an address in brackets that is none
        return False


def _host(headers: Headers) -> str:
    """The name under which the service was called, without its port. Raises Refused."""
    host = headers.get("host", "")
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        raise Refused("bad-request", f"Host: expected a name or an address, got {host!r:.100}") from None


def _protected(headers: Iterable[tuple[bytes, bytes]], openly: bool) -> list[tuple[bytes, bytes]]:
    fields = list(headers)
    present = {name.lower() for name, _ in fields}
    added = [(name, value) for name, value in HEADERS.items() if name not in present]
    if b"cache-control" not in present and not openly:
        added.append((b"cache-control", b"no-store"))
    return fields + added
