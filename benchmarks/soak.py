"""Memory under overload: what clients should not do, side by side for half an hour.

    uv run python -m benchmarks.soak [--minutes 30] [--kinds overload,writers] [--json FILE]

Each kind has a server and a client process of its own, and goes on at a rate that is easy on the machine:

    overload     records come more than twice as fast as trees expire: most are over the high-water mark
    orphans      acks and fails of trees that nobody tracks
    early        the same of the last trees of large slabs, with long reasons
    unconfirmed  a spout confirms none of the outcomes it gets, until all other records are rejected
    never-acked  a bolt acks nothing: every tree expires
    writers      each call comes from a writer that never sent before: a million, until no more are taken

The message timeout is short, so that trees expire all the time. When a kind has come to its bound and the
buckets were rotated a few times, its client samples every ten seconds: bytes and keys of the store, and its
own resident memory. Flat is what is, in the median of the last quarter, not more than `--tolerance` over the
median of the second. Exits with 1 where a kind is not flat or broke.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from acker import Topology
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger.tick.ticker import Ticker
from benchmarks.figures import check_known
from benchmarks.machine import describe
from benchmarks.misuse import ACKERS, KINDS, STEP, Sizes
from benchmarks.options import type_of
from benchmarks.processes import resident_bytes
from benchmarks.servers import client, memory, serving

ROTATIONS = 6
"""Rotations of each shard before samples count."""
LEAST_SAMPLES = 40
"""Samples of a kind at its bound, at least."""
PATIENCE = 60.0
"""Seconds that a call may take."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A client's sample: seconds since its start, bytes and keys of the store, its own bytes, counters.

    settled: whether the kind was at its bound.
    """

    at: float
    settled: bool
    store: int
    keys: int
    resident: int
    counters: dict[str, int]


FIGURES = ("store", "keys", "resident")
"""Figures that have to be flat."""
SLACK = {"store": MIB // 4, "keys": 64, "resident": 2 * MIB}
"""Differences that count as flat in any case: so small a difference is chance."""


def run(kind: str, url: str, sizes: Sizes, pipe: Connection) -> None:
    """A client: sends its samples, and None at the end, or what went wrong."""
    try:
        for sample in _samples(kind, url, sizes):
            pipe.send(sample)
        pipe.send(None)
    except Exception as error:  # noqa: BLE001 - the parent tells it
        pipe.send(f"{type(error).__name__}: {error}")


def _samples(kind: str, url: str, sizes: Sizes) -> Iterator[Sample]:
    """Works and ticks, until there are samples of `minutes` at the kind's bound."""
    seconds = sizes.minutes * 60
    with Topology(
        url,
        kind,
        ackers=ACKERS,
        message_timeout=sizes.timeout,
        high_water_mark=sizes.mark,
        waiting_bytes=sizes.waiting,
        timeout=PATIENCE,
    ) as topology:
        ticker = Ticker(topology.ledger.store, [kind], hooks=HOOKS)
        start = tick_at = sample_at = time.monotonic()
        settled = 0
        settled_at: float | None = None
        for bound in KINDS[kind](topology, sizes):
            now = time.monotonic()
            if now >= tick_at:
                tick_at = now + ticker.step()
            if settled_at is None:
                if bound and topology.counters()["rotations"] >= ROTATIONS * ACKERS:
                    settled_at = sample_at = now
                elif now - start > sizes.warm * 60:
                    raise RuntimeError(f"not at its bound after {sizes.warm} minutes: {topology.counters()}")
            if now >= sample_at:
                sample_at = now + min(sizes.samples, seconds / LEAST_SAMPLES)
                settled += settled_at is not None
                yield _sample(topology, now - start, settled_at is not None)
            if settled_at is not None and now - settled_at > seconds and settled >= LEAST_SAMPLES:
                return
            time.sleep(STEP)


def _sample(topology: Topology, at: float, settled: bool) -> Sample:
    url = topology.ledger.store.url
    with client(url) as raw:
        keys = int(raw.dbsize())
    return Sample(at, settled, memory(url), keys, resident_bytes(os.getpid()), topology.counters())


