"""Options and arguments that commands share, and what they stand for."""

import base64
import binascii
import re
from typing import Annotated

import typer

from acker.cli.shared import completion
from acker.cli.shared.given import Given
from acker.errors import ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import check_id
from acker.store.client import Store

Url = Annotated[
    str,
    typer.Option("--url", envvar="ACKER_URL", help="The store, as redis://HOST:PORT/0.", show_default=False),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the store.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]
# The same before the command; `acker.cli.shared.group` gives them to it.
_BEFORE = "Of the command: it may stand before it, too."
UrlBefore = Annotated[str | None, typer.Option("--url", help=_BEFORE, show_default=False)]
TimeoutBefore = Annotated[float | None, typer.Option("--timeout", help=_BEFORE, show_default=False)]
JsonBefore = Annotated[bool, typer.Option("--json", help=_BEFORE)]


TopologyName = Annotated[
    str,
    typer.Argument(metavar="TOPOLOGY", show_default=False, autocompletion=completion.topologies),
]
StreamName = Annotated[
    str, typer.Argument(metavar="STREAM", show_default=False, autocompletion=completion.streams)
]
FunctionName = Annotated[
    str, typer.Argument(metavar="FUNCTION", show_default=False, autocompletion=completion.functions)
]

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}\Z", re.ASCII)


def store(url: Url = "", timeout: Timeout = 10.0) -> Store:
    """The store of the options."""
    if not url:
        raise ValidationError("no store: name one by --url or ACKER_URL, or start one by `acker server`")
    return Store(url, timeout=timeout)


def ledger(topology: TopologyName, url: Url = "", timeout: Timeout = 10.0) -> Ledger:
    """The ledger of a topology that exists; UnknownTopology where there is none."""
    return open_ledger(store(url, timeout), topology, create=False)


OfStore = Annotated[Store, Given(store)]
OfTopology = Annotated[Ledger, Given(ledger)]


def anchor(text: str) -> int:
    """An anchor from its decimal digits, signed."""
    if not _NUMBER.match(text):
        raise ValidationError(f"anchor: expected a signed 64-bit number, got {text!r}")
    return check_id(int(text), "anchor")


def as_anchor(text: str) -> int | None:
    """The anchor that a text may be: an odd number of signed 64 bits; None for another text."""
    if not _NUMBER.match(text.strip()) or not -(2**63) <= int(text) < 2**63:
        return None
    return int(text) if int(text) & 1 else None


def message_id(text: str, encoded: bool) -> bytes:
    """A message id from an argument: its text, or base64 of its bytes."""
    if not encoded:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValidationError(f"message id: expected base64, got {text!r}") from None
