"""`acker configure`: the settings of a topology, and how they are changed."""

from typing import Annotated, cast

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import facts, show, show_json
from acker.errors import ValidationError
from acker.inspect.as_json import topology_forms
from acker.inspect.operate.configure import configure as configuring
from acker.ledger.settings.config import SETTINGS, Settings, check_name
from acker.ledger.settings.suggestions import meant

SETTINGS_HELP = "\n\n".join(
    f"{name}: {one.values}, by default {one.preset}. {one.words}" for name, one in SETTINGS.items()
)


def configure(
    topology: TopologyName,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SETTING=NUMBER", help="Changes a setting; all are changed at once."),
    ] = None,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Show the settings of a topology, or change some of them for all programs.

    Bounds change at any time, the message timeout while nothing is in flight, the number of ackers never.
    """
    check_name(topology, "topology")
    asked = dict(_change(text) for text in changes or [])
    store = options.store(url, timeout)
    found = store.run(configuring(topology, cast(Settings, asked)))
    if as_json:
        show_json(topology_forms.stored(found))
    else:
        show(facts([(name, _shown(value)) for name, value in found.settings.items()]))


def _shown(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)


def _change(text: str) -> tuple[str, int | float | str]:
    name, equals, given = text.partition("=")
    if name not in SETTINGS:
        raise ValidationError(
            f"--set {name}: no setting of a topology{meant(name, SETTINGS)}; known are {', '.join(SETTINGS)}"
        )
    kind = SETTINGS[name].kind
    try:
        if not equals:
            raise ValueError("no value")
        return name, kind(given)
    except ValueError:
        what = {int: "a whole number", float: "a number"}.get(kind, SETTINGS[name].values)
        raise ValidationError(f"--set {name}: expected {name}={what}, got {text!r}") from None
