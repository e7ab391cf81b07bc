"""Trees of a shard in the model: tracked slabs, slabs that wait for their track, and the rotation."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

SlabOf = Callable[[int], Hashable]
NEVER = -3
"""The rotation of an emit that had no room to wait: it counts as dropped."""


@dataclass
class Slab:
    """A slab, tracked or waiting.

    values: the value of each tree that is not over. rotation: the rotation at which it entered the nursery.
    until: the time until which it waits at least. failed: trees that failed before its track. outcomes: by
    tree.
    """

    rotation: int
    values: dict[int, int] = field(default_factory=dict)
    tracked: bool = False
    until: int = 0
    failed: set[int] = field(default_factory=set)
    outcomes: dict[int, str] = field(default_factory=dict)


class Trees:
    """The trees of a shard.

    room: slabs and fails that may wait. ended: outcomes since somebody has taken them. counts: all of them.
    """

    def __init__(self, slab_of: SlabOf, room: int | None = None) -> None:
        self.slab_of, self.room = slab_of, room
        self.slabs: dict[Hashable, Slab] = {}
        self.rotation = 0
        self.ended: list[tuple[int, str]] = []
        self.counts: Counter[str] = Counter()

    def track(self, slab: Hashable, values: Mapping[int, int]) -> None:
        """Tracks a slab of new trees."""
        before = self.slabs.get(slab)
        if before is not None and before.tracked:
            return
        waited = before or Slab(0)
        self.slabs[slab] = tracked = Slab(self.rotation, tracked=True)
        for anchor, value in values.items():
            tracked.values[anchor] = value ^ waited.values.get(anchor, 0)
            if anchor in waited.failed:
                self._end(tracked, anchor, "failed")
            elif not tracked.values[anchor]:
                self._end(tracked, anchor, "acked")

    def xor(self, deltas: Mapping[int, int], waits: bool) -> dict[Hashable, int]:
        """XORs deltas. Returns the slabs that wait for their track, with the rotation since which they do."""
        waiting: dict[Hashable, int] = {}
        for anchor, delta in deltas.items():
            name = self.slab_of(anchor)
            slab = self.slabs.get(name) or (self._open(name) if waits else None)
            if slab is None:
                if waits:
                    waiting[name] = NEVER
            elif not slab.tracked:
                slab.values[anchor] = slab.values.get(anchor, 0) ^ delta
                waiting[name] = slab.rotation
            elif anchor in slab.values:
                slab.values[anchor] ^= delta
                if not slab.values[anchor]:
                    self._end(slab, anchor, "acked")
        return waiting

    def fail(self, anchors: Iterable[int]) -> bool:
        """Fails trees; False where a fail has no room to wait for its track."""
        kept = True
        for anchor in anchors:
            name = self.slab_of(anchor)
            slab = self.slabs.get(name) or self._open(name)
            if slab is None:
                kept = False
            elif not slab.tracked:
                kept &= anchor in slab.failed or self._has_room()
                slab.failed |= {anchor} if self._has_room() else set()
            elif anchor in slab.values:
                self._end(slab, anchor, "failed")
        return kept

    def stay(self, slab: Hashable, until: int) -> None:
        """Has a waiting slab wait until a time at least."""
        self.slabs[slab].until = max(self.slabs[slab].until, until)

    def send_back(self, slabs: Iterable[Hashable]) -> None:
        """Sends slabs back to the nursery that the next rotation would expire."""
        for name in slabs:
            slab = self.slabs.get(name)
            if slab is not None and slab.tracked and slab.values and self.rotation - slab.rotation >= 2:
                slab.rotation = self.rotation

    def rotate(self, now: int) -> None:
        """Begins a new nursery, and expires what entered the oldest."""
        self.rotation += 1
        for name, slab in list(self.slabs.items()):
            if self.rotation - slab.rotation < 3 or is_over(slab):
                continue
            if slab.tracked:
                for anchor in list(slab.values):
                    self._end(slab, anchor, "expired")
            elif slab.until > now:
                slab.rotation = self.rotation
            else:
                del self.slabs[name]

    def forget(self) -> None:
        """Drops the slabs whose trees are over: their spout has confirmed all outcomes."""
        self.slabs = {name: slab for name, slab in self.slabs.items() if not is_over(slab)}

    def outcome(self, anchor: int) -> str:
        """The outcome of a tree; empty where it has none."""
        slab = self.slabs.get(self.slab_of(anchor))
        return slab.outcomes.get(anchor, "") if slab is not None else ""

    def _open(self, name: Hashable) -> Slab | None:
        return self.slabs.setdefault(name, Slab(self.rotation)) if self._has_room() else None

    def _has_room(self) -> bool:
        waiting = [slab for slab in self.slabs.values() if not slab.tracked]
        return self.room is None or len(waiting) + sum(len(slab.failed) for slab in waiting) < self.room

    def _end(self, slab: Slab, anchor: int, outcome: str) -> None:
        del slab.values[anchor]
        slab.outcomes[anchor] = outcome
        self.ended.append((anchor, outcome))
        self.counts[outcome] += 1


def is_over(slab: Slab) -> bool:
    """True if all trees of a tracked slab are over."""
    return slab.tracked and not slab.values
