"""The ledger in a few lines of Python, after the transition table of the design: what tests compare with.

It knows no vectors, no calls and no keys: a tree is an object, a message changes one tree. One model is one
topology; all shards rotate together, as they do under forced ticks. There is room for all that waits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from acker.ledger import ids

MASK = (1 << 64) - 1


def signed(value: int) -> int:
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


@dataclass
class Tree:
    """One tree that a message was for. `state`: waiting, pending or finished."""

    state: str = "waiting"
    value: int = 0
    failure: str | None = None
    outcome: tuple[str, str] | None = None
    confirmed: bool = False


@dataclass
class Slab:
    """The trees of one slab, by index; `count` is 0 while it waits for its track."""

    shard: int
    entered: int
    count: int = 0
    spout: str = ""
    content: object = None
    trees: dict[int, Tree] = field(default_factory=dict)

    @property
    def tracked(self) -> bool:
        return self.count > 0

    @property
    def pending(self) -> dict[int, int]:
        """The pending trees and their ack values."""
        return {index: tree.value for index, tree in self.trees.items() if tree.state == "pending"}

    @property
    def waiting(self) -> dict[int, int]:
        """The waiting trees and their ack values that are not zero."""
        waiting = ((index, tree.value) for index, tree in self.trees.items() if tree.state == "waiting")
        return {index: value for index, value in waiting if value}

    @property
    def failures(self) -> dict[int, str]:
        """The trees that failed before their track, and why."""
        return {
            index: tree.failure
            for index, tree in self.trees.items()
            if tree.state == "waiting" and tree.failure is not None
        }


class Model:
    """The ledger of a topology: `slabs` by name, `counters`, and the outcomes reported but not yet read."""

    def __init__(self, ackers: int, high_water_mark: int) -> None:
        self.ackers = ackers
        self.limit = high_water_mark // ackers
        self.rotation = 0
        self.slabs: dict[bytes, Slab] = {}
        self.counters: Counter[str] = Counter()
        self.reported: list[tuple[str, int, str, str]] = []
        self.paused: set[str] = set()

    def _at(self, anchor: int) -> tuple[Slab | None, int]:
        return self.slabs.get(ids.slab_of(anchor)), ids.index_of(anchor)

    def _wait(self, anchor: int) -> Slab:
        name = ids.slab_of(anchor)
        self.slabs[name] = Slab(ids.shard_of(name, self.ackers), self.rotation)
        return self.slabs[name]

    def _tell(self, slab: Slab, anchor: int, status: str, reason: str = "") -> None:
        tree = slab.trees[ids.index_of(anchor)]
        assert tree.outcome is None, "a tree gets one outcome"
        tree.state, tree.value, tree.outcome = "finished", 0, (status, reason)
        self.counters[status] += 1
        self.reported.append((slab.spout, anchor, status, reason))

    def outstanding(self, shard: int) -> int:
        """Trees in flight, and trees with an outcome not yet confirmed."""
        return sum(
            not tree.confirmed
            for slab in self.slabs.values()
            if slab.tracked and slab.shard == shard
            for tree in slab.trees.values()
        )

    def track(self, anchor: int, values: Sequence[int], message_ids: Sequence[bytes], spout: str) -> str:
        """Tracks the slab that begins at `anchor`; returns A, D, C, R or P."""
        name = ids.slab_of(anchor)
        slab = self.slabs.get(name)
        content = (tuple(values), tuple(message_ids), spout)
        if slab and slab.tracked:
            if slab.content != content:
                return "C"
            self.counters["duplicates"] += 1
            return "D"
        if spout in self.paused:
            self.counters["rejected"] += len(values)
            return "P"
        shard = ids.shard_of(name, self.ackers)
        if self.outstanding(shard) + len(values) > self.limit:
            self.counters["rejected"] += len(values)
            return "R"
        waited = slab.trees if slab else {}
        slab = self.slabs[name] = Slab(shard, self.rotation, len(values), spout, content)
        self.counters["tracked"] += len(values)
        self.counters["orphaned"] += sum(
            bool(tree.value) or tree.failure is not None
            for index, tree in waited.items()
            if index >= len(values)
        )
        for index, value in enumerate(values):
            before = waited.get(index, Tree())
            slab.trees[index] = Tree("pending", (before.value ^ value) & MASK)
            if before.failure is not None:
                self._tell(slab, anchor + ids.STEP * index, "failed", before.failure)
            elif not slab.trees[index].value:
                self._tell(slab, anchor + ids.STEP * index, "acked")
        return "A"

    def update(self, deltas: Mapping[int, int]) -> int:
        """XORs deltas, one for each anchor; returns how many were late."""
        late = 0
        for anchor, delta in deltas.items():
            slab, index = self._at(anchor)
            slab = slab or self._wait(anchor)
            if not slab.tracked:
                slab.trees.setdefault(index, Tree()).value ^= delta & MASK
            elif index in slab.pending:
                slab.trees[index].value ^= delta & MASK
                if not slab.trees[index].value:
                    self._tell(slab, anchor, "acked")
            else:
                late += 1
        self.counters["late"] += late
        return late

    def fail(self, reasons: Mapping[int, str]) -> tuple[int, int]:
        """Fails trees, by their anchors; returns (failed, late)."""
        failed = late = 0
        for anchor, reason in reasons.items():
            slab, index = self._at(anchor)
            slab = slab or self._wait(anchor)
            if not slab.tracked:
                tree = slab.trees.setdefault(index, Tree())
                tree.failure = reason if tree.failure is None else tree.failure
            elif index in slab.pending:
                self._tell(slab, anchor, "failed", reason)
                failed += 1
            else:
                late += 1
        self.counters["late"] += late
        return failed, late

    def reset_timeout(self, anchors: Sequence[int]) -> int:
        """Sends slabs back to the nursery; returns how many."""
        moved = set()
        for anchor in anchors:
            slab, index = self._at(anchor)
            if slab and (not slab.tracked or index in slab.pending):
                slab.entered = self.rotation
                moved.add(ids.slab_of(anchor))
        return len(moved)

    def rotate(self) -> None:
        """The tick, without what expires by it."""
        self.rotation += 1
        self.counters["rotations"] += self.ackers

    def drain(self) -> tuple[int, int]:
        """Expires what entered three rotations ago; returns (expired, orphaned)."""
        expired = orphaned = 0
        for name, slab in list(self.slabs.items()):
            if slab.entered + 3 > self.rotation:
                continue
            if slab.tracked:
                for index in slab.pending:
                    self._tell(slab, ids.anchor_at(name, index), "expired")
                    expired += 1
            else:
                orphaned += len(slab.waiting.keys() | slab.failures.keys())
                del self.slabs[name]
        self.counters["orphaned"] += orphaned
        return expired, orphaned

    def confirm(self, anchors: Sequence[int]) -> None:
        """Confirms the outcomes of trees; a slab whose trees are all confirmed is forgotten."""
        for anchor in anchors:
            slab, index = self._at(anchor)
            assert slab is not None
            slab.trees[index].confirmed = True
            if all(tree.confirmed for tree in slab.trees.values()):
                del self.slabs[ids.slab_of(anchor)]

    def in_flight(self) -> Iterator[int]:
        """The anchors of all pending trees."""
        for name, slab in self.slabs.items():
            for index in slab.pending:
                yield ids.anchor_at(name, index)
