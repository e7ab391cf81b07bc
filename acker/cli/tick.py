"""`acker tick`: the ticker as a process of its own."""

import json
import logging
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, Url
from acker.cli.output import row, show, show_json, table
from acker.ledger.client import open_ledger
from acker.ledger.config import check_name
from acker.ledger.submissions import Ticked
from acker.ledger.tick import tick as run_tick
from acker.ledger.ticker import Hooks, Ticker
from acker.ledger.topologies import names as topology_names
from acker.store.client import Store

if TYPE_CHECKING:
    from acker.lines.coordinating import Coordinating
    from acker.streams.spouts.settler import Settler

_LOOK = 1.0


def tick(
    topologies: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPOLOGY...]", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Tick what is due, drain it, and end.")] = False,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Tick topologies (all, unless some are named) when it is time, until it is stopped.

    Settles the outcomes of spouts that keep their rows, too: replays what was not acked. Has what gathers in
    lines go on.
    """
    store = options.store(url, timeout)
    names = [check_name(name, "topology") for name in topologies] if topologies else None
    hooks = _hooks()
    if once:
        done = {}
        for name in names if names is not None else store.run(topology_names()):
            ledger = open_ledger(store, name, create=False)
            if hooks.before_rotation is not None:
                ledger.run(hooks.before_rotation(ledger.core))
            done[name] = ledger.run(run_tick(ledger.core, explain=hooks.explain))
        for one in _settling(store, names):
            one.step()
        _show(done, as_json)
        return
    stop = stop_on_signals()
    logging.basicConfig(level=logging.INFO, format="acker: %(message)s", stream=sys.stderr)
    if names is not None:
        for name in names:
            open_ledger(store, name, create=False)
    sys.stderr.write(f"acker: ticking {', '.join(names) if names else 'all topologies'}; Ctrl-C stops it\n")
    threads = [threading.Thread(target=one.run, args=(stop,)) for one in _settling(store, names)]
    for thread in threads:
        thread.start()
    try:
        Ticker(store, names, on_tick=_show_one_json if as_json else _show_one, hooks=hooks).run(stop)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _hooks() -> Hooks:
    """Additions of streams and functions to a tick; nothing where there is no pyarrow to read them with."""
    try:
        from acker.drpc.ticker_hooks import HOOKS
    except ImportError:
        return Hooks()
    return HOOKS


def _settling(store: Store, names: list[str] | None) -> "list[Coordinating | Settler]":
    """What releases, replays and buries rows; nothing where there is no pyarrow to read them with."""
    try:
        from acker.lines.coordinating import Coordinating
        from acker.streams.spouts.settler import Settler
    except ImportError:
        return []
    return [Coordinating(store, names), Settler(store, names)]


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    return stop


def wait_until(stop: threading.Event, ended: threading.Event | None = None) -> None:
    """Waits for an event of `stop_on_signals`, or for another one, in the main thread.

    It looks up now and then: where the system gives a signal to another thread, this one is not woken.
    """
    while not stop.wait(_LOOK) and not (ended is not None and ended.is_set()):
        pass


def _fields(name: str, done: Ticked) -> dict[str, str | int]:
    return {"topology": name, "rotated": done.rotated, "expired": done.expired, "orphaned": done.orphaned}


def _show(ticked: dict[str, Ticked], as_json: bool) -> None:
    if as_json:
        show_json([_fields(name, done) for name, done in ticked.items()])
        return
    made = table("topology", "rotated", "expired", "orphaned", right=("rotated", "expired", "orphaned"))
    for name, done in ticked.items():
        row(made, name, done.rotated, done.expired, done.orphaned)
    show(made if ticked else "no topologies")


def _show_one(name: str, done: Ticked) -> None:
    sys.stdout.write(
        f"{name}: {done.rotated} shards rotated, {done.expired} expired, {done.orphaned} orphaned\n"
    )
    sys.stdout.flush()


def _show_one_json(name: str, done: Ticked) -> None:
    sys.stdout.write(json.dumps(_fields(name, done)) + "\n")
    sys.stdout.flush()
