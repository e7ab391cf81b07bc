"""What became of the calls of a function, exactly: how many had a result, how fast, and why others had none.

Each answer counts itself, once, where it is given (lua/drpc/answer.lua); here the counts are read.
"""

from collections import Counter
from dataclasses import dataclass, field

from acker.drpc.calls import KINDS, Status
from acker.drpc.registry import Description
from acker.errors import UnreadableRecord
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import latency_histogram
from acker.store import function_keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import pairs, seconds, whole

MINUTES = 10
"""Full minutes that are kept apart; beside them there is the one that goes on."""
_ALL = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """Calls that had no result for one cause: the reason without what differs from call to call.

    status: `failed` or `timed out`. steps: who has failed them, or which they waited for; none where that is
    not known. text: empty for all causes that came when there were 50 others.
    """

    status: Status
    steps: tuple[str, ...]
    text: str
    calls: int


@dataclass(slots=True)
class Counted:
    """Calls that were answered in a time.

    seconds: how long the time was; None where it is all since the function was registered. latencies: bucket
    (`acker.ledger.outcomes.latency_histogram`) -> calls with a result.
    """

    seconds: float | None = None
    answered: int = 0
    failed: int = 0
    timed_out: int = 0
    latencies: Counter[int] = field(default_factory=Counter)
    of_cause: Counter[tuple[Status, str]] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """All of them."""
        return self.answered + self.failed + self.timed_out

    @property
    def rate(self) -> float | None:
        """Answers a second, also without a result; None where the time is all."""
        return self.calls / self.seconds if self.seconds else None

    def latency(self, fraction: float) -> float | None:
        """The seconds within which `fraction` (0 to 1) of the results came; None without any."""
        return latency_histogram.percentile(self.latencies, fraction)

    @property
    def causes(self) -> list[Cause]:
        """Why there was no result, the most frequent first."""
        found = []
        for (status, stored), calls in self.of_cause.items():
            steps, _, text = stored.partition(" ")
            found.append(Cause(status, tuple(filter(None, steps.split(","))), text, calls))
        return sorted(found, key=lambda one: (-one.calls, one.status, one.steps, one.text))

    def add(self, what: str, calls: int) -> None:
        """Adds a count (lua/drpc/answer.lua)."""
        status = KINDS.get(what[:1].encode())
        if what == "r":
            self.answered += calls
        elif what == "f":
            self.failed += calls
        elif what == "t":
            self.timed_out += calls
        elif what[:1] == "l" and what[1:].isdigit():
            self.latencies[min(int(what[1:]), latency_histogram.MOST_BUCKET)] += calls
        elif status is not None and what[1:2] == " ":
            self.of_cause[status, what[2:]] += calls


@dataclass(frozen=True, slots=True)
class Figures:
    """What became of calls. pending: without answer. late: of these, those whose time is over.

    recent: of the last ten minutes and what has passed of this one. total: since the function was registered.
    minutes: answers in each minute of `recent`, the oldest first.
    """

    pending: int
    late: int
    recent: Counted
    total: Counted
    minutes: tuple[int, ...]


def figures(core: Core, what: Description) -> Operation[Figures]:
    """What became of the calls of a function. Raises UnreadableRecord."""
    own = function_keys.Function(core.config.name, what.name)
    [instant, pending, stored] = yield [
        Request(own.counted, ["TIME"]),
        command("HLEN", own.calls),
        command("HGETALL", own.counted),
    ]
    now = seconds(instant)
    [late] = yield [command("ZCOUNT", own.deadlines, "-inf", round(now * 1000))]
    first = int(now // 60) - MINUTES
    recent, total, minutes = Counted(now - first * 60), Counted(), [0] * (MINUTES + 1)
    for name, value in pairs(stored).items():
        minute, _, counted = name.decode("utf-8", "replace").partition(" ")
        calls = whole(value, f"calls of function {what.name!r}")
        if not minute.isdigit() or calls < 0:
            raise UnreadableRecord(f"calls of function {what.name!r}: expected counts, got {name!r:.100}")
        if int(minute) == _ALL:
            total.add(counted, calls)
        elif 0 <= (place := int(minute) - first) <= MINUTES:
            recent.add(counted, calls)
            minutes[place] += calls if counted == "n" else 0
    return Figures(pending, late, recent, total, tuple(minutes))
