"""Names of the store that a shell completes. A store that is away or slow has none."""

import os
from collections.abc import Callable
from typing import Any

import typer

from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command

_PATIENCE = 0.5
_MOST = 200


def _names(find: Callable[[Store, dict[str, Any]], list[str]]) -> Callable[[typer.Context, str], list[str]]:
    """Returns the function that the shell's completion asks for names."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            url = ctx.params.get("url") or os.environ.get("ACKER_URL", "")
            names = find(Store(url, timeout=_PATIENCE), ctx.params)
        except Exception:  # noqa: BLE001 - a person is typing: no error of any kind belongs in the prompt
            return []
        return sorted(name for name in names if name.startswith(incomplete))[:_MOST]

    return complete


def _topologies(store: Store, _: dict[str, Any]) -> list[str]:
    from acker.ledger.settings.topologies import names

    return store.run(names())


def _streams(store: Store, given: dict[str, Any]) -> list[str]:
    [found] = store.send([command("SMEMBERS", keys.streams(given["topology"]))])
    return [name.decode() for name in found]


def _functions(store: Store, _: dict[str, Any]) -> list[str]:
    [found] = store.send([command("HKEYS", keys.FUNCTIONS)])
    return [name.decode() for name in found]


def _spouts(store: Store, given: dict[str, Any]) -> list[str]:
    [found] = store.send([command("HKEYS", keys.config(given["topology"]))])
    fields = (name.decode() for name in found)
    return [name.removeprefix(keys.SPOUT_FIELD) for name in fields if name.startswith(keys.SPOUT_FIELD)]


topologies = _names(_topologies)
streams = _names(_streams)
functions = _names(_functions)
spouts = _names(_spouts)
