"""`acker remove`: the end of a topology."""

from typing import Annotated

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import show, show_json
from acker.config import check_name
from acker.errors import ValidationError
from acker.removal import remove as removing


def remove(
    topology: TopologyName,
    yes: Annotated[bool, typer.Option("--yes", help="It is meant: nothing brings it back.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also with trees in flight: no spout hears of them again.")
    ] = False,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Remove a topology with all that it holds: streams, kept rows, dead letters. Stop its jobs first.

    Refused while trees are in flight or have an outcome that is not confirmed, unless it is forced.
    """
    check_name(topology, "topology")
    if not yes:
        raise ValidationError(f"topology {topology!r} would be gone for good: if that is meant, add --yes")
    dropped = options.store(url, timeout).run(removing(topology, force=force))
    if as_json:
        show_json({"topology": topology, "dropped": dropped})
    else:
        show(f"{topology} removed" + (f", with {dropped:,} trees" if dropped else ""))
