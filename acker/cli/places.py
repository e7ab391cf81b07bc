"""`acker why` and `acker stuck`: where a tree is, and what nobody goes on with."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import duration, facts, printable, row, show, show_json, table
from acker.cli.statuses import Status
from acker.errors import needing_pyarrow
from acker.inspect.as_json.values import instant
from acker.ledger.steps import step_totals

_MOST_PAGES = 100
P = TypeVar("P", bound=Any)


def why(
    topology: TopologyName,
    anchor: Annotated[str, typer.Argument(metavar="ANCHOR", show_default=False)],
    rows: Annotated[
        bool, typer.Option("--rows", help="Count the tree's rows in each place, which reads the segments.")
    ] = False,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> Status:
    """Where a tree is: in which streams, for whom, since when, who has taken it, and whether that is all.

    Exit status 4 where the store knows no such tree, 5 where the search was cut.
    """
    with needing_pyarrow("to look into streams"):
        from acker.inspect.as_json import place_forms
        from acker.inspect.locate import why as looking

    number = options.anchor(anchor)
    ledger = options.ledger(url, timeout, topology)
    pages = _pages(
        lambda cursor: ledger.run(looking.why(ledger.core, number, rows=rows, cursor=cursor)),
    )
    answer = replace(pages[-1], places=tuple(place for page in pages for place in page.places))
    status = Status.MISSING if answer.rest == looking.UNKNOWN else _status(pages)
    if as_json:
        show_json(place_forms.why(answer))
        return status
    known = []
    if answer.tree is not None:
        name = answer.tree.message_id
        known = [
            ("state", answer.tree.state),
            ("spout", answer.tree.spout or "-"),
            ("message id", "-" if name is None else printable(name)),
            ("age", duration(answer.tree.age)),
        ]
    found = f"{len(answer.places):,} place{'' if len(answer.places) == 1 else 's'}"
    if answer.tree is not None and answer.tree.state != "finished":
        known.append(("found", f"{found}, and these are all" if answer.complete else found))
    if answer.seen:
        known.append(("its slab", printable(step_totals.text(answer.seen))))
    if answer.rest:
        known.append(("but" if answer.places else "answer", printable(answer.rest)))
    show(facts([("anchor", number), *known]))
    if answer.places:
        show("", *(printable(f"- {place.text()}") for place in answer.places))
    if answer.trace:
        show("", *(printable(f"{instant(event.at)}  {event.text()}") for event in answer.trace))
    return status


def stuck(topology: TopologyName, url: Url = "", timeout: Timeout = 10.0, as_json: Json = False) -> Status:
    """What each subscription has not acked: who has taken it since when, and how much nobody has."""
    with needing_pyarrow("to look into streams"):
        from acker.inspect.as_json import place_forms
        from acker.inspect.locate import stuck as looking

    ledger = options.ledger(url, timeout, topology)
    pages = _pages(lambda cursor: ledger.run(looking.stuck(ledger.core, cursor=cursor)))
    found = [one for page in pages for one in page.stuck]
    if as_json:
        show_json({"stuck": [place_forms.stuck(one) for one in found], "cursor": pages[-1].cursor})
        return _status(pages)
    made = table(
        "stream", "subscription", "taken by", "segments", "rows", "oldest",
        right=("segments", "rows", "oldest"),
    )  # fmt: skip
    for one in found:
        for share in one.shares:
            row(
                made,
                one.stream,
                one.subscription or "(waits for one)",
                printable(share.holder.text()) if share.holder else "nobody",
                f"{share.segments:,}{' or more' if one.partly else ''}",
                f"{share.rows:,}",
                duration(share.oldest),
            )
    show(made if found else "nothing is stuck")
    return _status(pages)


def drops(topology: TopologyName, url: Url = "", timeout: Timeout = 10.0, as_json: Json = False) -> None:
    """What streams have dropped, by their limits or with a subscription: their trees expire, or failed."""
    with needing_pyarrow("to look into streams"):
        from acker.inspect.as_json import place_forms
        from acker.inspect.locate import drops as looking

    ledger = options.ledger(url, timeout, topology)
    found = ledger.run(looking.drops(ledger.core))
    if as_json:
        show_json({"drops": [place_forms.drop(one) for one in found]})
    else:
        show(*(printable(one.text()) for one in found) if found else ["nothing was dropped"])


def _status(pages: list[Any]) -> Status:
    return Status.DONE if pages[-1].cursor is None else Status.PARTLY


def _pages(read: Callable[[str | None], P]) -> list[P]:
    """All pages, each of them bounded, up to a hundred."""
    found = [read(None)]
    while found[-1].cursor is not None and len(found) < _MOST_PAGES:
        found.append(read(found[-1].cursor))
    return found
