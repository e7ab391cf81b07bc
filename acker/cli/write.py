"""`acker fail` and `acker reset-timeout`: what an operator does to trees by hand."""

import sys
from typing import Annotated

import typer

from acker.cli import options
from acker.cli.options import Anchors, Json, Timeout, TopologyName, Url
from acker.cli.output import facts, show, show_json
from acker.cli.statuses import Status
from acker.errors import UnknownTree
from acker.inspect.operate import manual
from acker.ledger.trees.trees import trees_at


def fail(
    topology: TopologyName,
    anchors: Anchors,
    reason: Annotated[str, typer.Option(help="Reported to the spout.")] = "failed by hand",
    retry: Annotated[bool, typer.Option(help="Whether another attempt may follow.")] = True,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> Status:
    """Fail trees: final and at once. Anchors that name no tree are passed over.

    Exit status 5 where some name no tree, 4 where none does.
    """
    numbers = sorted({options.anchor(anchor) for anchor in anchors})
    ledger = options.ledger(url, timeout, topology)
    done = ledger.run(manual.fail(ledger.core, numbers, reason, retry=retry))
    if len(done.unknown) == len(numbers):
        raise _unknown(topology, numbers)
    status = Status.PARTLY if done.unknown else Status.DONE
    if as_json:
        unknown = [str(anchor) for anchor in done.unknown]
        show_json({"failed": done.failed, "late": done.late, "waiting": done.waiting, "unknown": unknown})
        return status
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
    return status


def reset_timeout(
    topology: TopologyName,
    anchors: Anchors,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> Status:
    """Give trees, and all others of their slabs, the whole message timeout again.

    Exit status 5 where some anchors name no tree, 4 where none does.
    """
    numbers = sorted({options.anchor(anchor) for anchor in anchors})
    ledger = options.ledger(url, timeout, topology)
    known = sorted({tree.anchor for tree in ledger.run(trees_at(ledger.core, numbers))})
    if not known:
        raise _unknown(topology, numbers)
    slabs = ledger.run(manual.reset_timeout(ledger.core, known))
    if as_json:
        show_json({"slabs": slabs})
    else:
        show(f"{slabs} slab{'' if slabs == 1 else 's'} reset")
    if len(known) == len(numbers):
        return Status.DONE
    sys.stderr.write(f"acker: {len(numbers) - len(known):,} of the anchors name no tree (any more)\n")
    return Status.PARTLY


def _unknown(topology: str, numbers: list[int]) -> UnknownTree:
    more = " and none of the others" if numbers[1:] else ""
    return UnknownTree(f"topology {topology!r} knows no tree {numbers[0]}{more} (any more)")
