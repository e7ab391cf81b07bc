"""`acker tick`: the ticker as a process of its own."""

import json
import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from acker.cli.shared.options import Json, OfStore
from acker.cli.shared.output import one_line, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.cli.shared.stopping import stop_on_signals, wait_until
from acker.errors import AckerError, StoreUnavailable, UnknownTopology
from acker.inspect.operate import ticking
from acker.ledger.calls.calls import Ticked
from acker.ledger.client import open_ledger
from acker.ledger.loops import Threads
from acker.ledger.settings.config import check_name
from acker.ledger.settings.topologies import names as topology_names
from acker.ledger.tick.tick import tick as run_tick
from acker.ledger.tick.ticker import Hooks, Ticker
from acker.store.client import Store

if TYPE_CHECKING:
    from acker.drpc.answer_all import Answering
    from acker.lines.coordinate_all import Coordinating
    from acker.streams.spouts.settler import Settler


def tick(
    store: OfStore,
    topologies: Annotated[list[str] | None, typer.Argument(metavar="TOPOLOGY", show_default=False)] = None,
    once: Annotated[bool, typer.Option("--once", help="Tick what is due, drain it, and end.")] = False,
    as_json: Json = False,
) -> Status:
    """Tick topologies (all, unless some are named) when it is time, until it is stopped.

    Settles the outcomes of spouts that keep their rows, too: replays what was not acked. Releases what has
    gathered in lines, and answers calls of functions that are over. With --once, exit status 5 where it could
    not do all of it.
    """
    names = [check_name(name, "topology") for name in topologies] if topologies else None
    hooks = ticking.hooks()
    if once:
        return _once(store, names, hooks, as_json)
    logging.basicConfig(level=logging.INFO, format="acker: %(message)s", stream=sys.stderr)
    if names is not None:
        for name in names:
            open_ledger(store, name, create=False)
    stop = stop_on_signals()  # from here on: until then a signal ends it at once
    sys.stderr.write(f"acker: ticking {', '.join(names) if names else 'all topologies'}; Ctrl-C stops it\n")
    threads = Threads(stop)
    ticker = Ticker(store, names, on_tick=_show_one_json if as_json else _show_one, hooks=hooks)
    for one in (*_settling(store, names), ticker):
        threads.start(one.run, stop)
    wait_until(stop)
    threads.end()
    return stop.status


def _once(store: Store, names: list[str] | None, hooks: Hooks, as_json: bool) -> Status:
    """Ticks what is due; a topology that cannot be ticked keeps none of the others from it."""
    done: dict[str, Ticked] = {}
    failed: dict[str, AckerError] = {}
    for name in names if names is not None else store.run(topology_names()):
        try:
            ledger = open_ledger(store, name, create=False)
            if hooks.before_rotation is not None:
                ledger.run(hooks.before_rotation(ledger.core))
            done[name] = ledger.run(run_tick(ledger.core, explain=hooks.explain))
        except StoreUnavailable:
            raise
        except AckerError as error:
            if names is not None or not isinstance(error, UnknownTopology):  # else it was removed meanwhile
                failed[name] = error
    if failed and not done:
        raise next(iter(failed.values()))
    settling = _settling(store, [*done] if failed else names)
    for each in settling:
        each.step()
    _show(done, as_json)
    for name, why in failed.items():
        sys.stderr.write(f"acker: {one_line(f'{name}: {why}')}\n")
    return Status.PARTLY if failed or any(each.troubled for each in settling) else Status.DONE


def _settling(store: Store, names: list[str] | None) -> "list[Answering | Coordinating | Settler]":
    """Returns the threads that release, replay, bury and answer; none without pyarrow, which reads rows."""
    try:
        from acker.drpc.answer_all import Answering
        from acker.lines.coordinate_all import Coordinating
        from acker.streams.spouts.settler import Settler
    except ImportError:
        return []
    return [Coordinating(store, names), Settler(store, names), Answering(store, names)]


def _fields(name: str, done: Ticked) -> dict[str, str | int]:
    return {"topology": name, "rotated": done.rotated, "expired": done.expired, "orphaned": done.orphaned}


def _show(ticked: dict[str, Ticked], as_json: bool) -> None:
    if as_json:
        show_json([_fields(name, done) for name, done in ticked.items()])
        return
    grid = table("topology", ">rotated", ">expired", ">orphaned")
    for name, done in ticked.items():
        row(grid, name, done.rotated, done.expired, done.orphaned)
    show(grid if ticked else "no topologies")


def _show_one(name: str, done: Ticked) -> None:
    sys.stdout.write(
        f"{name}: {done.rotated} shards rotated, {done.expired} expired, {done.orphaned} orphaned\n"
    )
    sys.stdout.flush()


def _show_one_json(name: str, done: Ticked) -> None:
    sys.stdout.write(json.dumps(_fields(name, done)) + "\n")
    sys.stdout.flush()
