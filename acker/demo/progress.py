"""Live progress: a table where there is a terminal, else a plain line every few seconds."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from acker.demo.records import Status

_PLAIN_EVERY = 2.0
_RATE_OVER = 3.0

COLUMNS = (
    ("tracked", "trees"),
    ("in flight", "in_flight"),
    ("acked", "acked"),
    ("failed", "failed"),
    ("expired", "expired"),
    ("replayed", "replays"),
    ("dead-lettered", "dead"),
)
"""What is shown: its name, and the field of `Status`."""


class Rate:
    """Something counted, per second over the last seconds."""

    def __init__(self, over: float = _RATE_OVER) -> None:
        self._over = over
        self._seen: list[tuple[float, int]] = []

    def per_second(self, now: float, count: int) -> float:
        """Takes a count and gives the rate."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._over:
            self._seen.pop(0)
        (then, before), seconds = self._seen[0], now - self._seen[0][0]
        return (count - before) / seconds if seconds > 0 and now > then else 0.0


class Progress:
    """Shows what the demo is at, while it is entered.

    console: where to. total: how many lines there are to be; 0: not known.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._started = time.monotonic()
        self._rate = Rate()
        self._shown_at = float("-inf")
        self._finished = False
        self._live = (
            Live(console=console, transient=True, refresh_per_second=4) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A step of the demo, which stays in view."""
        self._console.print(
            f"{time.monotonic() - self._started:5.1f} s  {text}", highlight=False, markup=False
        )

    def show(self, status: Status) -> None:
        """The counts now; may be called as often as one likes."""
        now = time.monotonic()
        if self._live is not None:
            self._live.update(self._table(status, self._rate.per_second(now, status.acked)))
        elif now - self._shown_at >= _PLAIN_EVERY or (status.finished and not self._finished):
            self._shown_at, self._finished = now, status.finished
            values = ", ".join(f"{name} {getattr(status, field):,}" for name, field in COLUMNS)
            self.say(f"{values}, {self._rate.per_second(now, status.acked):,.0f} acked/s")

    def _table(self, status: Status, rate: float) -> Table:
        of_all = f" of {self._total:,}" if self._total else ""
        title = f"acker demo: {status.lines:,}{of_all} lines"
        # Eighty columns are enough for it.
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for name, _ in COLUMNS:
            table.add_column(name, justify="right")
        table.add_column("acked/s", justify="right")
        table.add_row(*[f"{getattr(status, field):,}" for _, field in COLUMNS], f"{rate:,.0f}")
        return table
