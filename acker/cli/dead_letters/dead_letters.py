"""`acker dead-letters` and `dead-letter`: rows that spouts gave up."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from acker.cli.dead_letters.filter_options import OfFilter, check_spout, letters_module
from acker.cli.shared.files import opened
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import (
    end_progress,
    facts,
    printable,
    progress,
    row,
    show,
    show_json,
    step_batch,
    table,
)
from acker.cli.shared.statuses import Status
from acker.cli.shared.stopping import between_pages
from acker.errors import ValidationError
from acker.ledger.client import Ledger
from acker.ledger.fields import instant, json_line, plain

if TYPE_CHECKING:
    from acker.streams.dead_letters.dead_letters import DeadLetter, Filter, Group
    from acker.streams.sources.attempts import Attempt


def dead_letters(
    ledger: OfTopology,
    groups: Annotated[
        bool, typer.Option("--groups", help="How many have each cause, step and status, in place of a list.")
    ] = False,
    output: Annotated[
        str,
        typer.Option(help="Write all of them to this file as JSON lines; - for stdout.", show_default=False),
    ] = "",
    limit: Annotated[int, typer.Option(help="How many to show at most: 1 to 1,000.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Where the page before ended.", show_default=False)
    ] = None,
    asked: OfFilter = None,
    as_json: Json = False,
) -> Status | None:
    """Rows whose last attempt was not acked: a page at a time, by groups, or all into a file."""
    letters = letters_module()
    if (groups or output) and (cursor or (groups and output)):
        raise ValidationError("--groups and --output take all dead letters: no --cursor, and not both")
    check_spout(ledger, asked)
    if groups:
        _show_groups(ledger, asked, as_json)
        return None
    if output:
        return _export(ledger, asked, output)
    letters_read: list[DeadLetter] = []
    while True:
        page = ledger.run(letters.page(ledger.core, asked, limit=limit - len(letters_read), cursor=cursor))
        letters_read, cursor = letters_read + list(page.letters), page.cursor
        if cursor is None or len(letters_read) >= limit:
            break
    if as_json:
        show_json({"dead_letters": letters_read, "cursor": cursor})
        return None
    rows_table = table("=id", "message id", "status", "step", ">attempts", "at", "reason", "row")
    for letter in letters_read:
        row(
            rows_table,
            letter.id,
            printable(letter.message_id),
            letter.status,
            step_batch(letter.step, letter.batch) or "-",
            letter.attempts,
            instant(letter.at),
            letter.reason,
            _text(letter),
        )
    show(rows_table if letters_read else "no dead letters")
    if cursor is not None:
        sys.stderr.write(f"more: --cursor {cursor}\n")
    return None


def dead_letter(
    ledger: OfTopology,
    letter: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    as_json: Json = False,
) -> None:
    """One dead letter, by its id: how each attempt ended, and its row."""
    letters = letters_module()
    letter_read = ledger.run(letters.get(ledger.core, letter))
    if as_json:
        show_json(letter_read)
        return
    show(
        facts(
            [
                ("id", letter_read.id),
                ("spout", letter_read.spout),
                ("message id", printable(letter_read.message_id)),
                ("status", letter_read.status),
                ("step", step_batch(letter_read.step, letter_read.batch) or "-"),
                ("reason", letter_read.reason),
                ("attempts", letter_read.attempts),
                ("at", instant(letter_read.at)),
                ("anchor", f"{letter_read.anchor}: acker tree {ledger.config.name} {letter_read.anchor}"),
                ("stream", letter_read.stream),
                *((f"attempt {each.number}", _ended(each)) for each in letter_read.history),
                ("row", _text(letter_read)),
            ]
        )
    )


def _groups(ledger: Ledger, asked: "Filter", by: tuple[str, ...]) -> "tuple[Group, ...]":
    letters = letters_module()
    pages = [ledger.run(letters.groups(ledger.core, asked, by=by))]
    while pages[-1].cursor is not None:
        pages.append(ledger.run(letters.groups(ledger.core, asked, by=by, cursor=pages[-1].cursor)))
    found: tuple[Group, ...] = letters.add_up(pages)
    return found


def _show_groups(ledger: Ledger, asked: "Filter", as_json: bool) -> None:
    groups = _groups(ledger, asked, letters_module().BY)
    if as_json:
        show_json(groups)
        return
    groups_table = table(">count", "status", "step", "oldest", "newest", "cause")
    for one in groups:
        times = (instant(one.oldest), instant(one.newest))
        row(groups_table, f"{one.count:,}", one.status, one.step or "-", *times, one.cause or "(no reason)")
    show(groups_table if groups else "no dead letters")


def _export(ledger: Ledger, asked: "Filter", output: str) -> Status:
    letters, count, cursor = letters_module(), 0, None
    with opened(output) as file, between_pages() as stop:
        while not stop.is_set():
            page = ledger.run(letters.page(ledger.core, asked, limit=letters.PAGE, cursor=cursor))
            file.writelines(json_line(one) for one in page.letters)
            count += len(page.letters)
            if (cursor := page.cursor) is None:
                break
            progress(f"{count:,} written so far")
        end_progress()
    sys.stderr.write(f"{count:,} dead letters written\n")
    return Status.INTERRUPTED if stop.is_set() else Status.DONE


def _text(letter: "DeadLetter") -> str:
    return json.dumps(plain(letter.row), ensure_ascii=False)


def _ended(attempt: "Attempt") -> str:
    by = step_batch(attempt.step, attempt.batch)
    return " ".join(filter(None, (instant(attempt.at), attempt.status, by and f"by {by}:", attempt.reason)))
