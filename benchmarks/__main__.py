"""All benchmarks in one run, or the named ones: one table, and JSON.

    uv run python -m benchmarks [PART ...] [--rounds N] [--json FILE] [--PART-OPTION VALUE ...]
    uv run python -m benchmarks --markdown FILE

Parts: updates, single, tick, growth, cluster, sizing, peers, external, spark; each tells in its module what
it measures, and has options for all its sizes. Each figure is printed as it is measured, and the table at the
end. FILE is written after each part. With --markdown nothing is measured: it prints the table of a FILE for
docs/performance.md.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.figures import Missing, Sample, markdown, rows, text
from benchmarks.machine import describe
from benchmarks.options import Number, type_of

PARTS = {
    "updates": "updates",
    "single": "single",
    "tick": "tick",
    "growth": "growth",
    "cluster": "cluster",
    "sizing": "sizing",
    "peers": "peers",
    "external": "external",
    "spark": "jobs",
}
"""Names of parts, and their modules."""


@dataclass(frozen=True)
class Part:
    """A module that measures, with its options."""

    name: str
    module: ModuleType

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """An option for each field of the part's `Sizes`."""
        group = parser.add_argument_group(f"{self.name}: {self.module.TITLE}")
        for field in fields(self.module.Sizes):
            default: Any = field.default
            many = isinstance(default, tuple)
            kind = type(default[0] if many else default)
            group.add_argument(
                option(self.name, field.name),
                type=type_of(field),
                metavar=f"{kind.__name__},..." if many else kind.__name__,
                help=f"default: {_written(default)}",
            )

    def sizes(self, asked: argparse.Namespace) -> Any:
        """The part's `Sizes` with what is asked for; ValueError where that makes no sense."""
        given = {
            field.name: value
            for field in fields(self.module.Sizes)
            if (value := getattr(asked, f"{self.name}_{field.name}")) is not None
        }
        if asked.rounds is not None:
            given.setdefault("rounds", asked.rounds)
        return self.module.Sizes(**given)

    def run(self, sizes: Any) -> Iterator[Sample | Missing]:
        """The samples of a part; an error is noted as missing, and the next part has its turn."""
        try:
            yield from self.module.samples(sizes)
        except Exception as error:  # noqa: BLE001 - a long run must not lose what it has
            yield Missing(f"{type(error).__name__}: {error}")


def option(part: str, field: str) -> str:
    """The option for a field of a part's `Sizes`."""
    return f"--{part}-{field.replace('_', '-')}"


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def parts() -> list[Part]:
    """All parts in their order."""
    return [Part(name, importlib.import_module(f"benchmarks.{module}")) for name, module in PARTS.items()]


def measure(part: Part, sizes: Any) -> dict[str, Any]:
    """Runs a part, prints each figure as it comes, and returns the part of the report."""
    print(f"== {part.name}: {sizes}", flush=True)
    start, found, missing = time.monotonic(), [], []
    for one in part.run(sizes):
        print(f"{part.name}  {one}", flush=True)
        if isinstance(one, Sample):
            found.append(one)
        else:
            missing.append(one.reason)
    changed = [
        f"{option(part.name, field.name)} {_written(getattr(sizes, field.name))}"
        for field in fields(sizes)
        if getattr(sizes, field.name) != field.default
    ]
    return {
        "title": part.module.TITLE,
        "command": " ".join(["uv run python -m benchmarks", part.name, *changed]),
        "seconds": round(time.monotonic() - start, 1),
        "rows": rows(found),
        "missing": missing,
    }


def main() -> int:
    """Runs the parts that are asked for."""
    known = parts()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    parser.add_argument("--rounds", type=Number(), help="of every part; default: 5")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the report is to be written")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="print this report; measure nothing")
    for part in known:
        part.add_options(parser)
    asked = parser.parse_args()
    if asked.markdown:
        print(markdown(json.loads(asked.markdown.read_text())))
        return 0
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))} (known: {', '.join(PARTS)})")
    chosen = [part for part in known if part.name in asked.parts or not asked.parts]
    try:
        sizes = {part.name: part.sizes(asked) for part in chosen}
    except ValueError as error:
        parser.error(str(error))
    report: dict[str, Any] = {"machine": describe(), "parts": {}}
    for part in chosen:
        report["parts"][part.name] = measure(part, sizes[part.name])
        if asked.json:
            asked.json.write_text(json.dumps(report, indent=1) + "\n")
    print("\n" + text(report))
    return 1 if any(part["missing"] for part in report["parts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
