"""`acker find` and `acker failures`: records by their message id, and records that failed or expired."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from acker.cli.shared import completion, options
from acker.cli.shared.options import Json, OfStore, OfTopology
from acker.cli.shared.output import all_pages, duration, printable, row, show, show_json, step_batch, table
from acker.cli.shared.statuses import Status
from acker.errors import AckerError, UnknownTopology, ValidationError, needing_pyarrow, shown
from acker.inspect.topology.unreadable_topology import damaged
from acker.inspect.trees import failures as ended_trees
from acker.inspect.trees.failure import Ended, Failure
from acker.inspect.trees.failures import FailuresPage
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.fields import instant
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_message_id
from acker.store.client import Store

if TYPE_CHECKING:
    from acker.inspect.trees.find_everywhere import FoundEverywhere
    from acker.inspect.trees.find_record import Found, FoundRecord

_STATUSES: tuple[str, ...] = get_args(Ended)
_CALLS = 200
_ATTEMPTS = 1_000


def find(
    store: OfStore,
    topology: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPOLOGY",
            show_default=False,
            autocompletion=completion.topologies,
            help="Without one, all topologies are asked.",
        ),
    ] = None,
    message_id: Annotated[
        str | None, typer.Argument(metavar="MESSAGE_ID", show_default=False, help="It has to be given.")
    ] = None,
    base64: Annotated[bool, typer.Option("--base64", help="MESSAGE_ID is base64 of its bytes.")] = False,
    cursor: Annotated[str | None, typer.Option(help="Where the search before was cut.")] = None,
    as_json: Json = False,
) -> Status:
    """A record by its message id: its attempts, in flight or ended, and its dead letters.

    Without a topology it says which of all topologies know the message id, or a tree with this anchor.

    Exit status 4 where there is no such record, 5 where the search was cut.
    """  # fmt: skip
    if topology is None:
        raise ValidationError("expected a message id: acker find [TOPOLOGY] MESSAGE_ID")
    if message_id is None:
        if cursor is not None:
            raise ValidationError("--cursor goes with a topology: all topologies are asked at once")
        return _everywhere(store, topology, base64, as_json)
    ledger = open_ledger(store, topology, create=False)
    with needing_pyarrow("to find records"):
        from acker.inspect.trees import find_record
    wanted = options.message_id(message_id, base64)
    answers = [ledger.run(find_record.find(ledger.core, wanted, cursor=cursor))]
    while answers[-1].cursor is not None and len(answers) < _CALLS and _attempts(answers) < _ATTEMPTS:
        answers.append(ledger.run(find_record.find(ledger.core, wanted, cursor=answers[-1].cursor)))
    records = find_record.add_up(answers)
    if as_json:
        show_json(records)
    else:
        for record in records.records:
            _show(ledger.config.name, record)
        if not records.records and records.cursor is None:
            show("no record of that id: never tracked, acked and confirmed, or ended too long ago")
    if records.cursor is not None:
        sys.stderr.write(
            f"looked at {records.looked:,} of {records.of:,} trees and dead letters: "
            f"--cursor {records.cursor}\n"
        )
        return Status.PARTLY
    return Status.DONE if records.records else Status.MISSING


def _everywhere(store: Store, text: str, base64: bool, as_json: bool) -> Status:
    """Asks all topologies, page by page, each of them a bounded piece."""
    with needing_pyarrow("to find records"):
        from acker.inspect.trees import find_everywhere
        from acker.inspect.trees.find_everywhere import Hit, Unsearched
    wanted = check_message_id(options.message_id(text, base64))
    anchor = None if base64 else options.as_anchor(text)
    names = store.run(topologies.names())
    pages: list[FoundEverywhere] = []
    while not pages or pages[-1].cursor is not None:
        asked, left = find_everywhere.page(names, pages[-1].cursor if pages else None)
        hits, failed = list[Hit](), list[Unsearched]()
        for name in asked:
            try:
                core = open_ledger(store, name, create=False).core
                hits.append(store.run(find_everywhere.look(core, wanted, anchor)))
            except UnknownTopology:
                continue
            except AckerError as error:
                failed.append(Unsearched(name, damaged(name, error).reason))
        pages.append(find_everywhere.summed(hits, failed, names, asked, left))
    answer = find_everywhere.add_up(pages)
    if as_json:
        show_json(answer)
    elif answer.topologies:
        grid = table("topology", "=>tree", "state", ">attempts", ">dead letters")
        for hit in answer.topologies:
            row(grid, hit.topology, hit.anchor or "-", hit.state or "-", hit.attempts, hit.dead_letters)
        show(grid)
    elif not (answer.unfinished or answer.unreadable):
        show(f"none of {answer.of:,} topologies knows it: never tracked, acked and confirmed, or too old")
    for name in answer.unfinished:
        sys.stderr.write(f"{name} was searched in part: acker find {name} {shlex.quote(text)}\n")
    for one in answer.unreadable:
        sys.stderr.write(f"{one.topology} could not be searched: {printable(one.reason)}\n")
    if answer.unfinished or answer.unreadable:
        return Status.PARTLY
    return Status.DONE if answer.topologies else Status.MISSING


def failures(
    ledger: OfTopology,
    status: Annotated[
        str | None, typer.Option(help=f"Only trees of one status: {', '.join(_STATUSES)}.")
    ] = None,
    spout: Annotated[str | None, typer.Option(help="Only trees of one spout.")] = None,
    step: Annotated[str | None, typer.Option(help="Only trees that one step has failed.")] = None,
    reason: Annotated[str, typer.Option(help="Only trees with this text in their reason.")] = "",
    cause: Annotated[str | None, typer.Option(help="Only trees of one cause, as --groups shows it.")] = None,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="How many have each cause, step and status, in place of a list."),
    ] = False,
    limit: Annotated[int, typer.Option(help="How many to show at most: 1 to 1,000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    as_json: Json = False,
) -> None:
    """Trees that failed or expired, the latest first, with reason and step: a page at a time, or by groups.

    The step of a tree that expired is the one that had its rows.

    Each shard keeps at least the topology's `outcomes_kept` of them, confirmed or not.
    """
    if status is not None and status not in _STATUSES:
        raise ValidationError(f"--status: expected {' or '.join(_STATUSES)}, got {shown(status)}")
    filters: dict[str, Any] = {
        "status": status, "spout": spout, "step": step, "reason": reason, "cause": cause,
    }  # fmt: skip
    if groups:
        if cursor is not None:
            raise ValidationError("--groups takes all that is kept: no --cursor")
        _show_groups(ledger, filters, as_json)
        return
    trees: list[Failure] = []
    while True:  # a page reads a bounded piece, and may be empty and not the last
        page = ledger.run(ended_trees.page(ledger.core, **filters, limit=limit - len(trees), cursor=cursor))
        trees += page.trees
        cursor = page.cursor
        if cursor is None or len(trees) >= limit:
            break
    if as_json:
        show_json(FailuresPage(tuple(trees), cursor))
        return
    show(_failures_table(trees) if trees else "no failures")
    if cursor is not None:
        sys.stderr.write(f"more: --cursor {cursor}\n")


def _show_groups(ledger: Ledger, filters: dict[str, Any], as_json: bool) -> None:
    with needing_pyarrow("to group failures"):
        from acker.inspect.trees import failure_groups
    pages = all_pages(lambda cursor: ledger.run(failure_groups.groups(ledger.core, **filters, cursor=cursor)))
    counted = failure_groups.add_up(pages)
    if as_json:
        show_json(counted)
        return
    grid = table(">count", ">share", "status", "step", "first", "last", "last hour, by 5 min", "cause")
    for group in counted.groups:
        share = f"{100 * group.count / counted.trees:.0f}%"
        times = instant(group.oldest), instant(group.newest), " ".join(map(str, group.lately))
        cause = group.cause or "(no reason)"
        row(grid, f"{group.count:,}", share, group.status, group.step or "-", *times, printable(cause))
    show(grid if counted.groups else "no failures")


def _failures_table(trees: "list[Failure]") -> Any:
    grid = table("=>anchor", "status", "spout", "message id", "reason", "step", "ended", ">took")
    for tree in trees:
        row(
            grid,
            tree.anchor,
            tree.status,
            tree.spout or "-",
            "-" if tree.message_id is None else printable(tree.message_id),
            printable(tree.cause.reason) or "-",
            step_batch(tree.cause.step, tree.cause.batch) or "-",
            instant(tree.at),
            duration(tree.age),
        )
    return grid


def _attempts(answers: "list[Found]") -> int:
    return sum(len(record.attempts) for answer in answers for record in answer.records)


def _show(topology: str, record: "FoundRecord") -> None:
    attempts_table: Any = table(">attempt", "=anchor", "state", "reason", "step", "ended", ">took")
    for attempt in record.attempts:
        took = None if attempt.at is None or attempt.tracked_at is None else attempt.at - attempt.tracked_at
        row(
            attempts_table,
            attempt.number or "-",
            attempt.anchor or "-",
            attempt.state,
            printable(attempt.reason) or "-",
            step_batch(attempt.step, attempt.batch) or "-",
            "-" if attempt.at is None else instant(attempt.at),
            duration(took),
        )
    show(f"spout {record.spout}", attempts_table)
    for letter in record.letters:
        show(f"dead letter: acker dead-letter {topology} {letter.id}")
    show("")
