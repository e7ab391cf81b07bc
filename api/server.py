"""The service as a program: `acker serve`."""

import logging
import sys

import uvicorn

from acker.errors import ValidationError
from api.asgi import logs
from api.asgi.access import is_loopback
from api.asgi.connections import limited
from api.main import create_app, freeze
from api.settings.settings import Settings

GRACE_SECONDS = 10
"""Seconds that requests have to end when the service is stopped."""


def check_address(settings: Settings, host: str) -> None:
    """Raises ValidationError for an address that others can reach, where there are no tokens."""
    if not is_loopback(host) and not settings.access:
        raise ValidationError(
            f"--host {host}: on an address that others can reach the service needs tokens; set ACKER_TOKENS"
        )


def serve(settings: Settings, host: str, port: int) -> None:
    """Serves until SIGINT or SIGTERM, whose handlers of before are called then.

    Raises ValidationError for an address that needs tokens, and SystemExit where it cannot begin.
    """
    check_address(settings, host)
    logs.configure(settings)
    config = uvicorn.Config(
        create_app(settings),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=30,
        http=limited(settings),
        # Only named proxies may report the address of their client.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=settings.proxies.replace(" ", ",") or None,
    )
    server = _Server(config)
    freeze()
    with (
        server.capture_signals()
    ):  # uvicorn itself does so when its loop has begun, which a raise would break
        server.run()
    if not server.started:
        sys.exit(1)


class _Server(uvicorn.Server):
    """uvicorn, which says where it listens."""

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Starts listening."""
        await super().startup(sockets=sockets)  # type: ignore[arg-type]
        for listener in self.servers if self.started else []:
            host, port, *_ = listener.sockets[0].getsockname()
            shown = f"[{host}]" if ":" in host else host
            sys.stdout.write(f"http://{shown}:{port}\n")
            sys.stdout.flush()
            logging.getLogger(__name__).info("serving on http://%s:%d", shown, port)
