"""The commands put together, and how each of them ends."""

import contextlib
import importlib
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from acker.cli import functions, lines, manual, records, serve, server, streams, tick, trees
from acker.cli.dead_letters import dead_letters, redrive
from acker.cli.demo import command
from acker.cli.shared.group import add, group
from acker.cli.shared.options import JsonBefore, TimeoutBefore, UrlBefore
from acker.cli.shared.output import one_line
from acker.cli.shared.statuses import Status, status_of
from acker.cli.topology import activity, chart_marks, health, pauses, topologies
from acker.errors import AckerError

# Typer carries its own copy of click since some version.
_USAGE_ERROR: Any = getattr(typer, "TyperException", None) or importlib.import_module("click").ClickException
_COMPLETE = "_ACKER_COMPLETE"

app = group("Look at and look after the ledgers of a store.", completion=True)
add(app, "topologies", topologies.topologies)
add(app, "stats", topologies.stats)
add(app, "health", health.health)
add(app, "complete", health.complete)
add(app, "configure", topologies.configure, more=topologies.SETTINGS_HELP)
add(app, "trees", trees.trees)
add(app, "tree", trees.tree, anchors=True)
add(app, "find", records.find, anchors=True)
add(app, "failures", records.failures)
add(app, "why", trees.why, anchors=True)
add(app, "stuck", streams.stuck)
add(app, "drops", streams.drops)
add(app, "fail", manual.fail, anchors=True)
add(app, "reset-timeout", manual.reset_timeout, anchors=True)
add(app, "lines", lines.lines, anchors=True)
add(app, "streams", streams.streams)
add(app, "subscribe", streams.subscribe)
add(app, "rename-subscription", streams.rename_subscription)
add(app, "reconcile", streams.reconcile)
add(app, "unsubscribe", streams.unsubscribe)
add(app, "readers", streams.readers)
add(app, "give-back", streams.give_back)
add(app, "dead-letters", dead_letters.dead_letters)
add(app, "dead-letter", dead_letters.dead_letter)
add(app, "replay", redrive.replay)
add(app, "discard", redrive.discard)
add(app, "pause", pauses.pause)
add(app, "resume", pauses.resume)
add(app, "activity", activity.activity)
add(app, "mark", chart_marks.mark)
add(app, "remove", topologies.remove)
app.add_typer(functions.app, name="drpc")
add(app, "tick", tick.tick)
add(app, "serve", serve.serve)
add(app, "server", server.server)
add(app, "demo", command.demo)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            installed = version("acker")
        except PackageNotFoundError:
            installed = "not installed"
        typer.echo(f"acker {installed}")
        raise typer.Exit


@app.callback()
def _acker(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    url: UrlBefore = None,
    timeout: TimeoutBefore = None,
    as_json: JsonBefore = False,
) -> None:
    pass  # `Commands` gives these to the command


def run(arguments: list[str]) -> int:
    """Runs a command; errors become one line on stderr. Returns the exit status."""
    try:
        command: Any = typer.main.get_command(app)
        if _COMPLETE in os.environ:
            command.main(arguments, prog_name="acker")
        with command.make_context("acker", arguments) as context:
            status = command.invoke(context)
        sys.stdout.flush()
        return Status.DONE if status is None else int(status)
    except typer.Exit as end:
        return end.exit_code
    except AckerError as error:
        return _fail(status_of(error), error)
    except (typer.Abort, KeyboardInterrupt):
        return Status.INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # its reader has enough of it
        return Status.PARTLY
    except OSError as error:  # errors of the store are AckerErrors
        _drop_output()
        return _fail(Status.PARTLY if error.filename is None else Status.USAGE, error)
    except _USAGE_ERROR as error:
        return _fail(Status.USAGE, error.format_message())


def _drop_output() -> None:
    """Keeps Python from writing the rest of the output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(status: Status, error: object) -> Status:
    with contextlib.suppress(OSError):  # nobody reads it
        sys.stderr.write(f"acker: {one_line(str(error))}\n")
        sys.stderr.flush()
    return status
