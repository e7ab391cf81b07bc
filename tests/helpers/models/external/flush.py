"""A flush in the model: the commit of a plain program (acker/streams/staging/external/commit.py)."""

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tests.helpers.models.external.shard import Content, Key, Received
from tests.helpers.models.external.stream import Announced, Refused, Row

if TYPE_CHECKING:
    from tests.helpers.models.external.world import World

Actor = Generator[None, None, None]
ALONE = "alone"
_ATTEMPTS = 4


def edge(*words: Any) -> int:
    """A number that is always the same for the same words: ids of tuples, and decisions by content."""
    return int.from_bytes(blake2b(repr(words).encode(), digest_size=8).digest(), "big") or 1


@dataclass
class Segment:
    """A segment that a flush sends. unsent: positions of rows that were not delivered; they fail if True."""

    token: str
    sent: int
    rows: list[Row] = field(default_factory=list)
    unsent: dict[int, bool] = field(default_factory=dict)

    def contents(self, world: "World", slot: int) -> dict[int, Content]:
        """Its vectors for a subscription, by shard."""
        rows = [row for row in self.rows if world.rules.unsent_rows or row.position not in self.unsent]
        edges: dict[int, dict[int, dict[int, int]]] = {}
        for row in rows:
            for anchor in row.anchors:
                of_row = edges.setdefault(world.place(anchor), {}).setdefault(row.position, {})
                of_row[anchor] = edge(self.token, slot, row.position, anchor)
        contents = {}
        for shard, by_row in edges.items():
            vector: dict[int, int] = {}
            for deltas in by_row.values():
                for anchor, delta in deltas.items():
                    vector[anchor] = vector.get(anchor, 0) ^ delta
            mask = frozenset(by_row) if len(by_row) < len(self.rows) else None
            contents[shard] = Content(vector, len(by_row), len(self.rows), mask, by_row)
        return contents


@dataclass
class Work:
    """Rows that a flush says were worked on. newest: when the newest of their segments was begun.

    bits: by token and shard. fails: by token and shard, the trees of each position.
    """

    newest: int = 0
    bits: dict[tuple[str, int], set[Any]] = field(default_factory=dict)
    fails: dict[tuple[str, int], dict[int, tuple[int, ...]]] = field(default_factory=dict)


@dataclass
class Flush:
    """The content of a flush.

    tracks: by shard and slab, the values of new trees. out: segments by stream. received: by stream and slot.
    taken: the tuples that were taken over, by tree.
    """

    name: str
    key: int
    tracks: dict[tuple[int, Any], dict[int, int]] = field(default_factory=dict)
    out: dict[str, list[Segment]] = field(default_factory=dict)
    received: dict[tuple[str, int], Work] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    taken_at: int = 0


def carry_out(world: "World", flush: Flush, spent: str = "") -> Actor:
    """Carries a flush out, a request at each step. spent: a flush whose notes are dropped. Raises Refused."""
    running = _Running(world, flush)
    for (shard, slab), values in flush.tracks.items():
        yield
        world.call(shard, "track", slab, values)
    yield from running.announce(spent)
    for _ in range(_ATTEMPTS):
        if not world.rules.tuples_last:
            yield from running.send_taken()
            yield from running.ack_taken(guarded=False)
        if not world.rules.emits_first:
            yield from running.receive(guarded=False)
            yield from running.ack_full()
        yield from running.emit()
        if not (yield from running.receive()):
            continue
        yield from running.note()
        whole = yield from running.ack_taken()
        yield from running.ack_full()
        yield from running.keep_notes()
        if whole:
            break
    else:
        raise Refused("LOST")
    yield from running.fail_void()


