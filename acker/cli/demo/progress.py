"""Live progress: a line that stands where there is a terminal, else a new line every few seconds."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from acker.cli.demo.records import Status

_PLAIN_EVERY = 2.0
_RATE_OVER = 3.0


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
    """Shows what the demo is at, while it is entered. console: where to."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._rate = Rate()
        self._shown_at, self._shown = float("-inf"), ""
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
        line = f"{time.monotonic() - self._started:5.1f} s  {text}"
        self._console.print(line, highlight=False, markup=False)

    def show(self, status: Status) -> None:
        """The counts now, where they have changed; may be called as often as one likes."""
        now = time.monotonic()
        rate = self._rate.per_second(now, status.acked)
        counts = (
            f"lines {status.lines:,}, in flight {status.in_flight:,}, acked {status.acked:,}, "
            f"failed {status.failed:,}, expired {status.expired:,}, replayed {status.replays:,}, "
            f"dead-lettered {status.dead:,}"
        )
        if self._live is not None:
            self._live.update(f"{counts}, {rate:,.0f} acked/s")
        elif now - self._shown_at >= _PLAIN_EVERY and counts != self._shown:
            self._shown_at, self._shown = now, counts
            self.say(f"{counts}, {rate:,.0f} acked/s")
