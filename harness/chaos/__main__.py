r"""Random faults on a running pipeline, and a verdict.

    uv run python -m harness.chaos --seed 1 --minutes 5 [--store cluster] [--json report.json]

Ends with 0 where nothing was lost, 1 where something was, and 2 where the pipeline did not run.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from harness.chaos.runner import NotReady, Options, Run
from tests.helpers.servers.servers import KINDS


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m harness.chaos", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seed", type=int, required=True, help="the same seed has the same plan")
    parser.add_argument("--minutes", type=float, required=True, help="for which faults are injected")
    parser.add_argument("--store", choices=("server", "cluster"), default="server")
    parser.add_argument("--kind", choices=KINDS, default="valkey", help="of server")
    parser.add_argument("--every", type=float, default=3.0, help="seconds from a fault to the next, about")
    parser.add_argument("--rate", type=float, default=20.0, help="records per second")
    parser.add_argument("--message-timeout", type=float, default=15.0, help="seconds")
    parser.add_argument("--json", type=Path, help="where to write the report, too")
    parser.add_argument("--keep", action="store_true", help="leave the directory with logs and databases")
    parser.add_argument(
        "--only", action="append", default=[], metavar="KIND", help="of fault; may be given several times"
    )
    parser.add_argument("--plan", action="store_true", help="show the plan, and do nothing")
    return parser.parse_args(arguments)


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Runs; returns the status."""
    given = _parse(arguments)
    options = Options(
        given.seed, given.minutes, given.store, given.kind, given.every, given.rate, given.message_timeout,
        given.only,
    )  # fmt: skip
    if given.plan:
        for fault in options.plan():
            sys.stdout.write(f"{fault.at:8.1f} s  {fault.kind} for {fault.duration:.1f} s\n")
        return 0
    signal.signal(signal.SIGTERM, _stop)
    directory = Path(tempfile.mkdtemp(prefix="acker-chaos-"))
    status = 2
    try:
        report = Run(options, directory, _say).run()
        sys.stdout.write(f"{report.table()}\n")
        if given.json is not None:
            given.json.write_text(json.dumps(report.dump(), indent=1) + "\n")
        status = 1 if report.problems else 0
    except NotReady as error:
        _say(str(error))
    finally:
        if given.keep or (status and not isinstance(sys.exception(), KeyboardInterrupt)):
            _say(f"logs and databases are kept in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
