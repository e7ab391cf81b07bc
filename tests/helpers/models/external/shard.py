"""A shard in the model: each method is one script of lua/streams/staging, in plain Python."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.helpers.models.external.rules import Rules, Times
from tests.helpers.models.external.trees import SlabOf, Trees


class Key(NamedTuple):
    """The hash of a segment in a shard, for a subscription."""

    token: str
    slot: int


class Wait(NamedTuple):
    """The begin of emits that wait for a track: a rotation, and a time until which they wait at least."""

    rotation: int
    until: int


class Content(NamedTuple):
    """Vectors of a segment in a shard.

    rows: number of its rows with an anchor here; None for an ack of tuples. mask: the positions of these.
    edges: the ids of each position's tuples, for a mutant only. of: the flush that stages them, if any.
    """

    vector: Mapping[int, int]
    rows: int | None = None
    positions: int = 0
    mask: frozenset[int] | None = None
    edges: Mapping[int, Mapping[int, int]] = {}
    of: str = ""


NOTHING = Content({})


class Received(NamedTuple):
    """Rows of a segment that were worked on: their bits, and the trees that fail, by position."""

    key: Key
    bits: frozenset[Any]
    fails: Mapping[int, tuple[int, ...]]


@dataclass
class Staged:
    """The hash of a segment. state: None made by bits, 0 staged, 1 emitted, 2 acked."""

    until: int
    state: int | None = None
    content: Content = NOTHING
    bits: set[Any] = field(default_factory=set)
    fails: dict[int, tuple[int, ...]] = field(default_factory=dict)
    oldest: Wait | None = None
    full: bool = False
    void: bool = False


@dataclass
class Progress:
    """The progress of a flush in a shard.

    applied: emitted hashes. slabs: slabs whose emits wait for their track, and since which rotation. until:
    the time until which these wait at least. life: the end of these notes.
    """

    applied: set[Key] = field(default_factory=set)
    slabs: dict[Hashable, int] = field(default_factory=dict)
    until: int | None = None
    life: int = 0

    @property
    def oldest(self) -> Wait | None:
        """The oldest wait of its emits."""
        return Wait(min(self.slabs.values()), self.until or 0) if self.slabs else None


class Shard:
    """A shard.

    now: the time of its clock, which the caller sets before each call. buried: segments that were acked since
    somebody has taken them.
    """

    def __init__(self, rules: Rules, times: Times, slab_of: SlabOf, room: int | None = None) -> None:
        self.rules, self.times = rules, times
        self.trees = Trees(slab_of, room)
        self.staged: dict[Key, Staged] = {}
        self.flushes: dict[str, Progress] = {}
        self.buried: list[Key] = []
        self.now = 0

    def expire(self) -> None:
        """Drops the hashes and notes whose time is over."""
        self.staged = {key: staged for key, staged in self.staged.items() if staged.until > self.now}
        self.flushes = {name: notes for name, notes in self.flushes.items() if notes.life > self.now}

    def track(self, slab: Hashable, values: Mapping[int, int]) -> None:
        """Tracks a slab of trees (track.lua)."""
        self.trees.track(slab, values)

    def fail(self, anchors: Iterable[int]) -> None:
        """Fails trees (fail.lua)."""
        self.trees.fail(anchors)

    def send(self, key: Key, content: Content, until: int) -> int:
        """Stages vectors: 1, 0 where they are staged already, -1 where it is too late (send.lua)."""
        if self.now > until and self.rules.late_refused:
            return -1
        before = self.staged.get(key)
        if (
            before is not None
            and self.rules.staged_once
            and (before.state is not None or not self.rules.fills)
        ):
            return 0
        staged = self.staged[key] = before or Staged(0)
        staged.state, staged.content = 1 if content.rows is None else 0, content
        self._live(staged, self.times.ttl)
        return 1

    def emit(self, flush: str, keys: Sequence[Key]) -> bool:
        """Emits hashes; True if one is to be looked at, because something waited in it (apply_staged.lua)."""
        noted = False
        for key in keys:
            staged, progress = self.staged.get(key), self.flushes.setdefault(flush, Progress())
            if staged is None or staged.state != 0 or key in progress.applied:
                continue
            if self.rules.own_vectors and staged.content.of != flush:
                continue
            self._note(progress, self.trees.xor(staged.content.vector, True))
            staged.state = 1
            progress.applied.add(key)
            progress.life = self.now + self.times.hold
            self._live(staged, self.times.hold)
            if self.rules.bits_note_wait and self.is_old(staged.oldest):
                self._void(staged)
            if self.rules.emit_looks:
                noted |= self.look(staged) != "o"
        return noted

    def receive(self, flush: str, needed: int | None, parts: Sequence[Received]) -> str:
        """Takes bits and fails; returns a letter for each hash (receive.lua)."""
        progress = self.flushes.get(flush, Progress())
        wait = progress.oldest if needed is not None else None
        if needed is not None and self.rules.guarded and len(progress.applied) < needed:
            return "l" * len(parts)
        if self.rules.old_refused and self.is_old(wait):
            return "d" * len(parts)
        return "".join(self._take(part, wait) for part in parts)

    def ack(self, key: Key, flush: str = "", needed: int | None = None) -> bool:
        """Acks a full hash, or tuples that were taken over; False where emits of the flush are lost."""
        staged = self.staged.get(key)
        if staged is None or staged.state is None or staged.state >= 2:
            return True
        alone = staged.content.rows is None
        if not alone and not staged.full:
            return True
        progress = self.flushes.get(flush, Progress())
        if needed is not None and self.rules.guarded and len(progress.applied) < needed:
            return False
        vector = {
            anchor: delta
            for anchor, delta in staged.content.vector.items()
            if needed is None or not self.is_dropped(progress, self.trees.slab_of(anchor))
        }
        self.trees.xor(vector, alone)
        del self.staged[key]
        self.buried.append(key)
        if self.rules.tombstone:
            margin = self.times.margin if self.rules.tombstone_margin else 0
            self.staged[key] = Staged(self.now + self.times.ttl + margin, 2)
        return True

    def fail_staged(self, key: Key) -> None:
        """Fails the trees of a void hash."""
        staged = self.staged.get(key)
        if staged is not None and self.rules.void_fails:
            self.trees.fail(staged.content.vector)

    def leave_tombstone(self, key: Key) -> None:
        """Ends a hash without an ack; its state stays, if it was emitted (leave_tombstone.lua)."""
        staged = self.staged.get(key)
        if staged is None or staged.state == 2:
            return
        del self.staged[key]
        if staged.state == 1:
            self.staged[key] = Staged(self.now + self.times.ttl + self.times.margin, 2, void=True)

    def keep_notes(self, flush: str) -> None:
        """Has the notes of a flush live as long as it may be carried out again."""
        if flush in self.flushes:
            self.flushes[flush].life = self.now + 2 * self.times.ttl

    def end(self, flush: str) -> None:
        """Drops the notes of a flush."""
        self.flushes.pop(flush, None)

    def look(self, staged: Staged) -> str:
        """Takes the fails that wait, and counts the bits: f full, v void, o open (external.look)."""
        if staged.full or staged.void:
            return "f" if staged.full else "v"
        if self.rules.fails_first and not self._take_fails(staged):
            return "v"
        if not self._is_full(staged):
            return "o"
        staged.full, staged.oldest = True, None
        staged.bits.clear()
        return "f"

    def is_old(self, wait: Wait | None) -> bool:
        """True if emits that wait since then may have been dropped."""
        return wait is not None and self.trees.rotation - wait.rotation >= 3 and self.now >= wait.until

    def is_dropped(self, progress: Progress, slab: Hashable) -> bool:
        """True if a tick may have dropped a flush's emits into a slab (applied.dropped)."""
        since = progress.slabs.get(slab)
        old = self.is_old(progress.oldest)
        return old and since is not None and self.trees.rotation - since >= 3

    def _note(self, progress: Progress, waiting: Mapping[Hashable, int]) -> None:
        """Notes the slabs that wait for their track (applied.emitted)."""
        dropped = any(since < 0 for since in waiting.values())
        progress.life = self.now + self.times.hold
        for slab, since in waiting.items():
            until = self.now + self.times.ttl if self.rules.early_waits and not dropped else 0
            if dropped:
                since = -3
            else:
                self.trees.stay(slab, until)
            progress.slabs[slab] = min(since, progress.slabs.get(slab, since))
            progress.until = until if progress.until is None else min(progress.until, until)

    def _take(self, part: Received, wait: Wait | None) -> str:
        key, rules = part.key, self.rules
        staged = self.staged.get(key)
        if staged is not None and staged.state == 2:
            return "a"
        if staged is not None and (staged.full or staged.void):
            return self.look(staged)
        emitted = staged is not None and staged.state == 1
        new = {at: trees for at, trees in part.fails.items() if staged is None or at not in staged.bits}
        if not emitted and not rules.fails_wait:
            self.trees.fail(anchor for trees in part.fails.values() for anchor in trees)
            new = {}
        if staged is None:
            if not (part.bits or part.fails) or not rules.early:
                return "w"
            staged = self.staged[key] = Staged(0)
        if emitted:
            self._add(staged, part.bits, new)
            return self.look(staged)
        if (part.bits or part.fails) and (staged.state is None or rules.early_staged):
            self._live(staged, self.times.ttl)
            self._add(staged, part.bits, new)
            if wait is not None and rules.bits_note_wait:
                before = staged.oldest or wait
                staged.oldest = Wait(min(before.rotation, wait.rotation), min(before.until, wait.until))
        return "w"

    def _add(self, staged: Staged, bits: Iterable[Any], fails: Mapping[int, tuple[int, ...]]) -> None:
        if self.rules.counts == "edges" and staged.state == 1:
            for bit in bits:
                self.trees.xor(staged.content.edges.get(bit[0], {}), False)
        staged.bits |= set(bits)
        staged.fails.update(fails)

    def _take_fails(self, staged: Staged) -> bool:
        """Takes the fails that wait; False where there is no room for one, and the hash is void."""
        content = staged.content
        rows = content.mask if content.mask is not None else range(content.positions)
        kept = self.trees.fail(
            anchor
            for position, trees in staged.fails.items()
            if position in rows or not self.rules.cut
            for anchor in trees
        )
        staged.fails.clear()
        if not kept and self.rules.room_voids:
            self._void(staged)
            return False
        return True

    def _is_full(self, staged: Staged) -> bool:
        content, rules = staged.content, self.rules
        if rules.counts == "edges":
            return False
        if rules.counts == "positions":
            mask = content.mask if rules.masked and content.mask is not None else None
            kept = {bit for bit in staged.bits if not rules.cut or bit < content.positions}
            staged.bits = {bit for bit in kept if mask is None or bit in mask}
        return len(staged.bits) >= (content.rows or 0)

    def _void(self, staged: Staged) -> None:
        staged.void, staged.oldest = True, None
        staged.bits.clear()
        staged.fails.clear()

    def _live(self, staged: Staged, seconds: int) -> None:
        staged.until = max(staged.until, self.now + seconds)
