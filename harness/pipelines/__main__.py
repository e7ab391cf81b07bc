r"""Random pipelines on real Spark, and a verdict.

    uv run python -m harness.pipelines --seed 1 --minutes 5 [--json report.json]
    uv run python -m harness.pipelines --seed 17 --count 1 [--show]

Ends with 0 where nothing was lost, and 1 where something was.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from harness.pipelines.plan import pipeline
from harness.pipelines.runner import run_all


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Runs; returns the status."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.pipelines", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--seed",
        type=int,
        nargs="+",
        required=True,
        help="of the first pipeline; or of several, and no others",
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no other is begun")
    parser.add_argument("--count", type=int, default=1_000_000, help="of pipelines, at most")
    parser.add_argument("--json", type=Path, help="where to write the report, too")
    parser.add_argument("--show", action="store_true", help="show the code, and do nothing")
    given = parser.parse_args(arguments)
    first = given.seed[0]
    seeds = given.seed if len(given.seed) > 1 else range(first, first + given.count)
    if given.show:
        for seed in seeds:
            sys.stdout.write(f"{pipeline(seed).text()}\n")
        return 0
    directory = Path(tempfile.mkdtemp(prefix="acker-pipelines-"))
    try:
        report = run_all(iter(seeds), 60 * given.minutes, directory, _say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.write(f"{report.table()}\n")
    if given.json is not None:
        given.json.write_text(json.dumps(report.dump(), indent=1) + "\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
