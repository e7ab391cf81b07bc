"""`acker remove`: the end of a topology, or of one of its spouts."""

from typing import Annotated

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import show, show_json
from acker.errors import ValidationError
from acker.inspect.operate.removal import remove as removing
from acker.inspect.operate.removal import remove_spout
from acker.ledger.client import open_ledger
from acker.ledger.settings.config import check_name


def remove(
    topology: TopologyName,
    yes: Annotated[bool, typer.Option("--yes", help="It is meant: nothing brings it back.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also with trees in flight: no spout hears of them again.")
    ] = False,
    spout: Annotated[
        str, typer.Option("--spout", help="Only this spout, which must owe nothing: makes room for another.")
    ] = "",
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Remove a topology with all that it holds: streams, kept rows, dead letters. Stop its jobs first.

    Refused while trees are in flight or have an outcome that is not confirmed, unless it is forced.
    """
    check_name(topology, "topology")
    what = f"spout {spout!r} of topology {topology!r}" if spout else f"topology {topology!r}"
    if not yes:
        raise ValidationError(f"{what} would be gone for good: if that is meant, add --yes")
    if spout:
        if force:
            raise ValidationError("--force: a spout that owes something is not removed")
        ledger = open_ledger(options.store(url, timeout), topology, create=False)
        ledger.run(remove_spout(ledger.core, spout))
        show_json({"topology": topology, "spout": spout}) if as_json else show(f"{what} removed")
        return
    dropped = options.store(url, timeout).run(removing(topology, force=force))
    if as_json:
        show_json({"topology": topology, "dropped": dropped})
    else:
        show(f"{topology} removed" + (f", with {dropped:,} trees" if dropped else ""))
