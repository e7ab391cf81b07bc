"""The service as a program: `acker serve`."""

import logging
import ssl
import sys
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate by which a service speaks TLS. key: "" if it is in the same file."""

    file: str
    key: str

    @classmethod
    def load(cls, file: str, key: str) -> "Certificate | None":
        """Checks both files; None without any. Raises ValidationError."""
        if not file:
            if key:
                raise ValidationError("--ssl-keyfile goes with --ssl-certfile")
            return None
        try:
            # A key that is encrypted takes a password, for which nobody may be asked here.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, key or None, password=b"")
        except (OSError, ValueError) as error:
            raise ValidationError(
                f"--ssl-certfile {file}: expected PEM files of a certificate and its unencrypted key: {error}"
            ) from None
        return cls(file, key)


def serve(settings: Settings, host: str, port: int, certificate: Certificate | None = None) -> None:
    """Serves until SIGINT or SIGTERM, whose handlers of before are called then. certificate: for TLS.

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
        ssl_certfile=certificate.file if certificate else None,
        ssl_keyfile=certificate.key or None if certificate else None,
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
            scheme = "https" if self.config.is_ssl else "http"
            sys.stdout.write(f"{scheme}://{shown}:{port}\n")
            sys.stdout.flush()
            logging.getLogger(__name__).info("serving on %s://%s:%d", scheme, shown, port)