def soak(kinds: Sequence[str], sizes: Sizes) -> tuple[dict[str, list[Sample]], dict[str, str]]:
    """Runs kinds side by side; the samples of each, and what went wrong where one broke."""
    found: dict[str, list[Sample]] = {kind: [] for kind in kinds}
    broken: dict[str, str] = {}
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        clients: dict[Any, str] = {}
        for kind in kinds:
            url = stack.enter_context(serving())
            own, theirs = context.Pipe(duplex=False)
            context.Process(target=run, args=(kind, url, sizes, theirs), daemon=True).start()
            theirs.close()
            clients[own] = kind
        while clients:
            for pipe in wait(list(clients)):
                assert isinstance(pipe, Connection)
                got: Any
                try:
                    got = pipe.recv()
                except EOFError:
                    got = "its client was killed"
                if isinstance(got, Sample):
                    found[clients[pipe]].append(got)
                    continue
                kind = clients.pop(pipe)
                if got is not None:
                    broken[kind] = got
    return found, broken


def judge(samples: Sequence[Sample], tolerance: float) -> dict[str, dict[str, Any]]:
    """For each figure: its first value, medians of the second and the last quarter, and whether it is flat.

    What was sampled before the kind was at its bound does not count.
    """
    settled = [sample for sample in samples if sample.settled]
    quarter = len(settled) // 4
    found = {}
    for name in FIGURES:
        values = [getattr(sample, name) for sample in settled]
        second = statistics.median(values[quarter : 2 * quarter])
        last = statistics.median(values[-quarter:])
        found[name] = {
            "first": getattr(samples[0], name),
            "second": second,
            "last": last,
            "flat": last <= max(second * (1 + tolerance), second + SLACK[name]),
        }
    return found


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = [
        "| kind | | at its start | second quarter | last quarter | ratio | flat |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for kind, one in report["kinds"].items():
        for name, row in one["figures"].items():
            cells = [_shown(name, row[when]) for when in ("first", "second", "last")]
            flat = "yes" if row["flat"] else "**no**"
            lines.append(
                f"| {kind} | {name} | {' | '.join(cells)} | {row['last'] / row['second']:.3f} | {flat} |"
            )
    lines.append("")
    for kind, one in report["kinds"].items():
        counts = ", ".join(f"{name} {count:,}" for name, count in one["counters"].items() if count)
        lines.append(f"- {kind}, {one['minutes']:.1f} minutes with those before its bound: {counts}")
    lines += [f"- {kind} broke: {why}" for kind, why in report["broken"].items()]
    return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    return f"{value:,.0f}" if name == "keys" else f"{value / MIB:,.2f} MiB"


def report_of(kinds: Sequence[str], sizes: Sizes) -> dict[str, Any]:
    """Runs, and puts together what `--json` writes."""
    machine = describe()
    found, broken = soak(kinds, sizes)
    return {
        "machine": machine,
        "sizes": asdict(sizes),
        "kinds": {
            kind: {
                "minutes": samples[-1].at / 60,
                "figures": judge(samples, sizes.tolerance),
                "counters": samples[-1].counters,
                "samples": [asdict(sample) for sample in samples],
            }
            for kind, samples in found.items()
            if kind not in broken
        },
        "broken": broken,
    }


def flat(report: dict[str, Any]) -> bool:
    """True if nothing broke and every figure of every kind is flat."""
    figures = [row for one in report["kinds"].values() for row in one["figures"].values()]
    return not report["broken"] and all(row["flat"] for row in figures)


def main() -> int:
    """Runs the kinds that are asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the report with all samples goes")
    for field in fields(Sizes):
        parser.add_argument(
            f"--{field.name}",
            type=type_of(field),
            default=field.default,
            help=f"default: {field.default}",
        )
    asked = parser.parse_args()
    kinds = asked.kinds.split(",")
    try:
        check_known("kinds", kinds, KINDS)
    except ValueError as error:
        parser.error(str(error))
    report = report_of(kinds, Sizes(**{field.name: getattr(asked, field.name) for field in fields(Sizes)}))
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    return 0 if flat(report) else 1


if __name__ == "__main__":
    sys.exit(main())
