"""`acker health`: what needs a human on a topology, since when, what to do, and from where on it does."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import duration, facts, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.errors import ValidationError
from acker.inspect.topology import health as rules
from acker.inspect.topology.health import Health
from acker.inspect.topology.health_rules import Trouble


def health(
    ledger: OfTopology,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="THRESHOLD=NUMBER", help="Sets a threshold; 0 or off switches its rule off."
        ),
    ] = None,
    as_json: Json = False,
) -> Status:
    """Troubles that need a human: in words, since when, and what to do. Exit status 1 where there is any."""
    wanted = dict(_change(text) for text in changes or [])
    if wanted:
        ledger.run(rules.set_thresholds(ledger.core, wanted))
    found = ledger.run(rules.health(ledger.core))
    status = Status.TROUBLE if found.troubles else Status.DONE
    if as_json:
        show_json({name: getattr(found, name) for name in ("ticking", "troubles", "thresholds")})
        return status
    show(*shown(found), "")
    limits = [(name, f"{value:g}" if value else "off") for name, value in asdict(found.thresholds).items()]
    show(facts(limits))
    return status


def in_short(troubles: Sequence[Trouble]) -> str:
    """Health in a word, or the names of its troubles."""
    return ", ".join(one.code for one in troubles) or "healthy"


def shown(found: Health) -> list[Any]:
    """Health for people."""
    if not found.troubles:
        return ["healthy"]
    made = table("needs a look", ">for", "what there is", "what to do")
    for one in found.troubles:
        lasts = "-" if one.since is None else duration(max(0.0, found.at - one.since))
        row(made, one.code, lasts, one.text, one.advice)
    return [made]


def _change(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, 0.0 if value == "off" else float(value)
    except ValueError:
        raise ValidationError(
            f"--set: expected THRESHOLD=NUMBER or THRESHOLD=off, got {text!r:.100}"
        ) from None
