"""`acker fail` and `acker reset-timeout`: what an operator does to trees by hand."""

from typing import Annotated

import typer

from acker.cli import options
from acker.cli.options import Anchors, Json, Timeout, TopologyName, Url
from acker.cli.output import facts, show, show_json


def fail(
    topology: TopologyName,
    anchors: Anchors,
    reason: Annotated[str, typer.Option(help="Told to the spout.")] = "failed by hand",
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Fail trees: final and at once. A tree that is not tracked yet will fail when it is."""
    numbers = sorted({options.anchor(anchor) for anchor in anchors})
    ledger = options.ledger(url, timeout, topology)
    done = ledger.fail(numbers, reason)
    waiting = len(numbers) - done.failed - done.late - done.orphaned if ledger.config.ackers else 0
    if as_json:
        show_json({"failed": done.failed, "late": done.late, "waiting": waiting, "orphaned": done.orphaned})
        return
    show(
        facts(
            [
                ("failed", done.failed),
                ("finished before", done.late),
                ("not tracked yet", waiting),
                ("not tracked, dropped", done.orphaned),
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
    slabs = options.ledger(url, timeout, topology).reset_timeout(numbers)
    if as_json:
        show_json({"slabs": slabs})
    else:
        show(f"{slabs} slab{'' if slabs == 1 else 's'} reset")
