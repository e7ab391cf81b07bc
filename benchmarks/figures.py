"""Samples of the parts of `python -m benchmarks`, and the table of them.

A part is a module with a dataclass `Sizes` (its options and their defaults) and a function `samples(sizes)`,
a generator that measures and yields. It measures all its ways in each round, one after the other, so that
what else the machine does hits all alike; the table has medians over the rounds.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


def check_known(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError where `given` has what is not known."""
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{what}: expected some of {', '.join(known)}, got {', '.join(unknown)}")


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement. Samples with the same name are the rounds of a row.

    against: the name of the row that it is compared with, if that is another one. cpu: microseconds of the
    server's main thread for each update (or whatever `unit` counts); None where that says nothing.
    """

    name: str
    value: float
    unit: str
    against: str = ""
    cpu: float | None = None

    def __str__(self) -> str:
        cpu = "" if self.cpu is None else f"   {self.cpu:.4g} us of the server"
        return f"{self.name}: {shown(self.value)} {self.unit}{cpu}"


@dataclass(frozen=True, slots=True)
class Missing:
    """A figure that a part could not measure, and why."""

    reason: str

    def __str__(self) -> str:
        return f"not measured: {self.reason}"


@dataclass(slots=True)
class Row:
    """The samples of one name."""

    name: str
    unit: str
    against: str
    values: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Adds a round."""
        self.values.append(sample.value)
        if sample.cpu is not None:
            self.cpus.append(sample.cpu)


def rows(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """The rows of a part as JSON has them.

    ratio and cpu_ratio are medians of the rounds' own ratios; None where there is nothing to compare with.
    """
    found: dict[str, Row] = {}
    for sample in samples:
        found.setdefault(sample.name, Row(sample.name, sample.unit, sample.against)).add(sample)
    made = []
    for row in found.values():
        base = None if row.against == row.name else found.get(row.against)
        made.append(
            {
                "name": row.name,
                "unit": row.unit,
                "median": statistics.median(row.values),
                "least": min(row.values),
                "most": max(row.values),
                "rounds": row.values,
                "against": row.against if base else "",
                "ratio": _ratio(row.values, base.values if base else []),
                "cpu": statistics.median(row.cpus) if row.cpus else None,
                "cpu_ratio": _ratio(row.cpus, base.cpus if base else []),
            }
        )
    return made


def _ratio(own: list[float], base: list[float]) -> float | None:
    both = [a / b for a, b in zip(own, base, strict=False) if b]
    return statistics.median(both) if both else None


def shown(value: float | None) -> str:
    """A figure with three or four digits that matter."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


HEADINGS = ("", "median", "least to most", "unit", "ratio", "server us each", "ratio of these", "against")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as the table shows it, in the order of `HEADINGS`."""
    return (
        row["name"],
        shown(row["median"]),
        f"{shown(row['least'])} to {shown(row['most'])}",
        row["unit"],
        shown(row["ratio"]),
        shown(row["cpu"]),
        shown(row["cpu_ratio"]),
        row["against"],
    )


def text(report: dict[str, Any]) -> str:
    """The whole of a report for a terminal."""
    lines = [f"{name}: {value}" for name, value in report["machine"].items()]
    for name, part in report["parts"].items():
        lines += ["", f"{name}: {part['title']}", f"  {part['command']}", ""]
        table = [HEADINGS, *(cells(row) for row in part["rows"])]
        widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
        for row in table:
            padded = (
                cell.ljust(width) if column in (0, 3, 7) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append(("  " + "  ".join(padded)).rstrip())
        lines += [f"  not measured: {reason}" for reason in part["missing"]]
    return "\n".join(lines)


def markdown(report: dict[str, Any]) -> str:
    """The same as a table of Markdown."""
    lines = [f"- {name}: {value}" for name, value in report["machine"].items()]
    for name, part in report["parts"].items():
        lines += ["", f"### {name}: {part['title']}", "", f"`{part['command']}`", ""]
        lines.append("| " + " | ".join(HEADINGS) + " |")
        lines.append("| --- | ---: | ---: | --- | ---: | ---: | ---: | --- |")
        lines += ["| " + " | ".join(cells(row)) + " |" for row in part["rows"]]
        lines += [f"\nNot measured: {reason}" for reason in part["missing"]]
    return "\n".join(lines)
