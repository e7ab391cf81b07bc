"""`acker demo`: the main job on real text, from end to end."""

import importlib.util
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from acker.cli.demo import options as demo_options
from acker.cli.shared.output import duration, facts, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.errors import NotInstalled
from acker.ledger.settings.config import Settings

if TYPE_CHECKING:
    from acker.cli.demo.report import Report


def demo(
    url: Annotated[
        str | None,
        typer.Option(envvar="ACKER_URL", help="The store; without, an embedded server is started."),
    ] = None,
    topology: Annotated[
        str | None, typer.Option(help="Name of the topology, which must be new.", show_default="a new name")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="PATH", help="Text to read; may be given again.", show_default="Python"
        ),
    ] = None,
    paths: Annotated[list[str] | None, typer.Argument(metavar="PATH", help="More text to read.")] = None,
    lines: Annotated[int, typer.Option(help="Most lines to read; 0: all.")] = demo_options.LINES,
    max_spout_pending: Annotated[
        int, typer.Option(help="Most lines in flight.")
    ] = demo_options.MAX_SPOUT_PENDING,
    message_timeout: Annotated[
        float, typer.Option(help="Seconds after which a tree expires.")
    ] = demo_options.MESSAGE_TIMEOUT,
    wait_replicas: Annotated[
        int, typer.Option(help="How many replicas of the store have a line's tree before it goes on.")
    ] = 0,
    wait_fsync: Annotated[
        int, typer.Option(help="1: the store's append-only file has it on the disk before that; else 0.")
    ] = 0,
    flaky: Annotated[
        str, typer.Option(metavar="WORDS", help="Words that fail their line at first.")
    ] = ",".join(demo_options.FLAKY_WORDS),
    poison_every: Annotated[
        int, typer.Option(help="One of so many lines always fails; 0: none.")
    ] = demo_options.POISON_EVERY,
    transport: Annotated[
        str,
        typer.Option(help="The way of the words: store; parquet: files, with stamps; or kafka://HOST:PORT."),
    ] = demo_options.TRANSPORTS[0],
    port: Annotated[int, typer.Option(help="TCP port of the dashboard; 0 takes a free one.")] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep dashboard, store and ticker up afterwards, until Ctrl-C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> int:
    """Count the words of real text with two Spark applications, and check the result.

    Reads Python's standard library by default. Shows progress on stderr, and the address of the
    dashboard, which is there while it runs. Ends with status 1 where anything differs from an independent
    count.
    """
    for module in ("pyspark", "pyarrow", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise NotInstalled(f"the demo needs {module}: install acker with its extra 'demo'")
    from acker.cli.demo import supervisor
    from acker.cli.demo.processes import ChildFailed
    from acker.cli.demo.progress import Progress

    asked = demo_options.Options(
        url=url or None,
        topology=topology,
        inputs=(*(inputs or ()), *(paths or ())),
        lines=lines,
        max_spout_pending=max_spout_pending,
        settings=Settings(
            message_timeout=message_timeout, wait_replicas=wait_replicas, wait_fsync=wait_fsync
        ),
        port=port,
        faults=demo_options.Faults.parse(flaky, poison_every),
        transport=transport,
    )
    progress = Progress(Console(stderr=True, soft_wrap=True))
    try:
        with supervisor.starting(asked, progress) as running:
            with progress:
                report = running.run()
            if as_json:
                show_json(report.dump())
            else:
                _show(report)
            if keep:
                sys.stdout.flush()
                running.keep()
    except supervisor.Interrupted as interrupted:
        sys.stderr.write(f"acker: stopped by {interrupted}\n")
        return interrupted.status
    except ChildFailed as error:
        sys.stderr.write(f"{error.log_end}\n")
        raise
    return Status.DONE if report.check.ok else Status.TROUBLE


def _show(report: "Report") -> None:
    status = report.status
    figures: list[tuple[str, object]] = [("lines", f"{status.lines:,}"), ("trees", f"{status.trees:,}")]
    figures += [(f"  {name}", f"{count:,}") for name, count in report.outcomes().items()]
    figures += [("replays", f"{status.replays:,}"), ("dead letters", f"{len(report.dead):,}")]
    figures += [(f"  {reason}", f"{count:,}") for reason, count in report.causes()]
    figures += [(f"complete latency {name}", duration(value)) for name, value in report.percentiles().items()]
    figures += [
        (
            "wall time",
            f"{duration(report.wall)} ({duration(report.startup)} of it lines waited for Spark)",
        )
    ]
    frequent = table("most frequent words", ">count")
    for word, count in report.most_frequent:
        row(frequent, word, f"{count:,}")
    show("", facts(figures), "", frequent, "")
    if report.check.ok:
        show(
            f"check: ok. The sink holds {report.check.words:,} words, as an independent count of the "
            f"text without its {len(report.dead):,} dead letters finds; each line has one final outcome."
        )
        return
    show("check: FAILED")
    for problem in report.check.problems:
        show(f"  {problem}")
