"""The tables of the guide, as the code has to have them."""

import re
from collections.abc import Mapping
from pathlib import Path

from acker.ledger.settings.settings import Setting

DOCS = Path(__file__).parents[2] / "docs"
Rows = dict[str, tuple[str, ...]]


def table(page: str, heading: str) -> Rows:
    """The first table below a heading: names -> the other cells, without marks and links."""
    below = (DOCS / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (`.*) \|$", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", below), re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    return {name: tuple(rest) for names, *rest in cells for name in re.findall("`(.*?)`", names)}


def listed(settings: Mapping[str, Setting]) -> Rows:
    """Settings as a table has them."""
    return {name: (one.values, one.preset, one.words) for name, one in settings.items()}
