"""`acker dead-letters` and `acker replay`: what spouts have given up, and driving it again."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import instant, message_id_fields, printable, row, show, show_json, table
from acker.errors import AckerError, ValidationError
from acker.ledger import Ledger

if TYPE_CHECKING:
    from acker.streams.dead_letters import DeadLetter

_Spout = Annotated[str | None, typer.Option(help="Only those of this spout.", show_default=False)]


def dead_letters(
    topology: TopologyName,
    spout: _Spout = None,
    after: Annotated[
        str | None, typer.Option(help="The id of the last one of the page before.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option(help="At most so many, 1 to 1,000.")] = 100,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """List the records whose last attempt was not acked, a page at a time."""
    letters = _module()
    ledger = options.ledger(url, timeout, topology)
    page = ledger.run(letters.page(ledger.core, spout=spout, after=after, count=count))
    if as_json:
        show_json({"dead_letters": [_fields(one) for one in page.letters], "cursor": page.cursor})
        return
    made = table("id", "message id", "status", "attempts", "at", "reason", "record", right=("attempts",))
    for one in page.letters:
        record = json.dumps(one.row, default=str, ensure_ascii=False)
        row(
            made,
            one.id,
            printable(one.message_id),
            one.status,
            one.attempts,
            instant(one.at),
            printable(one.reason),
            printable(record),
        )
    show(made if page.letters else "no dead letters")
    if page.cursor:
        show(f"there are more: --after {page.cursor}")


def replay(
    topology: TopologyName,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, or all of a spout.")] = False,
    spout: _Spout = None,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Give dead letters a new tree, as their first attempt, and publish their records again."""
    if bool(ids) == everything or (spout and not everything):
        raise ValidationError("expected ids of dead letters, or --all, which may go with --spout")
    letters = _module()
    ledger = options.ledger(url, timeout, topology)
    done: dict[str, int] = {}
    for letter in ids if ids else _all(ledger, spout):
        done[letter] = ledger.run(letters.replay(ledger.core, letter))
    if as_json:
        show_json([{"id": letter, "anchor": str(anchor)} for letter, anchor in done.items()])
    else:
        show(f"{len(done)} replayed")


def _all(ledger: Ledger, spout: str | None) -> list[str]:
    letters, found, after = _module(), list[str](), None
    while True:
        page = ledger.run(letters.page(ledger.core, spout=spout, after=after, count=letters.PAGE))
        found += [one.id for one in page.letters]
        after = page.cursor
        if after is None:
            return found


def _fields(one: "DeadLetter") -> dict[str, Any]:
    return {
        "id": one.id,
        "spout": one.spout,
        **message_id_fields(one.message_id),
        "anchor": str(one.anchor),
        "status": one.status,
        "reason": one.reason,
        "attempts": one.attempts,
        "at": instant(one.at),
        "stream": one.stream,
        "record": json.loads(json.dumps(one.row, default=str)),
    }


def _module() -> Any:
    try:
        from acker.streams import dead_letters as letters
    except ImportError as error:
        raise AckerError(f"dead letters need pyarrow: pip install 'acker[spark]' ({error})") from error
    return letters
