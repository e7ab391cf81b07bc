"""`acker topologies`, `stats`, `trees` and `tree`: looking, without changing anything.

Terms: an anchor is the number of a tree; a slab is the trees that one call tracked together.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, cast

import typer

from acker.cli.shared import options
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import (
    all_pages,
    duration,
    facts,
    page_status,
    printable,
    row,
    show,
    show_json,
    step_batch,
    table,
)
from acker.cli.shared.statuses import Status
from acker.errors import UnknownTree, ValidationError, needing_pyarrow
from acker.inspect.trees import clocks, failures, pages
from acker.inspect.trees.failure import Failure
from acker.inspect.trees.pages import TreesPage
from acker.ledger.fields import instant
from acker.ledger.steps import held, step_totals
from acker.ledger.trees.buckets import STANDINGS, Standing
from acker.ledger.trees.trees import Tree


def trees(
    ledger: OfTopology,
    bucket: Annotated[
        str | None, typer.Option(help=f"Only those in one bucket: {', '.join(STANDINGS)}.")
    ] = None,
    spout: Annotated[str | None, typer.Option(help="Only trees of one spout.")] = None,
    shard: Annotated[int | None, typer.Option(help="Only trees of one shard.")] = None,
    older_than: Annotated[float, typer.Option(help="Only those tracked so many seconds ago or more.")] = 0.0,
    message_id: Annotated[
        str | None,
        typer.Option(help="Only those with a message id, finished ones too; goes with no other filter."),
    ] = None,
    message_id_base64: Annotated[
        str | None, typer.Option(help="The same for a message id that is no text, as base64.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to show at most: 1 to 1,000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    as_json: Json = False,
) -> None:
    """Trees in flight, the next ones to expire first; a page at a time."""
    if message_id is not None and message_id_base64 is not None:
        raise ValidationError("--message-id and --message-id-base64 name the same thing")
    given = message_id if message_id_base64 is None else message_id_base64
    wanted = None if given is None else options.message_id(given, message_id_base64 is not None)
    if wanted is not None and (bucket, spout, shard, older_than) != (None, None, None, 0.0):
        raise ValidationError("--message-id goes with no other filter")

    def read(limit: int, cursor: str | None) -> TreesPage:
        if wanted is not None:
            page = ledger.run(pages.find(ledger.core, wanted, limit=limit, cursor=cursor))
            return replace(page, trees=tuple(ledger.run(clocks.with_waits(ledger.core, page.trees))))
        return ledger.run(
            clocks.page(
                ledger.core,
                bucket=cast("Standing | None", bucket),
                spout=spout,
                shard=shard,
                older_than=older_than,
                limit=limit,
                cursor=cursor,
            )
        )

    page = _full_page(read, limit, cursor)
    if as_json:
        show_json(page)
        return
    show(_trees_table(page.trees) if page.trees else "no trees")
    if page.cursor is not None:
        sys.stderr.write(f"more: --cursor {page.cursor}\n")


def tree(
    ledger: OfTopology,
    anchor: Annotated[str, typer.Argument(metavar="ANCHOR", show_default=False)],
    as_json: Json = False,
) -> None:
    """One tree, by its anchor."""
    number = options.anchor(anchor)
    tree_read = ledger.run(clocks.tree(ledger.core, number))
    if tree_read is None:
        ended = ledger.run(failures.find(ledger.core, number))
        how = "never tracked, or finished and confirmed"
        if ended is not None:
            how = f"it {_ended(ended)}"
        raise UnknownTree(f"topology {ledger.config.name!r} knows no tree {number}: {how}")
    if as_json:
        show_json(tree_read)
        return
    rows = _tree_facts(tree_read)
    outcome = ledger.run(failures.how_ended(ledger.core, tree_read))
    if outcome is not None:
        rows.append(("outcome", printable(outcome if isinstance(outcome, str) else _ended(outcome))))
    show(facts(rows))


def _ended(tree: Failure) -> str:
    """The failure or expiry of a tree, for people."""
    by = step_batch(tree.cause.step, tree.cause.batch)
    why = f", by {by}" if by else ""
    why += f": {tree.cause.reason}" if tree.cause.reason else ""
    return f"{tree.status} at {instant(tree.at)}, {duration(tree.age)} after its track{why}"


def _full_page(read: Callable[[int, str | None], TreesPage], limit: int, cursor: str | None) -> TreesPage:
    """Goes on through pages that are not full, each of them bounded, until one is or there are no more."""
    page = read(limit, cursor)
    # A tree that was reset between two of them comes again, as it is then.
    once = {tree.anchor: tree for tree in page.trees}
    while page.cursor is not None and len(once) < limit:
        page = read(limit - len(once), page.cursor)
        once |= {tree.anchor: tree for tree in page.trees}
    return TreesPage(tuple(once.values()), page.cursor)


def _time_left(tree: Tree) -> str:
    if tree.time_left_earliest is None:
        return "-"
    if tree.wait is not None:
        return f"{duration(tree.time_left_earliest)} or more"
    if tree.time_left_latest is None:
        return f"{duration(tree.time_left_earliest)} or more: no ticks"
    return f"{duration(tree.time_left_earliest)} to {duration(tree.time_left_latest)}"


def _state(tree: Tree) -> str:
    return tree.state if tree.failure is None else f"{tree.state}, failed"


def _trees_table(trees: tuple[Tree, ...]) -> Any:
    trees_grid = table("=>anchor", "state", "spout", "message id", ">age", ">time left", ">shard", "bucket")
    for tree in trees:
        row(
            trees_grid,
            tree.anchor,
            _state(tree),
            tree.spout or "-",
            "-" if tree.message_id is None else printable(tree.message_id),
            duration(tree.age),
            _time_left(tree),
            tree.shard,
            tree.bucket or "-",
        )
    return trees_grid


def _tree_facts(tree: Tree) -> list[tuple[str, object]]:
    return [
        ("anchor", tree.anchor),
        ("state", _state(tree)),
        *([("reason", tree.failure)] if tree.failure is not None else []),
        ("ack value", tree.value),
        ("spout", tree.spout or "-"),
        ("message id", "-" if tree.message_id is None else printable(tree.message_id)),
        ("tracked at", f"{instant(tree.tracked_at)}, {duration(tree.age)} ago"),
        ("time left", _time_left(tree)),
        *([] if tree.wait is None else [("wait", tree.wait.text())]),
        ("shard", tree.shard),
        ("bucket", tree.bucket or "-"),
        ("slab", f"{tree.slab}, index {tree.index}"),
    ]


def why(
    ledger: OfTopology,
    anchor: Annotated[str, typer.Argument(metavar="ANCHOR", show_default=False)],
    rows: Annotated[
        bool, typer.Option("--rows", help="Count the tree's rows in each place, which reads the segments.")
    ] = False,
    as_json: Json = False,
) -> Status:
    """Shows the places of a tree: streams, subscriptions, times and takers, and if these are all.

    Exit status 4 where the store knows no such tree, 5 where the search was cut.
    """
    with needing_pyarrow("to look into streams"):
        from acker.inspect.locate import why as looking

    number = options.anchor(anchor)
    pages = all_pages(
        lambda cursor: ledger.run(looking.why(ledger.core, number, rows=rows, cursor=cursor)),
    )
    answer = replace(pages[-1], places=tuple(place for page in pages for place in page.places))
    status = Status.MISSING if answer.rest == looking.UNKNOWN else page_status(pages)
    if as_json:
        show_json(answer)
        return status
    places = []
    if answer.tree is not None:
        name = answer.tree.message_id
        places = [
            ("state", answer.tree.state),
            ("spout", answer.tree.spout or "-"),
            ("message id", "-" if name is None else printable(name)),
            ("age", duration(answer.tree.age)),
            *([] if answer.tree.wait is None else [("wait", answer.tree.wait.text())]),
        ]
    summary = f"{len(answer.places):,} place{'' if len(answer.places) == 1 else 's'}"
    if answer.held:
        summary += f" and {len(answer.held):,} of its tuples in plain Python"
    if answer.tree is not None and answer.tree.state != "finished":
        places.append(("found", f"{summary}, and these are all" if answer.complete else summary))
    if answer.seen:
        places.append(("its slab", printable(step_totals.text(answer.seen))))
    if answer.rest:
        places.append(("but" if answer.places else "answer", printable(answer.rest)))
    show(facts([("anchor", number), *places]))
    if answer.places:
        show("", *(printable(f"- {place.text()}") for place in answer.places))
    if answer.held:
        show("", *(printable(f"- {text}") for text in held.texts(answer.held)))
    if answer.trace:
        show("", *(printable(f"{instant(event.at)}  {event.text()}") for event in answer.trace))
    return status
