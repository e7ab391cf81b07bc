"""`acker drpc`: functions that steps work out: list them, look at one, call it, work on it, remove it."""

import importlib
import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker.cli.shared.group import add, group
from acker.cli.shared.noting import noting
from acker.cli.shared.options import FunctionName, Json, JsonBefore, OfStore, TimeoutBefore, UrlBefore
from acker.cli.shared.output import duration, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.cli.shared.stopping import stop_on_signals, wait_until
from acker.errors import (
    AckerError,
    FunctionConflict,
    NotFound,
    UnknownRequest,
    UnknownTopology,
    ValidationError,
    needing_pyarrow,
    text_of,
)
from acker.ledger.client import open_ledger
from acker.ledger.fields import as_json as json_of
from acker.ledger.fields import instant
from acker.ledger.slabs.causes import said_by
from acker.store import function_keys
from acker.store.operation import command

if TYPE_CHECKING:
    from acker.drpc.linear_drpc import LinearDRPC
    from acker.drpc.registry import Description
    from acker.inspect.functions.figures import Figures
    from acker.ledger.client import Ledger

app = group("Functions: ask, and get the answer.")


@app.callback()
def _drpc(url: UrlBefore = None, timeout: TimeoutBefore = None, as_json: JsonBefore = False) -> None:
    pass  # `Commands` gives these to the command


def functions(store: OfStore, as_json: Json = False) -> None:
    """All functions of the store, with their calls without answer."""
    from acker.drpc import registry

    registered = store.run(registry.functions())
    waiting = store.send(
        [
            command("HLEN", function_keys.Function(function.topology, function.name).calls)
            for function in registered
        ]
    )
    if as_json:
        show_json(
            [
                {
                    "function": function.name,
                    "topology": function.topology,
                    "steps": [step.name for step in function.steps],
                    "idempotent": function.idempotent,
                    "timeout": function.timeout,
                    "waiting": count,
                    "max_pending": function.max_pending,
                }
                for function, count in zip(registered, waiting, strict=True)
            ]
        )
        return
    functions_table = table("function", "topology", "steps", ">waiting", ">timeout")
    for function, count in zip(registered, waiting, strict=True):
        steps = ", ".join(step.name for step in function.steps)
        row(
            functions_table, function.name, function.topology, steps, f"{count:,}", duration(function.timeout)
        )
    show(functions_table if registered else "no functions")


def show_function(
    name: FunctionName,
    store: OfStore,
    request: Annotated[str, typer.Argument(help="A call of it.", metavar="REQUEST")] = "",
    as_json: Json = False,
) -> None:
    """A function, who works on its steps, and what became of its calls; or of one call."""
    from acker.drpc import registry
    from acker.inspect.functions.function_state import function_state

    function = store.run(registry.find(name))
    ledger = open_ledger(store, function.topology, create=False)
    if request:
        if not re.fullmatch("[0-9a-f]{32}", request):
            raise ValidationError(f"request: expected 32 hexadecimal digits, got {request!r:.100}")
        _show_call(ledger, function, request, as_json)
        return
    state = ledger.run(function_state(ledger.core, function))
    if as_json:
        steps = [{"step": one.name, **json_of(one)} for one in state.steps]
        show_json({**json_of(state), "steps": steps})
        return
    grid = table("step", "reads", ">tasks", ">workers")
    for step in state.steps:
        row(grid, step.name, step.stream, step.tasks, "Spark" if step.spark else step.workers)
    show(grid, "")
    _show_figures(state.figures)


def _show_figures(figures: "Figures") -> None:
    """Shows the outcomes of calls, and the reasons of missing results in the last ten minutes."""
    numbers = ("answered", "failed", "timed out", "p50", "p95", "p99")
    figures_table = table("calls", *numbers)
    for name, one in (("last ten minutes", figures.recent), ("all", figures.total)):
        counts = (f"{count:,}" for count in (one.answered, one.failed, one.timed_out))
        row(figures_table, name, *counts, *map(duration, (one.latency.p50, one.latency.p95, one.latency.p99)))
    late = f", {figures.late:,} of them late" if figures.late else ""
    show(figures_table, "", f"{figures.pending:,} calls without answer{late}")
    if causes := figures.recent.causes:
        figures_table = table("last ten minutes", "step", "cause", ">calls")
        for cause in causes:
            row(
                figures_table,
                cause.status,
                ", ".join(cause.steps) or "-",
                cause.text or "others",
                f"{cause.calls:,}",
            )
        show("", figures_table)


