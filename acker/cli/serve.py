"""`acker serve`: the service, with the ticker and the dashboard."""

import importlib.util
import signal
import sys
from contextlib import ExitStack
from types import FrameType
from typing import Annotated

import typer

from acker.cli.shared.options import Url
from acker.cli.shared.statuses import Status
from acker.embedded import EmbeddedServer
from acker.embedded.server import check_port
from acker.errors import NotInstalled, ValidationError
from acker.ledger.settings.topologies import names as topology_names
from acker.store.client import Store

_NEEDED = ("fastapi", "uvicorn", "pydantic_settings", "prometheus_client", "pyarrow")


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0 takes a free one.")] = 8080,
    url: Url = "",
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start the embedded server beside it.")
    ] = False,
    ssl_certfile: Annotated[
        str, typer.Option(help="A PEM file of the service's certificate and its chain: serve by TLS.")
    ] = "",
    ssl_keyfile: Annotated[
        str, typer.Option(help="A PEM file of its key, where that is not in the same file.")
    ] = "",
    otel: Annotated[
        bool,
        typer.Option("--otel", help="Export traces by OpenTelemetry, as OTEL_EXPORTER_OTLP_ENDPOINT says."),
    ] = False,
) -> None:
    """Serve REST, live events, metrics and the dashboard, and tick all topologies, until it is stopped.

    Settings are read from the environment: see docs/api.md.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise NotInstalled(f"the service needs {', '.join(missing)}: install acker with its extra 'api'")
    if embedded and url:
        raise ValidationError("--embedded starts a store of its own: it goes with no --url and no ACKER_URL")
    from api.asgi.dashboard import preparing
    from api.server import Certificate, check_address
    from api.server import serve as run
    from api.settings.settings import settings

    check_address(settings(url=url), host)
    check_port(port, host)
    certificate = Certificate.load(ssl_certfile, ssl_keyfile)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)  # the service sets its own while it runs
    with ExitStack() as stack:
        if embedded:
            running = stack.enter_context(EmbeddedServer())
            url = running.url
            sys.stderr.write(f"acker: store {url}, data in {running.directory} while it runs\n")
        if not url:
            raise ValidationError("no store: name one by --url or ACKER_URL, or start one by --embedded")
        given = settings(url=url, **({"otel": True} if otel else {}))
        if given.otel and importlib.util.find_spec("opentelemetry.sdk") is None:
            raise NotInstalled(
                "to export traces takes the OpenTelemetry SDK: install acker with its extra 'otel'"
            )
        Store(url, timeout=given.timeout, cluster=given.cluster).run(topology_names())
        # Programs can do without it, and people have to wait for it the first time only.
        stack.enter_context(preparing(_no_dashboard))
        run(given, host, port, certificate)


def _no_dashboard(why: str) -> None:
    sys.stderr.write(f"acker: no dashboard: {why}\n")
    sys.stderr.flush()


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the command in good order (see `Stop.status`); further signals do not disturb it."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(Status.INTERRUPTED if number == signal.SIGINT else Status.DONE)
