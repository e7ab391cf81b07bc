"""`acker fail` and `acker reset-timeout`: what an operator does to trees by hand."""

from typing import Annotated

import typer

from acker.cli import options
from acker.cli.options import Anchors, Json, Timeout, TopologyName, Url
from acker.cli.output import facts, show, show_json
from acker.errors import UnknownTree
from acker.inspect import by_hand


def fail(
    topology: TopologyName,
    anchors: Anchors,
    reason: Annotated[str, typer.Option(help="Reported to the spout.")] = "failed by hand",
    retry: Annotated[bool, typer.Option(help="Whether another attempt may follow.")] = True,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Fail trees: final and at once. Anchors that name no tree are passed over."""
    numbers = sorted({options.anchor(anchor) for anchor in anchors})
    ledger = options.ledger(url, timeout, topology)
    done = ledger.run(by_hand.fail(ledger.core, numbers, reason, retry=retry))
    if len(done.unknown) == len(numbers):
        more = " and none of the others" if numbers[1:] else ""
        raise UnknownTree(f"topology {topology!r} knows no tree {numbers[0]}{more} (any more)")
    if as_json:
        unknown = [str(anchor) for anchor in done.unknown]
        show_json({"failed": done.failed, "late": done.late, "waiting": done.waiting, "unknown": unknown})
        return
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


def reset_timeout(
    topology: TopologyName,
    anchors: Anchors,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Give trees, and all others of their slabs, the whole message timeout again."""
    numbers = sorted({options.anchor(anchor) for anchor in anchors})
    ledger = options.ledger(url, timeout, topology)
    slabs = ledger.run(by_hand.reset_timeout(ledger.core, numbers))
    if as_json:
        show_json({"slabs": slabs})
    else:
        show(f"{slabs} slab{'' if slabs == 1 else 's'} reset")