def _show_call(ledger: "Ledger", function: "Description", request: str, as_json: bool) -> None:
    """A call: how it ended, or how far each step is."""
    with needing_pyarrow("to look into calls"):
        from acker.drpc import calls
        from acker.inspect.functions import call_progress

    seen, steps = ledger.run(calls.see(ledger.core, function, request)), list[call_progress.StepSeen]()
    if seen is not None and seen.status is calls.Status.PENDING:
        found = ledger.run(call_progress.follow(ledger.core, function, request))
        if found is not None and found.head.status is calls.Status.PENDING:
            steps = list(found.steps)
        else:  # it was answered in between
            seen = ledger.run(calls.see(ledger.core, function, request))
    if seen is None:
        raise UnknownRequest(
            f"function {function.name!r} has no request {request!r}, or it was answered over "
            f"{duration(function.keep)} ago"
        )
    if as_json:
        result = json.loads(seen.text) if seen.status == "answered" else None
        reason = "" if seen.status == "answered" else seen.text
        show_json(
            {
                "status": seen.status,
                "result": result,
                "reason": reason,
                "waits_for": list(seen.steps),
                "steps": steps,
            }
        )
        return
    names = ", ".join(seen.steps)
    if names and seen.status is calls.Status.FAILED:
        show(f"failed in step {names}: {seen.text}")
    else:
        waits = f"for {names}" if names else ""
        show(f"{seen.status} {seen.text or waits}".rstrip())
    if steps:
        steps_table = table("step", "state", "since", ">rows that wait for it")
        for one in steps:
            since = "-" if one.since is None else instant(one.since)
            row(steps_table, one.name, str(one.state), since, f"{sum(each.rows for each in one.gathered):,}")
        show("", steps_table)


def call(
    name: FunctionName,
    store: OfStore,
    args: Annotated[str, typer.Argument(metavar="JSON", help="The arguments.", show_default=False)],
    wait: Annotated[
        float | None, typer.Option(help="Seconds for the answer; default: the function's.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The same key twice is worked out once.")] = None,
    as_json: Json = True,
) -> None:
    """Ask a function, and print the result as JSON. Exit status 1 where it fails, or does not answer."""
    with needing_pyarrow("to call functions"):
        from acker.drpc import registry
        from acker.drpc.calling.client import Client
    try:
        asked = json.loads(args)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"args: expected JSON, got {args!r:.100}: {error}") from None
    ledger = open_ledger(store, store.run(registry.find(name)).topology, create=False)
    show_json(Client(ledger, name).execute(asked, timeout=wait, key=key))


def work(
    where: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A LinearDRPC.", show_default=False)],
    topology: Annotated[
        str, typer.Option(help="The topology, made where it is missing.", show_default=False)
    ],
    store: OfStore,
    threads: Annotated[int, typer.Option(help="For each step.")] = 1,
) -> Status:
    """Work on a function until it is stopped."""
    with needing_pyarrow("to work on functions"):
        from acker.lines.line import check_threads
    function = _found(where)
    check_threads(threads)  # before the topology is made
    ledger = open_ledger(store, topology)
    stop = stop_on_signals()
    with ExitStack() as stack:
        ended = stack.enter_context(function.work(_Topology(ledger), threads))
        sys.stderr.write(f"acker: working on function {function.name} of {topology}; Ctrl-C stops it\n")
        wait_until(stop, ended)
        if ended.is_set():
            raise FunctionConflict(
                f"function {function.name!r} was registered otherwise, by another program: the workers of "
                "this one have ended"
            )
    return stop.status


class _Topology:
    """The topology of a function."""

    def __init__(self, ledger: Any) -> None:
        self.ledger = ledger


def _found(where: str) -> "LinearDRPC":
    with needing_pyarrow("to work on functions"):
        from acker.drpc.linear_drpc import LinearDRPC
    module, _, name = where.partition(":")
    if not module or not name:
        raise ValidationError(f"function: expected MODULE:NAME, as shop.functions:reach, got {where!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the module is the user's: it may raise anything, SystemExit, too
        missing = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        said = text_of(error) if isinstance(error, ImportError) else said_by(error)
        kind = NotFound if missing else AckerError
        raise kind(f"function {where!r} cannot be imported: {said}") from error
    if (function := getattr(loaded, name, None)) is None:
        raise NotFound(f"function {where!r} cannot be imported: module {module!r} has no {name!r}")
    if not isinstance(function, LinearDRPC):
        raise ValidationError(f"function: expected {where} to be a LinearDRPC, got {function!r:.100}")
    return function


def remove(
    name: FunctionName,
    store: OfStore,
    force: Annotated[
        bool, typer.Option("--force", help="Also with calls without answer, which fail, and with workers.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove a function with its line and streams, so that another may have its name."""
    with needing_pyarrow("to remove functions"):
        from acker.drpc import registry, removal

    function = store.run(registry.find(name))
    try:
        ledger = open_ledger(store, function.topology, create=False)
    except UnknownTopology:
        store.run(registry.remove(function))
    else:
        with noting(ledger, "remove-function", {"function": name, "force": force}):
            removal.retire(ledger, function, force=force)
    show_json({"function": name, "topology": function.topology}) if as_json else show(
        f"removed function {name}"
    )


add(app, "list", functions)
add(app, "show", show_function)
add(app, "call", call)
add(app, "work", work)
add(app, "remove", remove)
