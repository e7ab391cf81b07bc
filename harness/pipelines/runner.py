"""Runs pipelines, one after the other: one Spark session, one store, a topology for each."""

import logging
import os
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.inspect.operate.removal import remove
from acker.ledger.client import open_ledger
from acker.spark import register, tuned
from acker.store.client import Store
from harness.pipelines.plan import Pipeline, pipeline
from harness.pipelines.story import Story
from harness.pipelines.verdict import REFUSED, SPARK, Observed, clean, judge

MESSAGE_TIMEOUT = 600.0
"""Seconds: trees expire when the story says so."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A pipeline that was run. refusals, errors: of acker's own, and of Spark or the user's code."""

    seed: int
    seconds: float
    names: tuple[str, ...]
    records: int
    acked: int
    dead: int
    replayed: int
    refusals: tuple[str, ...]
    errors: tuple[str, ...]
    clean: bool
    problems: tuple[str, ...]


@dataclass(slots=True)
class Report:
    """The ends of all pipelines."""

    judged: list[Judged] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """All, with their seeds."""
        return [f"seed {one.seed}: {problem}" for one in self.judged for problem in one.problems]

    def dump(self) -> dict[str, object]:
        """The report as plain values."""
        return {"problems": self.problems, "judged": [asdict(one) for one in self.judged]}

    def table(self) -> str:
        """The report as text for people."""
        total = len(self.judged)
        refused = sum(bool(one.refusals) for one in self.judged)
        spark = sum(bool(one.errors) for one in self.judged)
        counts = {
            name: sum(getattr(one, name) for one in self.judged)
            for name in ("records", "acked", "dead", "replayed")
        }
        reported = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        lines = [
            f"{total:,} pipelines in {sum(one.seconds for one in self.judged):,.0f} s: "
            f"{sum(one.clean for one in self.judged):,} to their end, {refused:,} refused, "
            f"{spark:,} with an error of Spark's or their own; {reported}",
            "",
            "| in pipelines | how many | to the end | refused |",
            "| --- | ---: | ---: | ---: |",
        ]
        names = Counter(name for one in self.judged for name in set(one.names))
        for name, count in sorted(names.items()):
            own = [one for one in self.judged if name in one.names]
            whole, stopped = sum(one.clean for one in own), sum(bool(one.refusals) for one in own)
            lines.append(f"| {name} | {count} | {whole} | {stopped} |")
        for title, texts in (
            ("refusals", Counter(text for one in self.judged for text in set(one.refusals))),
            (
                "errors of Spark or of the code",
                Counter(text for one in self.judged for text in set(one.errors)),
            ),
        ):
            lines += ["", f"{title}:", *(f"- {count} x {text}" for text, count in texts.most_common(30))]
        lines += [
            "",
            "verdict: " + ("nothing lost" if not self.problems else "\n- ".join(["", *self.problems])),
        ]
        return "\n".join(lines)


@contextmanager
def session(directory: Path) -> Iterator[SparkSession]:
    """A Spark application for many pipelines."""
    os.environ["JAVA_HOME"] = str(ensure_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    builder = tuned(
        SparkSession.builder.master("local[2]").appName("pipelines"), local_checkpoints=True, pip_workers=True
    )
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def run_all(seeds: Iterator[int], seconds: float, directory: Path, say: Callable[[str], None]) -> Report:
    """Runs pipelines until the time is over, at least one; says what comes of each."""
    report = Report()
    with EmbeddedServer(append_only=False) as server, session(directory) as spark:
        deadline = time.monotonic() + seconds
        for seed in seeds:
            plan = pipeline(seed)
            one = run_one(plan, spark, server.url, directory / str(seed))
            report.judged.append(one)
            ends = "; ".join([*one.problems, *one.refusals, *one.errors]) or "to the end"
            say(f"seed {seed} ({one.seconds:.0f} s): {', '.join(one.names)}: {ends}")
            if one.problems:
                say(plan.text())
            if time.monotonic() > deadline:
                break
    return report


def run_one(plan: Pipeline, spark: SparkSession, url: str, directory: Path) -> Judged:
    """Runs a pipeline and judges it."""
    directory.mkdir(parents=True)
    began, trouble = time.monotonic(), ""
    found: Observed | None = None
    ledger = open_ledger(Store(url), f"p{plan.seed}", ackers=2, message_timeout=MESSAGE_TIMEOUT)
    try:
        found = Story(spark, ledger, url, directory, plan).tell()
    except Exception:  # noqa: BLE001 - whatever it is, the next pipeline is run, and this is reported
        trouble = traceback.format_exc(limit=-4)
    finally:
        spark.catalog.clearCache()
        shutil.rmtree(directory, ignore_errors=True)
    ledger.run(remove(ledger.config.name, force=True))
    names = plan.names
    if found is None:
        return Judged(
            plan.seed, time.monotonic() - began, names, len(plan.numbers), 0, 0, 0, (), (), False,
            (f"the story ended by {trouble}",),
        )  # fmt: skip
    return Judged(
        plan.seed,
        time.monotonic() - began,
        names,
        len(plan.numbers),
        len({one.number for one in found.reported if one.status == "acked"}),
        len(found.letters),
        sum(not one.final for one in found.reported),
        tuple(dict.fromkeys(one.error for one in found.ends if one.kind == REFUSED)),
        tuple(dict.fromkeys(one.error for one in found.ends if one.kind == SPARK)),
        clean(found),
        tuple(judge(found)),
    )
