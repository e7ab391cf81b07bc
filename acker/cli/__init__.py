"""The command line: `acker` and what it is made of, a module for the commands of a noun."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `acker`, and exits with one of the statuses of `acker.cli.shared.statuses`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed, as by >&-: nobody wants what is written there
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the end
        # Characters that the terminal's encoding lacks are shown as escape sequences.
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        import rich  # noqa: F401 - only whether it is there
        import typer  # noqa: F401

        from acker.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.stderr.write("acker: the command line is not installed: install acker with its extra 'cli'\n")
        sys.exit(2)
    except KeyboardInterrupt:  # nothing has begun yet
        sys.exit(130)

    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
