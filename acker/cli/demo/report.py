"""The demo's result, and it as one object for programs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from acker.cli.demo.check import Check
from acker.cli.demo.records import Status
from acker.streams.dead_letters.dead_letters import DeadLetter

PERCENTILES = (0.5, 0.95, 0.99)
OUTCOMES = ("acked", "failed", "expired", "rejected")


@dataclass(frozen=True, slots=True)
class Report:
    """The results that the demo shows at its end.

    latencies: complete latency of acked trees in seconds, at `PERCENTILES`. wall, startup: seconds; the
    latter until both Spark applications were ready, and part of the former: lines wait meanwhile.
    """

    url: str
    topology: str
    status: Status
    counters: Mapping[str, int]
    dead: tuple[DeadLetter, ...]
    latencies: tuple[float | None, ...]
    wall: float
    startup: float
    most_frequent: tuple[tuple[str, int], ...]
    check: Check

    def reasons(self) -> list[tuple[str, int]]:
        """The dead letters' reasons and how many have them."""
        return Counter(letter.reason or letter.status for letter in self.dead).most_common()

    def causes(self) -> list[tuple[str, int]]:
        """The same with the step that has failed them, where one has."""
        return Counter(
            f"{letter.reason or letter.status}{f', failed by {letter.step}' if letter.step else ''}"
            for letter in self.dead
        ).most_common()

    def outcomes(self) -> dict[str, int]:
        """Returns the number of trees by outcome, as the ledger counts them."""
        return {name: self.counters[name] for name in OUTCOMES}

    def percentiles(self) -> dict[str, float | None]:
        """The latencies by their names: p50, p95, p99."""
        return {f"p{at * 100:.0f}": value for at, value in zip(PERCENTILES, self.latencies, strict=True)}

    def dump(self) -> dict[str, object]:
        """Returns the report as an object for `json`."""
        status, latencies = self.status, self.percentiles()
        return {
            "url": self.url,
            "topology": self.topology,
            "lines": status.lines,
            "trees": status.trees,
            "outcomes": self.outcomes(),
            "replays": status.replays,
            "dead_letters": {
                "count": len(self.dead),
                "reasons": dict(self.reasons()),
                "records": [_record(letter) for letter in self.dead],
            },
            "complete_latency_seconds": {
                name: value and round(value, 4) for name, value in latencies.items()
            },
            "wall_seconds": round(self.wall, 3),
            "startup_seconds": round(self.startup, 3),
            "words": self.check.words,
            "most_frequent_words": [list(pair) for pair in self.most_frequent],
            "check": {"ok": self.check.ok, "problems": self.check.problems},
        }


def _record(letter: DeadLetter) -> dict[str, object]:
    return {
        "id": letter.id,
        "message_id": letter.message_id.decode(),
        "line": letter.row["line"],
        "attempts": letter.attempts,
        "status": letter.status,
        "reason": letter.reason,
        "step": letter.step,
    }
