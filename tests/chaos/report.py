"""What is told of a run: what was done to it, and what came of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from tests.chaos.plan import Fault


@dataclass(slots=True)
class Done:
    """A fault that was tried. began, ended: seconds from the start. why: what stood against its effect."""

    fault: Fault
    began: float
    ended: float = 0.0
    took: bool = False
    why: str = ""
    recovery: float | None = None


@dataclass(slots=True)
class Report:
    """A run. Durations in seconds. recovery: from the end of a fault to the next record acked."""

    seed: int
    minutes: float
    store: str
    kind: str
    message_timeout: float
    seconds: float
    records: int
    acked: int
    dead: int
    trees: int
    expired: int
    failed: int
    counters: dict[str, int]
    restarts: dict[str, int]
    died: dict[str, int]
    problems: list[str]
    done: list[Done] = field(default_factory=list)

    @property
    def took(self) -> int:
        """How many faults took effect."""
        return sum(one.took for one in self.done)

    @property
    def longest_recovery(self) -> float:
        """The longest of the recoveries."""
        return max((one.recovery for one in self.done if one.took and one.recovery is not None), default=0.0)

    def dump(self) -> dict[str, object]:
        """As plain values."""
        return {**asdict(self), "took": self.took, "longest_recovery": round(self.longest_recovery, 1)}

    def table(self) -> str:
        """As a table for people."""
        lines = ["| fault | injected | took effect | longest recovery, s |", "| --- | --- | --- | --- |"]
        for kind, members in by_kind(self.done):
            took = [one for one in members if one.took]
            longest = max((one.recovery or 0.0 for one in took), default=0.0)
            lines.append(f"| {kind} | {len(members)} | {len(took)} | {longest:.1f} |")
        lines.append(f"| all | {len(self.done)} | {self.took} | {self.longest_recovery:.1f} |")
        replays = self.trees - self.records
        lines += [
            "",
            f"seed {self.seed}, {self.store} ({self.kind}), {self.seconds:,.0f} s, message timeout "
            f"{self.message_timeout:g} s: {self.records:,} records in, {self.acked:,} acked, "
            f"{self.dead:,} dead; {self.trees:,} trees, {replays:,} of them replays "
            f"({self.expired:,} expired, {self.failed:,} failed)",
            "verdict: " + ("nothing lost" if not self.problems else "\n- ".join(["", *self.problems])),
        ]
        return "\n".join(lines)


def by_kind(done: Sequence[Done]) -> list[tuple[str, list[Done]]]:
    """Faults by their kinds, by name."""
    kinds = sorted(Counter(one.fault.kind for one in done))
    return [(kind, [one for one in done if one.fault.kind == kind]) for kind in kinds]
