"""Output of commands: tables for people, JSON for programs.

Message ids and reasons may hold any bytes: only printable characters may reach a terminal.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from acker.cli.shared.statuses import Status
from acker.ledger.fields import json_text


def printable(value: bytes | str) -> str:
    """Text for a terminal.

    Bytes that are no UTF-8 become escape sequences, and so do characters that are not printable, or that the
    output's encoding lacks.
    """
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    if _can_be_shown(text):
        return text
    return "".join(
        character if _can_be_shown(character) else character.encode("unicode_escape").decode()
        for character in text
    )


def _can_be_shown(text: str) -> bool:
    if not text.isprintable():
        return False
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str) -> str:
    """A message as one printable line."""
    return printable(" ".join(text.split()))


def duration(seconds: float | None) -> str:
    """Seconds for people: three digits or so, and the unit."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def step_batch(step: str, batch: int) -> str:
    """Returns the failing step, and the batch of its query (-1: unknown), as text; "" for no step."""
    return f"{step}, batch {batch}" if step and batch >= 0 else step


def show_json(value: object) -> None:
    """Writes a value as JSON, ASCII only."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def progress(text: str) -> None:
    """Shows progress in place of the earlier progress, if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


def end_progress() -> None:
    """Removes the progress that `progress` has shown."""
    progress("")


def table(*columns: str) -> Table:
    """An empty table.

    A > before the name of a column says that it holds numbers; a = before that, that it holds ids, which stay
    on one line however narrow the terminal is: they are copied.
    """
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        name = column.removeprefix("=")
        justify: Any = "right" if name.startswith(">") else "left"
        grid.add_column(
            name.removeprefix(">"), justify=justify, overflow="fold", no_wrap=column.startswith("=")
        )
    return grid


def row(grid: Table, *cells: object) -> None:
    """Adds a row; cells are shown as they are, whatever markup they seem to hold."""
    grid.add_row(*(Text(printable(str(cell))) for cell in cells))


def facts(pairs: Sequence[tuple[str, object]]) -> Table:
    """A table of names and values."""
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in pairs:
        row(grid, name, value)
    return grid


def show(*things: Table | str) -> None:
    """Writes tables and lines. Where stdout is no terminal, as wide as they need to be."""
    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 240)
    for thing in things:
        console.print(Text(printable(thing)) if isinstance(thing, str) else thing)


_MOST_PAGES = 100


P = TypeVar("P", bound=Any)


def page_status(pages: list[Any]) -> Status:
    """DONE, or PARTLY where there are further pages."""
    return Status.DONE if pages[-1].cursor is None else Status.PARTLY


def all_pages(read: Callable[[str | None], P]) -> list[P]:
    """All pages, each of them bounded, up to a hundred."""
    pages = [read(None)]
    while pages[-1].cursor is not None and len(pages) < _MOST_PAGES:
        pages.append(read(pages[-1].cursor))
    return pages
