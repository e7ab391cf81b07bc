"""`acker fail` and `acker reset-timeout`: trees by their anchors, or all of a filter, piece by piece."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer

from acker.cli.shared import options
from acker.cli.shared.given import Given
from acker.cli.shared.noting import new_run, noting
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import end_progress, facts, progress, show, show_json
from acker.cli.shared.statuses import Status
from acker.cli.shared.stopping import between_pages
from acker.errors import UnknownTree, ValidationError
from acker.inspect.operate import manual
from acker.inspect.operate.activity import NAMED
from acker.inspect.operate.manual import FailedByHand
from acker.inspect.trees import clocks
from acker.inspect.trees.pages import PAGE_TREES
from acker.ledger.client import Ledger
from acker.ledger.trees.buckets import STANDINGS, Standing
from acker.ledger.trees.trees import trees_at

_Anchors = Annotated[list[str] | None, typer.Argument(metavar="ANCHOR", show_default=False)]
_MOST = 1_000_000
"""Most trees of a filter that one command takes: their anchors are read first."""


@dataclass(frozen=True, slots=True)
class _Trees:
    """The trees that a command means: by their anchors, or by a filter."""

    anchors: list[int]
    filters: dict[str, Any]
    everything: bool

    @property
    def by_filter(self) -> bool:
        return self.everything or bool(self.filters)


def _trees(
    anchors: _Anchors = None,
    everything: Annotated[bool, typer.Option("--all", help="All trees in flight.")] = False,
    bucket: Annotated[
        str | None, typer.Option(help=f"All in one bucket: {', '.join(STANDINGS)}.", show_default=False)
    ] = None,
    spout: Annotated[str | None, typer.Option(help="All of one spout.", show_default=False)] = None,
    shard: Annotated[int | None, typer.Option(help="All of one shard.", show_default=False)] = None,
    older_than: Annotated[
        float | None, typer.Option(help="All tracked so many seconds ago or more.", show_default=False)
    ] = None,
) -> _Trees:
    given = {"bucket": bucket, "spout": spout, "shard": shard, "older_than": older_than}
    filters = {name: value for name, value in given.items() if value is not None}
    if bool(anchors) == (everything or bool(filters)):
        raise ValidationError("expected ANCHORs, or filters as --spout, or --all for all trees in flight")
    if bucket is not None and bucket not in STANDINGS:
        raise ValidationError(f"--bucket: expected one of {', '.join(STANDINGS)}, got {bucket!r:.100}")
    return _Trees(sorted({options.anchor(anchor) for anchor in anchors or ()}), filters, everything)


_OfTrees = Annotated[_Trees, Given(_trees)]


def fail(
    ledger: OfTopology,
    asked: _OfTrees,
    reason: Annotated[str, typer.Option(help="Reported to the spout.")] = "failed by hand",
    retry: Annotated[bool, typer.Option(help="Whether another attempt may follow.")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="With a filter: it is meant.")] = False,
    as_json: Json = False,
) -> Status:
    """Fail trees: final and at once. Anchors that name no tree are passed over.

    Exit status 5 where some name no tree, 4 where none does. A filter takes the trees that are there when it
    begins; the first Ctrl-C ends it after the piece at hand.
    """
    numbers = _all_of(ledger, asked) if asked.by_filter else asked.anchors
    if asked.by_filter and not yes:
        raise ValidationError(f"{len(numbers):,} trees would fail for good: if that is meant, add --yes")
    done = FailedByHand()
    with between_pages() as stop:
        for piece, target, run in _pieces(asked, numbers):
            with noting(ledger, "fail", target, reason=reason, run=run) as noted:
                part = ledger.run(manual.fail(ledger.core, piece, reason, retry=retry))
                noted.count = part.failed
                noted.result = "" if run else part.text()
            done = FailedByHand(
                done.failed + part.failed, done.late + part.late, done.waiting + part.waiting,
                (*done.unknown, *part.unknown),
            )  # fmt: skip
            if asked.by_filter:
                progress(f"{done.failed:,} failed so far")
            if stop.is_set():
                break
        end_progress()
    if not asked.by_filter and len(done.unknown) == len(numbers):
        raise _unknown(ledger.config.name, numbers)
    status = Status.PARTLY if done.unknown and not asked.by_filter else Status.DONE
    if as_json:
        show_json(done)
    else:
        show(
            facts(
                [
                    ("failed", done.failed),
                    ("finished before", done.late),
                    ("not tracked yet", done.waiting),
                    ("unknown", len(done.unknown)),
                ]
            )
        )
    return Status.INTERRUPTED if stop.is_set() else status


def reset_timeout(ledger: OfTopology, asked: _OfTrees, as_json: Json = False) -> Status:
    """Give trees, and all others of their slabs, the whole message timeout again.

    Exit status 5 where some anchors name no tree, 4 where none does. A filter takes the trees that are there
    when it begins; the first Ctrl-C ends it after the piece at hand.
    """
    if asked.by_filter:
        tracked = numbers = _all_of(ledger, asked)
    else:
        numbers = asked.anchors
        tracked = sorted({tree.anchor for tree in ledger.run(trees_at(ledger.core, numbers))})
        if not tracked:
            raise _unknown(ledger.config.name, numbers)
    slabs = 0
    with between_pages() as stop:
        for piece, target, run in _pieces(asked, tracked):
            with noting(ledger, "reset", target, run=run) as noted:
                noted.count = ledger.run(manual.reset_timeout(ledger.core, piece))
                noted.result = "" if run else f"{noted.count:,} slabs reset"
            slabs += noted.count
            if asked.by_filter:
                progress(f"{slabs:,} slabs reset so far")
            if stop.is_set():
                break
        end_progress()
    if as_json:
        show_json({"slabs": slabs})
    else:
        show(f"{slabs} slab{'' if slabs == 1 else 's'} reset")
    if stop.is_set():
        return Status.INTERRUPTED
    if len(tracked) == len(numbers):
        return Status.DONE
    sys.stderr.write(f"acker: {len(numbers) - len(tracked):,} of the anchors name no tree (any more)\n")
    return Status.PARTLY


def _all_of(ledger: Ledger, asked: _Trees) -> list[int]:
    """The anchors of all trees of a filter. Trees of one slab stand together."""
    filters = {**asked.filters, "older_than": asked.filters.get("older_than", 0.0)}
    if "bucket" in filters:
        filters["bucket"] = cast("Standing", filters["bucket"])
    anchors: dict[int, None] = {}
    cursor = None
    while True:
        page = ledger.run(clocks.page(ledger.core, **filters, limit=PAGE_TREES, cursor=cursor))
        anchors |= dict.fromkeys(tree.anchor for tree in page.trees)
        if len(anchors) > _MOST:
            raise ValidationError(f"over {_MOST:,} trees match, the most for one command: narrow the filter")
        if (cursor := page.cursor) is None:
            return list(anchors)


def _pieces(asked: _Trees, numbers: list[int]) -> Iterator[tuple[list[int], dict[str, object], str]]:
    """Pieces of trees, each with the target and the run of its activity."""
    if not asked.by_filter:
        yield numbers, {"trees": len(numbers), "anchors": numbers[:NAMED]}, ""
        return
    run, target = new_run(), asked.filters or {"trees": "all"}
    for first in range(0, len(numbers), PAGE_TREES):
        yield numbers[first : first + PAGE_TREES], target, run


def _unknown(topology: str, numbers: list[int]) -> UnknownTree:
    more = " and none of the others" if numbers[1:] else ""
    return UnknownTree(f"topology {topology!r} knows no tree {numbers[0]}{more} (any more)")
