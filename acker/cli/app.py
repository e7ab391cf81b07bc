"""The commands put together, and how each of them ends."""

import importlib
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from acker.cli import (
    configure,
    dead_letters,
    demo,
    drpc,
    find,
    health,
    lines,
    places,
    read,
    remove,
    serve,
    server,
    streams,
    tick,
    write,
)
from acker.cli.output import one_line
from acker.errors import AckerError, ValidationError

FAILED, USAGE, INTERRUPTED = 1, 2, 130
# Typer carries its own copy of click since some version.
_USAGE_ERROR: Any = getattr(typer, "TyperException", None) or importlib.import_module("click").ClickException

app = typer.Typer(
    name="acker",
    help="Look at and look after the ledgers of a store.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# An anchor is negative as often as not, and a message id is any text.
# So what looks like an option and is none is an argument.
ANCHORS = {"ignore_unknown_options": True}
app.command("topologies")(read.topologies)
app.command("stats")(read.stats)
app.command("health")(health.health)
app.command("configure", epilog=configure.SETTINGS_HELP)(configure.configure)
app.command("trees")(read.trees)
app.command("tree", context_settings=ANCHORS)(read.tree)
app.command("find", context_settings=ANCHORS)(find.find)
app.command("why", context_settings=ANCHORS)(places.why)
app.command("stuck")(places.stuck)
app.command("drops")(places.drops)
app.command("fail", context_settings=ANCHORS)(write.fail)
app.command("reset-timeout", context_settings=ANCHORS)(write.reset_timeout)
app.command("lines", context_settings=ANCHORS)(lines.lines)
app.command("streams")(streams.streams)
app.command("unsubscribe")(streams.unsubscribe)
app.command("readers")(streams.readers)
app.command("give-back")(streams.give_back)
app.command("dead-letters")(dead_letters.dead_letters)
app.command("dead-letter")(dead_letters.dead_letter)
app.command("replay")(dead_letters.replay)
app.command("discard")(dead_letters.discard)
app.command("remove")(remove.remove)
app.add_typer(drpc.app, name="drpc")
app.command("tick")(tick.tick)
app.command("serve")(serve.serve)
app.command("server")(server.server)
app.command("demo")(demo.demo)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            found = version("acker")
        except PackageNotFoundError:
            found = "not installed"
        typer.echo(f"acker {found}")
        raise typer.Exit


@app.callback()
def _acker(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Runs a command; errors become one line on stderr. Returns the exit status."""
    try:
        status = app(arguments, prog_name="acker", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except ValidationError as error:
        return _fail(USAGE, error)
    except AckerError as error:
        return _fail(FAILED, error)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # who read our output has enough of it
        return FAILED
    except (
        OSError
    ) as error:  # that of the store is an AckerError: here the output cannot be written, or a file
        _drop_output()
        return _fail(FAILED, error)
    except _USAGE_ERROR as error:
        return _fail(error.exit_code, error.format_message())


def _drop_output() -> None:
    """Has Python not try to write the rest of the output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(status: int, error: object) -> int:
    sys.stderr.write(f"acker: {one_line(str(error))}\n")
    return status
