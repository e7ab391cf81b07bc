"""Notes the writes of commands in the activity of their topologies."""

import getpass
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from acker.inspect.operate import activity
from acker.inspect.operate.activity import Action, Noting
from acker.ledger.client import Ledger


def author() -> str:
    """The user and the host of this process, which nobody has proved."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@contextmanager
def noting(
    ledger: Ledger, action: Action, target: Mapping[str, object], *, reason: str = "", run: str = ""
) -> Iterator[Noting]:
    """Notes the write of its block when it ends: its author, what it was, and what came of it.

    run: the name of a run, if the write is one of its pieces: all of them are one entry.
    """
    noted = Noting(author(), False, "cli", action, target, reason=reason, run=run)
    begun = True
    try:
        yield noted
    except (Exception, KeyboardInterrupt) as error:
        begun = noted.failed(error)
        raise
    finally:
        if begun and noted.counts:
            ledger.run(activity.note(ledger.core, noted))


def new_run() -> str:
    """A name of a run of pieces."""
    return secrets.token_hex(8)