class _Running:
    def __init__(self, world: "World", flush: Flush) -> None:
        self.world, self.flush = world, flush
        self.contents: list[tuple[int, Key, Content, int]] = []
        """Shard, key and content of each hash to stage, and when it was begun."""
        self.needed: Counter[int] = Counter()
        self.looks: dict[tuple[int, Key], str] = {}
        self.taken: dict[int, Content] = {}

    def announce(self, spent: str) -> Actor:
        """Announces the segments, and learns which subscriptions they are for; drops notes of a flush."""
        world, flush = self.world, self.flush
        for shard in range(len(world.shards)) if spent else ():
            yield
            world.call(shard, "end", spent)
        for name, segments in flush.out.items():
            announced = []
            for segment in segments:
                shards = sorted({world.place(anchor) for row in segment.rows for anchor in row.anchors})
                announced.append(Announced(segment.token, segment.sent, tuple(shards)))
            slots = [world.streams[name].slots] * len(segments)
            if world.rules.announced_first:
                yield
                slots = world.call(name, "announce", flush.key, announced)
            for segment, members in zip(segments, slots, strict=True):
                for slot in members:
                    for shard, content in segment.contents(world, slot).items():
                        content = content._replace(of=flush.name)
                        self.contents.append((shard, Key(segment.token, slot), content, segment.sent))
                        self.needed[shard] += 1
        for name, _ in flush.received:
            yield
            world.streams[name].check(flush.key)
        by_shard: dict[int, dict[int, int]] = {}
        for anchor, delta in flush.taken.items():
            by_shard.setdefault(world.place(anchor), {})[anchor] = delta
        self.taken = {shard: Content(vector) for shard, vector in by_shard.items()}
        for shard in self.taken:
            self.needed[shard] += 0

    @property
    def until(self) -> int:
        """The time after which nothing more is staged: the limit of the oldest segment."""
        begun = [sent for *_, sent in self.contents] + ([self.flush.taken_at] if self.taken else [])
        return min(begun, default=0) + self.world.times.ttl

    def emit(self) -> Actor:
        """Stages and emits all segments."""
        world = self.world
        for shard, key, content, _ in self.contents:
            yield
            self._send(shard, key, content, self.until)
        yield from self.send_taken()
        for shard in sorted({shard for shard, *_ in self.contents}):
            keys = [key for place, key, *_ in self.contents if place == shard]
            yield
            noted = world.call(shard, "emit", self.flush.name, keys)
            world.emitted(shard, keys)
            if noted:
                self.looks.update(dict.fromkeys([(shard, key) for key in keys], "?"))

    def send_taken(self) -> Actor:
        """Stages the acks of the tuples that were taken over."""
        for shard, content in self.taken.items():
            yield
            self._send(shard, Key(ALONE + self.flush.name, 0), content, self.until)

    def _send(self, shard: int, key: Key, content: Content, until: int) -> None:
        if self.world.call(shard, "send", key, content, until) < 0:
            raise Refused("LATE")

    def receive(self, guarded: bool = True) -> Generator[None, None, bool]:
        """Makes each shard take bits and fails; False if a shard has lost emits of the flush."""
        world, queue = self.world, list(self._parts())
        while queue:
            again = []
            for shard, part in queue:
                if part.fails and not world.rules.fails_with_bits:
                    yield
                    self._fail_rows(shard, part)
                    part = part._replace(fails={})
                yield
                needed = self.needed[shard] if guarded and shard in self.needed else None
                letter = world.call(shard, "receive", self.flush.name, needed, [part])
                if letter == "l":
                    return False
                self.looks[shard, part.key] = letter
            unknown = [place for place, letter in self.looks.items() if letter == "?"]
            again = [(shard, Received(key, frozenset(), {})) for shard, key in unknown] if guarded else []
            queue = again
        return True

    def _fail_rows(self, shard: int, part: Received) -> None:
        """For a mutant: fails of emitted rows take effect by a script of their own."""
        staged = self.world.shards[shard].staged.get(part.key)
        if staged is not None and staged.state == 1:
            trees = [anchor for row in part.fails.values() for anchor in row]
            self.world.call(shard, "fail", trees)

    def _parts(self) -> Iterator[tuple[int, Received]]:
        world, flush = self.world, self.flush
        for (_, slot), work in flush.received.items():
            for (token, shard), bits in work.bits.items():
                fails = work.fails.get((token, shard), {})
                yield shard, Received(Key(token, slot), frozenset(bits), dict(fails))
        for segments in flush.out.values() if world.rules.unsent_bits else ():
            for segment in segments:
                for shard, key, content, _ in self.contents:
                    here = (
                        [at for at in segment.unsent if at in content.edges]
                        if key.token == segment.token
                        else []
                    )
                    if here:
                        fails = {at: tuple(content.edges[at]) for at in here if segment.unsent[at]}
                        yield shard, Received(key, frozenset(world.bit(at) for at in here), fails)

    def ack_taken(self, guarded: bool = True) -> Generator[None, None, bool]:
        """Acks the tuples that were taken over; False if a shard has lost emits of the flush."""
        world, flush, whole = self.world, self.flush, True
        for shard in self.taken:
            key, needed = Key(ALONE + flush.name, 0), self.needed[shard] if guarded else None
            yield
            whole &= world.call(shard, "ack", key, flush.name, needed)
        return whole

    def ack_full(self) -> Actor:
        """Acks the hashes that are full."""
        for shard, key in [place for place, letter in self.looks.items() if letter == "f"]:
            yield
            self.world.call(shard, "ack", key)

    def fail_void(self) -> Actor:
        """Fails the trees of void hashes."""
        for shard, key in [place for place, letter in self.looks.items() if letter == "v"]:
            yield
            self.world.call(shard, "fail_staged", key)
            yield
            self.world.call(shard, "leave_tombstone", key)

    def note(self) -> Actor:
        """Notes the progress of the subscriptions."""
        for (name, slot), work in self.flush.received.items():
            yield
            self.world.call(name, "note_received", self.flush.name, slot, work.newest)

    def keep_notes(self) -> Actor:
        """Gives the notes of the flush a time to live."""
        for shard, count in self.needed.items():
            if count:
                yield
                self.world.call(shard, "keep_notes", self.flush.name)
