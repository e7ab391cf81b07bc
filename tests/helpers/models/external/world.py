"""A world of the model: shards, streams, transports, and processes that a schedule runs, cuts and repeats."""

import random
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from tests.helpers.models.external import upkeep
from tests.helpers.models.external.flush import Actor, edge
from tests.helpers.models.external.processes import Refused, Unavailable, consumer, source
from tests.helpers.models.external.rules import Rules, Times
from tests.helpers.models.external.scenario import Scenario
from tests.helpers.models.external.shard import Key, Shard
from tests.helpers.models.external.stream import Row, Stream, Transport
from tests.helpers.models.external.truth import Truth, Violation

SLOTS = {"items": (0, 1), "words": (0,)}
"""The subscriptions of each stream."""
CONSUMERS = {
    "step": ("items", 0, "words"),
    "other": ("items", 0, "words"),
    "reader": ("items", 1, ""),
    "sink": ("words", 0, ""),
}
"""The stream, slot and sent stream of each consumer; `other` is of the group of `step`."""
GROUPS = {"other": "step"}
_COPIES, _MOMENTS = 60, 3
_LONG = 8_000


def slab_of(anchor: int) -> int:
    """The slab of a tree: two trees each."""
    return anchor // 2


class World:
    """A history. It is named by its seed."""

    slab_of = staticmethod(slab_of)

    def __init__(self, seed: int, rules: Rules, scenario: Scenario | None = None) -> None:
        self.chance = random.Random(seed)
        drawn = Scenario.draw(self.chance)
        self.rules, self.scenario, self.times = rules, scenario or drawn, Times()
        self.truth = Truth(SLOTS)
        self.now = self.life = self.rotations = self.steps = self._names = self._anchors = 0
        self.faults, self.whole = True, True
        self.transports = {name: Transport() for name in SLOTS}
        self.delayed: list[tuple[str, Row]] = []
        self.offsets: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.running: dict[str, Actor] = {}
        self.zombies: list[Actor] = []
        self.paused: dict[str, int] = {}
        self.pace = {
            name: self.chance.choice((1.0, 1.0, 0.3, 0.05)) for name in ("source", "spout", *CONSUMERS)
        }
        self.often = 5 if self.scenario.often else 1
        self.ticking = self.chance.choice((0.02, 0.1))
        self._newest: Counter[tuple[str, int]] = Counter()
        self._copies: deque[tuple[int | str, str, tuple[Any, ...]]] = deque(maxlen=_COPIES)
        self._moments: deque[tuple[int, Any]] = deque(maxlen=_MOMENTS)
        self._fill()

    def _fill(self) -> None:
        room = 1 if self.scenario.room else None
        self.shards = [Shard(self.rules, self.times, slab_of, room) for _ in range(self.scenario.shards)]
        key = self.life if self.rules.key_renewed else 0
        self.streams = {name: Stream(self.rules, self.times, slots, key) for name, slots in SLOTS.items()}

    # Small things

    def odd(self, share: float) -> bool:
        """True by chance, while there are faults."""
        return self.faults and self.chance.random() < share

    def place(self, anchor: int) -> int:
        """The shard of a tree."""
        return slab_of(anchor) % len(self.shards)

    def new_trees(self, count: int) -> list[int]:
        """New trees: of one slab, or of several."""
        self._anchors += self._anchors % 2
        step = self.chance.choice((1, 2))
        anchors = [self._anchors + step * number for number in range(count)]
        self._anchors = anchors[-1] + 1
        return anchors

    def new_name(self, kind: str) -> str:
        """A name that is new."""
        self._names += 1
        return f"{kind} {self._names}"

    def bit(self, position: int, copy: int = -1) -> Any:
        """The bit of a row; of its copy in the transport, where a mutant counts copies."""
        return position if self.rules.counts == "positions" else (position, copy)

    def child(self, group: str, content: str) -> str:
        """The content of a row that a consumer makes: at times it differs from attempt to attempt."""
        return f"{group} {content} {self.chance.randrange(3) if self.odd(0.4) else 0}"

    def is_garbled(self, group: str, row: Row) -> bool:
        """True if a consumer fails a row."""
        return self.scenario.fails and edge(group, "fails", row.content) % 9 == 0

    # The transport, and the look of a reader

    def append(self, stream: str, row: Row) -> None:
        """Stores a row: by way of the step between, twice or later at times."""
        copies = 2 if self.scenario.copies and self.odd(0.1) else 1
        between = self.scenario.between if stream == "items" else ""
        if between == "copies":
            copies = edge("copies", row.content) % 3 + 1
        elif between == "filters" and edge("filter", row.content) % 3 == 0:
            self.truth.lost.add(row.token)
            return
        for copy in range(copies):
            content = f"{row.content}'{copy}" if between == "copies" else row.content
            stored = row._replace(content=content)
            if self.odd(0.1):
                self.delayed.append((stream, stored))
            else:
                self.transports[stream].rows.append(stored)

    def look(
        self, row: Row, stream: str, slot: int, key: int, known: dict[tuple[str, int], bool]
    ) -> tuple[int, ...]:
        """The trees of a row that are not over (acker/collectors/external/incoming.py). Raises Refused."""
        if not row.anchors or row.key != key:
            return ()
        kept = []
        for anchor in row.anchors:
            shard = self.place(anchor)
            if (row.token, shard) not in known:
                self.streams[stream].check(key)
                known[row.token, shard] = self._is_over(row, shard, slot)
            if not known[row.token, shard]:
                kept.append(anchor)
        return tuple(kept)

    def _is_over(self, row: Row, shard: int, slot: int) -> bool:
        staged = self.shards[shard].staged.get(Key(row.token, slot))
        if staged is not None and staged.state is not None:
            return staged.state == 2
        old = self.now >= row.sent + self.times.ttl + self.times.margin
        over = old and self.rules.stamp_time
        acked = (shard, row.token, slot) in self.truth.acked
        if not over and self.whole and acked:
            raise Violation(f"key: {row.same} of an acked segment is taken for early")
        if not over and old:
            raise Violation(f"key: {row.same} is old, and taken for early")
        if not over and row.life != self.life:
            raise Violation(f"key: {row.same} is of an earlier life of the store, and taken for early")
        if over and self.whole:
            self.truth.deaf.add((shard, row.token, slot))
        return over

    # Calls

    def call(self, node: int | str, script: str, *args: Any) -> Any:
        """Runs a script of a shard or a stream: twice where its reply is lost and it is sent again.

        Raises Unavailable.
        """
        self._copies.append((node, script, args))
        if self.odd(0.01):
            self._run(node, script, args)
        reply = self._run(node, script, args)
        if self.odd(0.01):
            raise Unavailable
        return reply

    def call_surely(self, node: int | str, script: str, *args: Any) -> None:
        """Runs a script until its reply comes."""
        while True:
            try:
                self.call(node, script, *args)
            except Unavailable:
                continue
            return

    def _run(self, node: int | str, script: str, args: tuple[Any, ...]) -> Any:
        target: Shard | Stream = self.shards[node] if isinstance(node, int) else self.streams[node]
        target.now = self.now
        reply = getattr(target, script)(*args)
        self.note_outcomes()
        return reply

    def emitted(self, shard: int, keys: Sequence[Key]) -> None:
        """Notes segments that a flush has emitted."""
        for key in keys:
            staged = self.shards[shard].staged.get(key)
            place = (shard, key.token, key.slot)
            if staged is not None and staged.state == 1:
                self.truth.sent.setdefault(place, tuple(staged.content.vector))
                if place in self.truth.deaf:
                    raise Violation(f"deaf: {key} is emitted, though its readers were told that it is over")

    def note_outcomes(self) -> None:
        """Checks the trees that are over since the last call."""
        for number, shard in enumerate(self.shards):
            ended, shard.trees.ended = shard.trees.ended, []
            for anchor, outcome in ended:
                self.outcomes[outcome] += 1
                if outcome == "acked":
                    self.truth.check_acked(anchor)
            self.truth.acked |= {(number, *key) for key in shard.buried}
            shard.buried = []
        for name, stream in self.streams.items():
            for slot, newest in stream.received.items():
                if newest < self._newest[name, slot] and self.whole:
                    raise Violation(f"lowered: the progress of {name} {slot} from {self._newest[name, slot]}")
                self._newest[name, slot] = newest

    # The schedule

    def begin(self) -> None:
        """Starts the processes that have something to do."""
        if "source" not in self.running and self.offsets["source"] < self.scenario.records:
            self.running["source"] = source(self)
        for name, (stream, slot, to) in CONSUMERS.items():
            group = GROUPS.get(name, name)
            if name not in self.running and self.offsets[group] < len(self.transports[stream].rows):
                self.running[name] = consumer(self, group, stream, slot, to)

    def step(self) -> bool:
        """Something happens; False where nobody has anything to do."""
        self.steps += 1
        self.begin()
        if self.faults:
            self._nature()
        elif not self.running and self.delayed:
            for stream, row in self.delayed:
                self.transports[stream].rows.append(row)
            self.delayed = []
            return True
        if not self.running and not self.zombies:
            return False
        if self.zombies and self.chance.random() < 0.3:
            zombie = self.zombies[self.chance.randrange(len(self.zombies))]
            if not self._go(zombie):
                self.zombies.remove(zombie)
            return True
        if not self.running:
            return True
        name = self.chance.choice(sorted(self.running))
        if self.faults and (
            self.paused.get(name, 0) > self.steps or self.chance.random() > self.pace[name.split()[0]]
        ):
            return True
        if self.odd(0.012):
            self.paused[name] = self.steps + self.chance.choice((20, 60, 200))
        if not name.startswith("spout") and self.odd(0.015):  # it dies, or is taken for dead and goes on
            actor = self.running.pop(name)
            if self.chance.random() < 0.4:
                self.zombies.append(actor)
            return True
        if not self._go(self.running[name]):
            del self.running[name]
        return True

    def _go(self, actor: Actor) -> bool:
        try:
            next(actor)
        except StopIteration:
            return False
        except Refused as refused:
            if self.scenario.ticking:
                raise Violation(
                    f"refused: {refused}, though the store is whole and nothing is late"
                ) from None
            return False
        return True

    def move(self, seconds: int) -> None:
        """The clock goes on."""
        self.now += seconds
        for shard in self.shards:
            shard.now = self.now
            shard.expire()
        for stream in self.streams.values():
            stream.now = self.now
            stream.expire()

    def tick(self) -> None:
        """A ticker's round: the pass over open segments, and a rotation of each shard."""
        self.upkeep()
        self.rotations += 1
        for shard in self.shards:
            shard.trees.rotate(self.now)
        self.note_outcomes()

    def upkeep(self) -> None:
        """The pass over open segments."""
        for shard in self.shards:
            shard.now = self.now
        for stream in self.streams.values():
            stream.now = self.now
        upkeep.keep(self.rules, self.shards, self.streams)
        self.note_outcomes()

    def _nature(self) -> None:
        scenario, chance = self.scenario, self.chance
        if chance.random() < 0.05 and (self.now < self.times.ttl // 2 or scenario.pauses):
            self.move(1)
        if scenario.pauses and chance.random() < 0.006 * self.often:
            ttl, margin = self.times.ttl, self.times.margin
            self.move(
                chance.choice((30, 60, ttl - 10, ttl + 10, ttl + margin + 10, 2 * self.times.lost_after))
            )
        if scenario.repeats and self._copies and chance.random() < 0.05:
            with suppress(Refused):
                self._run(*chance.choice(self._copies))
        if scenario.ticks and chance.random() < self.ticking:
            self.tick()
        if self.delayed and chance.random() < 0.1:
            stream, row = self.delayed.pop(chance.randrange(len(self.delayed)))
            self.transports[stream].rows.append(row)
        if scenario.lossy and chance.random() < 0.01:
            self._lose_row()
        self._damage()

    def _lose_row(self) -> None:
        stream = self.chance.choice(sorted(self.transports))
        transport = self.transports[stream]
        left = [place for place in range(len(transport.rows)) if place not in transport.lost]
        if left:
            place = self.chance.choice(left)
            transport.lost.add(place)
            self.truth.lost.add(transport.rows[place].token)

    def _damage(self) -> None:
        scenario, chance = self.scenario, self.chance
        if scenario.set_back and chance.random() < 0.04 * self.often:
            self._moments.append((self.life, deepcopy((self.shards, self.streams))))
        if self._moments and chance.random() < 0.008 * self.often:
            life, moment = chance.choice(self._moments)
            shards, streams = deepcopy(moment)
            node = chance.randrange(len(shards) + 1) if scenario.cluster else -1
            if life == self.life:
                self.whole = False
                if node < 0:
                    self.shards, self.streams = shards, streams
                elif node < len(shards):
                    self.shards[node] = shards[node]
                else:
                    self.streams = streams
                self.move(0)
        if scenario.emptied and chance.random() < 0.004:
            self.whole = False
            self.life += 1
            self._fill()
            self.move(0)

    def run(self) -> None:
        """The whole history. Raises Violation."""
        limit = self.chance.choice((100, 300, 600))
        while self.steps < limit and self.step():
            pass
        self.faults = False
        while self.step():
            if self.steps > _LONG:
                raise Violation("stuck: it does not come to an end")
