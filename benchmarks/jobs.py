"""Spark: two jobs with tracking and without, as benchmarks/spark.py measures them.

    uv run python -m benchmarks spark [--spark-tuples 1000000,10000000] [--spark-variants words]

A tuple is a word, ten to a line, so 10 million tuples are a million trees. benchmarks/spark.py says what its
variants do; each number of tuples has a process, and so a Spark session, of its own. The ratios are medians
of its pairs' ratios.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figures import Sample
from benchmarks.options import sized

TITLE = "the same Spark jobs with tracking and without"
WORDS_A_LINE = 10


@dataclass(frozen=True)
class Sizes:
    """Options: tuples of a run, benchmarks/spark.py's variants, and pairs that warm up."""

    rounds: int = 5
    tuples: tuple[int, ...] = (1_000_000, 10_000_000)
    variants: tuple[str, ...] = ("words",)
    warm_up: int = sized(2, least=0)


def samples(sizes: Sizes) -> Iterator[Sample]:
    """Runs benchmarks/spark.py for each number of tuples; it tells of its pairs on stderr."""
    for tuples in sizes.tuples:
        for variant in sizes.variants:
            command = [sys.executable, "-m", "benchmarks.spark", "--json", "--variants", variant]
            command += ["--lines", str(max(1, tuples // WORDS_A_LINE)), "--pairs", str(sizes.rounds)]
            command += ["--warm-up", str(sizes.warm_up)]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found, name = json.loads(out)[variant], f"{variant}, {tuples:,} tuples"
            for pair in found["pairs"]:
                yield Sample(f"{name}: without", pair["without"], "s")
                yield Sample(f"{name}: tracked", pair["tracked"], "s", f"{name}: without")
                yield Sample(f"{name}: processor time, tracked / without", pair["cpu_ratio"], "x")
