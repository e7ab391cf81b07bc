"""The report of a run: its faults and its end."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from harness.chaos.plan import Fault

STILL = 5.0
"""Seconds without an ack after which the pipeline stands still; undisturbed it acks several a second."""


@dataclass(slots=True)
class Done:
    """A fault that was brought about. began, ended: seconds from the start. took: whether it took effect."""

    fault: Fault
    began: float
    ended: float = 0.0
    took: bool = False


@dataclass(slots=True)
class Report:
    """A run. Durations in seconds: harmed, of the faults; still, for which the pipeline stood meanwhile."""

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
    harmed: float
    still: float
    longest_still: float
    problems: list[str]
    done: list[Done] = field(default_factory=list)

    @property
    def took(self) -> int:
        """The number of faults that took effect."""
        return sum(one.took for one in self.done)

    def dump(self) -> dict[str, object]:
        """The report as plain values."""
        return {**asdict(self), "took": self.took}

    def table(self) -> str:
        """The report as a table for people."""
        lines = ["| fault | took effect | without effect, tried again |", "| --- | --- | --- |"]
        for kind, members in by_kind(self.done):
            took = sum(one.took for one in members)
            lines.append(f"| {kind} | {took} | {len(members) - took} |")
        lines.append(f"| all | {self.took} | {len(self.done) - self.took} |")
        replays = self.trees - self.records
        share = self.still / self.harmed if self.harmed else 0.0
        lines += [
            "",
            f"seed {self.seed}, {self.store} ({self.kind}), {self.seconds:,.0f} s, message timeout "
            f"{self.message_timeout:g} s: {self.records:,} records in, {self.acked:,} acked, "
            f"{self.dead:,} dead; {self.trees:,} trees, {replays:,} of them replays "
            f"({self.expired:,} expired, {self.failed:,} failed)",
            f"in the {self.harmed:,.0f} s of the faults no record was acked for {STILL:g} s or longer in "
            f"{share:.0%} of the time, the longest {self.longest_still:.1f} s",
            "verdict: " + ("nothing lost" if not self.problems else "\n- ".join(["", *self.problems])),
        ]
        return "\n".join(lines)


def by_kind(done: Sequence[Done]) -> list[tuple[str, list[Done]]]:
    """Faults by their kinds, by name."""
    kinds = sorted(Counter(one.fault.kind for one in done))
    return [(kind, [one for one in done if one.fault.kind == kind]) for kind in kinds]


def stand_stills(acks: Iterable[float], began: float, over: float) -> list[float]:
    """The spans from one ack to the next, between two instants, that last 5 seconds or longer. In seconds."""
    instants = [began, *sorted(at for at in acks if began < at < over), over]
    return [after - before for before, after in pairwise(instants) if after - before >= STILL]
