"""`acker find`: a record by its message id, whatever became of it."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker.cli.shared import options
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import duration, printable, row, show, show_json, step_batch, table
from acker.cli.shared.statuses import Status
from acker.errors import needing_pyarrow
from acker.ledger.fields import instant

if TYPE_CHECKING:
    from acker.inspect.trees.find_record import Found, FoundRecord

_CALLS = 200
_ATTEMPTS = 1_000


def find(
    ledger: OfTopology,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", show_default=False)],
    base64: Annotated[bool, typer.Option("--base64", help="MESSAGE_ID is base64 of its bytes.")] = False,
    cursor: Annotated[str | None, typer.Option(help="Where the search before was cut.")] = None,
    as_json: Json = False,
) -> Status:
    """A record by its message id: its attempts, in flight or ended, and its dead letters.

    Exit status 4 where there is no such record, 5 where the search was cut.
    """
    with needing_pyarrow("to find records"):
        from acker.inspect.trees import find_record
    wanted = options.message_id(message_id, base64)
    answers = [ledger.run(find_record.find(ledger.core, wanted, cursor=cursor))]
    while answers[-1].cursor is not None and len(answers) < _CALLS and _attempts(answers) < _ATTEMPTS:
        answers.append(ledger.run(find_record.find(ledger.core, wanted, cursor=answers[-1].cursor)))
    found = find_record.add_up(answers)
    if as_json:
        show_json(found)
    else:
        for record in found.records:
            _show(ledger.config.name, record)
        if not found.records and found.cursor is None:
            show("no record of that id: never tracked, acked and confirmed, or ended too long ago")
    if found.cursor is not None:
        sys.stderr.write(
            f"looked at {found.looked:,} of {found.of:,} trees and dead letters: --cursor {found.cursor}\n"
        )
        return Status.PARTLY
    return Status.DONE if found.records else Status.MISSING


def _attempts(answers: "list[Found]") -> int:
    return sum(len(record.attempts) for answer in answers for record in answer.records)


def _show(topology: str, record: "FoundRecord") -> None:
    made: Any = table(">attempt", "anchor", "state", "reason", "step", "ended", ">took")
    for one in record.attempts:
        took = None if one.at is None or one.tracked_at is None else one.at - one.tracked_at
        row(
            made,
            one.number or "-",
            one.anchor or "-",
            one.state,
            printable(one.reason) or "-",
            step_batch(one.step, one.batch) or "-",
            "-" if one.at is None else instant(one.at),
            duration(took),
        )
    show(f"spout {record.spout}", made)
    for letter in record.letters:
        show(f"dead letter: acker dead-letter {topology} {letter.id}")
    show("")
