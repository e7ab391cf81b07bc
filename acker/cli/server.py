"""`acker server`: the embedded server in the foreground."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from acker.cli.shared.options import Json
from acker.cli.shared.output import show_json
from acker.cli.shared.statuses import Status
from acker.cli.shared.stopping import stop_on_signals
from acker.embedded import EmbeddedServer
from acker.embedded.server import check_port
from acker.errors import StoreUnavailable


def server(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where the data lie and stay; else they go when it ends.")
    ] = None,
    port: Annotated[int, typer.Option(help="TCP port; 0 takes a free one.")] = 6379,
    append_only: Annotated[
        bool, typer.Option("--append-only/--no-append-only", help="Keep the data through a crash.")
    ] = True,
    as_json: Json = False,
) -> Status:
    """Run the embedded server on 127.0.0.1 until it is stopped."""
    check_port(port)
    stop = stop_on_signals()
    with EmbeddedServer(directory, port=port, append_only=append_only) as running:
        if as_json:
            show_json({"url": running.url, "pid": running.pid, "directory": str(running.directory)})
        else:
            sys.stdout.write(f"{running.url}\n")
            sys.stderr.write(f"acker: data in {running.directory}; Ctrl-C stops it\n")
        sys.stdout.flush()
        while not stop.wait(0.2):
            if not running.running:
                raise StoreUnavailable(
                    f"the server ended by itself; its log is {running.directory}/server.log"
                )
    return stop.status
