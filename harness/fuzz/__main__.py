"""Feeds everything that parses what others wrote with hostile input, guided by the code that it reaches.

    uv run python -m harness.fuzz [--seconds 60] [--seed 0] [--keep DIRECTORY] [TARGET ...]

The targets stand in harness/fuzz/targets.py; all run in turn by default. An error that is not acker's,
20 seconds for one input, or 2 GiB of memory is a defect: the input is written to DIRECTORY, shown, and the
exit status is 1. The inputs that reached something new are kept there, for the next run to begin with.
"""

import argparse
import logging
import multiprocessing
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["acker"]):
    from harness.fuzz.targets import TARGETS, Target

MOST_BYTES = 4096


def fuzz(name: str, seconds: int, seed: int, directory: Path) -> None:
    """Feeds one target; ends the process."""
    logging.disable(logging.CRITICAL)
    target: Target = TARGETS[name]
    corpus = directory / name.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(target.samples):
        (corpus / f"sample-{number}").write_bytes(sample)
    settings = [
        f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", f"-seed={seed}", "-timeout=20",
        "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={directory}/",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *settings, str(corpus)], target)
    atheris.Fuzz()


def main() -> int:
    """Runs the targets, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    unknown = set(asked.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(TARGETS)}")
    bad = []
    with tempfile.TemporaryDirectory() as temporary:
        directory = asked.keep or Path(temporary)
        for name in asked.targets or TARGETS:
            sys.stdout.write(f"== {name}\n")
            sys.stdout.flush()
            process = multiprocessing.get_context("fork").Process(
                target=fuzz, args=(name, asked.seconds, asked.seed, directory)
            )
            process.start()
            process.join()
            if process.exitcode:
                bad.append(name)
    sys.stdout.write(f"defects: {', '.join(bad) or 'none'}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
