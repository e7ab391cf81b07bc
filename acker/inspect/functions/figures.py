"""Figures of a function's calls, exactly: the results, their duration, and the causes of missing results.

Each answer counts itself, once, when it is given (lua/drpc/answer_call.lua); the counts are read here.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from acker.drpc.calls import KINDS, Status
from acker.drpc.registry import Description
from acker.errors import UnreadableRecord
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Count, Named, Seconds
from acker.ledger.outcomes import latency_histogram
from acker.ledger.outcomes.latency_histogram import Latency
from acker.store import function_keys
from acker.store.operation import Operation, Request, command
from acker.store.records import Bounds
from acker.store.replies import pairs, seconds, whole

MINUTES = 10
"""Full minutes that are kept apart; beside them there is the one that goes on."""
_ALL = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """Calls that had no result for one cause."""

    status: Status
    steps: Annotated[
        tuple[str, ...], "The steps that failed them, or that they waited for; empty if unknown."
    ]
    text: Annotated[
        str,
        Named("cause"),
        "The reason without what differs from call to call; empty for all that came when there were 50 "
        "others.",
    ]
    calls: Count


@dataclass(slots=True)
class Counted:
    """Calls that were answered in a time: each is counted once, none is sampled.

    latencies: bucket (`acker.ledger.outcomes.latency_histogram`) -> calls with a result.
    """

    seconds: Annotated[
        Seconds | None, "How long the time is; null for all since the function was registered."
    ] = None
    answered: Annotated[Count, "With a result."] = 0
    failed: Count = 0
    timed_out: Count = 0
    latencies: Annotated[Counter[int], HIDDEN] = field(default_factory=Counter)
    of_cause: Annotated[Counter[tuple[Status, str]], HIDDEN] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """The number of all calls."""
        return self.answered + self.failed + self.timed_out

    @property
    def rate(
        self,
    ) -> Annotated[
        float | None, Bounds(0), "Answers a second, also without a result; null where the time is all."
    ]:
        """Answers a second, also without a result; None where the time is all."""
        return self.calls / self.seconds if self.seconds else None

    @property
    def latency(self) -> Annotated[Latency, "Of those with a result, from the call to its answer."]:
        """The seconds within which results came."""
        return Latency.from_histogram(self.latencies)

    @property
    def causes(self) -> Annotated[list[Cause], "The most frequent first."]:
        """The causes for which there was no result, the most frequent first."""
        causes = []
        for (status, stored), calls in self.of_cause.items():
            steps, _, text = stored.partition(" ")
            causes.append(Cause(status, tuple(filter(None, steps.split(","))), text, calls))
        return sorted(causes, key=lambda one: (-one.calls, one.status, one.steps, one.text))

    def add(self, counter: str, calls: int) -> None:
        """Adds a count (lua/drpc/answer_call.lua)."""
        status = KINDS.get(counter[:1].encode())
        if counter == "r":
            self.answered += calls
        elif counter == "f":
            self.failed += calls
        elif counter == "t":
            self.timed_out += calls
        elif counter[:1] == "l" and counter[1:].isdigit():
            self.latencies[min(int(counter[1:]), latency_histogram.MOST_BUCKET)] += calls
        elif status is not None and counter[1:2] == " ":
            self.of_cause[status, counter[2:]] += calls


@dataclass(frozen=True, slots=True)
class Figures:
    """The calls of a function in figures."""

    pending: Annotated[Count, "Calls without answer."]
    late: Annotated[Count, "Of these, those whose time is over: nobody has said so yet."]
    recent: Annotated[Counted, "Of the last ten minutes, and what has passed of this one."]
    total: Counted
    minutes: Annotated[tuple[Count, ...], "Answers in each minute of `recent`, the oldest first."]


def figures(core: Core, function: Description) -> Operation[Figures]:
    """Returns the figures of a function's calls. Raises UnreadableRecord."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    [instant, pending, stored] = yield [
        Request(keys_of_function.counted, ["TIME"]),
        command("HLEN", keys_of_function.calls),
        command("HGETALL", keys_of_function.counted),
    ]
    now = seconds(instant)
    [late] = yield [command("ZCOUNT", keys_of_function.deadlines, "-inf", round(now * 1000))]
    first = int(now // 60) - MINUTES
    recent, total, minutes = Counted(now - first * 60), Counted(), [0] * (MINUTES + 1)
    for name, value in pairs(stored).items():
        minute, _, counted = name.decode("utf-8", "replace").partition(" ")
        calls = whole(value, f"calls of function {function.name!r}")
        if not minute.isdigit() or calls < 0:
            raise UnreadableRecord(f"calls of function {function.name!r}: expected counts, got {name!r:.100}")
        if int(minute) == _ALL:
            total.add(counted, calls)
        elif 0 <= (place := int(minute) - first) <= MINUTES:
            recent.add(counted, calls)
            minutes[place] += calls if counted == "n" else 0
    return Figures(pending, late, recent, total, tuple(minutes))
