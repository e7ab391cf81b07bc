"""Commits under way: none of their trees expires, however long they take.

The executor of a commit registers it with its first request, and sends heartbeats while it goes on. While
these are young, the slabs of the commit are sent back to the nursery before a shard rotates, and again before
the slabs that a rotation has set aside expire. If the process dies, that ends with the third missed
heartbeat.

When a commit has ended, the clock of the trees that it has tracked starts anew.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; roots are
rows of a spout that were staged together, and get a tree each; the nursery is the first of three time
buckets, through which a tree goes until it expires.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from acker.ledger import ids
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import passing_over
from acker.store.replies import milliseconds, pairs
from acker.streams.commits import scripts
from acker.streams.commits.contents import Commit
from acker.streams.log import heartbeats, subscriptions
from acker.streams.sources.roots import Roots
from acker.streams.staging import staging, vectors
from acker.streams.staging.external.rows import sending
from acker.streams.staging.vectors import VectorKey
from acker.streams.upkeep import scripts as upkeep_scripts

_TTL = 86400
"""Seconds for which an abandoned commit is remembered: its record names the places of its trees."""
_SLABS, _TREES = 500, 16_384
"""Slabs of a call of lua/streams/upkeep/pause_clock.lua, and trees after which it stops."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A registered commit: its writer and number, its text, and the seconds since its last heartbeat."""

    writer: str
    number: int
    text: bytes
    age: float


def begun(core: Core, writer: str, number: int, text: str) -> list[Request]:
    """Requests that register a commit. The last one is its heartbeat, repeated while the executor goes on."""
    first, again = (scripts.beat_commit(core.config.name, writer, number, what, _TTL) for what in (text, ""))
    again.every = heartbeats.period(core)
    return [first, again]


def forgetting(core: Core, writer: str, number: int) -> Request:
    """A request that forgets a commit."""
    name = f"{number} {writer}"
    return command("HDEL", keys.committing(core.config.name), f"{name}:at", f"{name}:what")


def end(core: Core, writer: str, number: int, tracked: Sequence[Roots]) -> Operation[None]:
    """Forgets a commit that has ended, and starts the clock of the trees that it has tracked.

    Both go in one flight: in a pause between them, the clock would either stand still or run.
    """
    calls = []
    for roots in tracked:
        slabs, most = _Slabs(core), max(1, _TREES // roots.slab)
        slabs.add_roots(roots)
        calls += [call for part in slabs.by_shard.items() for call in _moving(core, *part, 1, most)]
    replies = yield [*(core.request(call) for call in calls), forgetting(core, writer, number)]
    again = [call for call, reply in zip(calls, replies, strict=False) if core.note_spouts(call.shard, reply)]
    yield from core.ask(again)


def all_of(core: Core) -> Operation[list[UnderWay]]:
    """The registered commits. One that cannot be read is passed over, and logged."""
    key = keys.committing(core.config.name)
    [stored, instant] = yield [command("HGETALL", key), Request(key, ["TIME"])]
    fields, commits = pairs(stored), list[UnderWay]()
    for field_name, text in fields.items():
        name, _, kind = field_name.rpartition(b":")
        if kind != b"what":
            continue
        number, _, writer = name.partition(b" ")
        at = fields.get(name + b":at", b"")
        if not number.isdigit() or not at.isdigit():
            _log.error("%s: the commit %.100r cannot be read", core.config.name, name)
            continue
        age = max(0, milliseconds(instant) - int(at)) / 1000
        commits.append(UnderWay(writer.decode("utf-8", "replace"), int(number), text, age))
    return commits


def slabs(core: Core) -> Operation[dict[int, set[bytes]]]:
    """The slabs, by shard, of commits under way.

    A commit that cannot be read is passed over, and logged: its trees expire as if it had no executor.
    """
    slabs_found = _Slabs(core)
    for commit in (yield from all_of(core)):
        if commit.age >= heartbeats.MISSED * heartbeats.period(core):
            continue
        with passing_over(f"{core.config.name}, commit {commit.number} of {commit.writer}", refusals=True):
            yield from slabs_found.add(Commit.load(commit.text))
    return slabs_found.by_shard


def send_back(core: Core, by_shard: dict[int, set[bytes]], rotations: int) -> Operation[int]:
    """Sends slabs back to the nursery that were put into it so many rotations ago, or more.

    Returns their number.
    """
    moved = 0
    for shard, names in sorted(by_shard.items()):
        left = sorted(names)
        while left:
            [(looked, sent)] = yield from core.ask(_moving(core, shard, left[:_SLABS], rotations))
            moved += int(sent)
            del left[: max(1, int(looked))]
    return moved


def _moving(core: Core, shard: int, names: Iterable[bytes], rotations: int, most: int = _SLABS) -> list[Call]:
    """The calls that move slabs to the nursery, with a limit of slabs for each."""
    members, most = sorted(names), min(most, _SLABS)
    return [
        upkeep_scripts.pause_clock(core.shards[shard], members[at : at + most], rotations)
        for at in range(0, len(members), most)
    ]


@dataclass(slots=True)
class _Slabs:
    """Slabs of commits, by shard."""

    core: Core
    by_shard: dict[int, set[bytes]] = field(default_factory=dict)

    def add(self, work: Commit) -> Operation[None]:
        """Adds the slabs that a commit tracks, emits into, fails and acks, as far as that is not done."""
        core = self.core
        for roots in work.roots():
            self.add_roots(roots)
        places = [place for _, segment in work.segments() for place in vectors.keys_of(core, segment)]
        places += [place for segment in work.gates for place in vectors.keys_of(core, segment)]
        places += sending.places(core, work.sent)
        for delivered in work.ranges():
            pieces = yield from subscriptions.all_delivered(core, delivered)
            places += [
                place for piece in pieces for place in vectors.keys_of(core, piece.segment, delivered.slot)
            ]
        yield from self._add_vectors(places)
        failing = [staging.failing_key(core, staged_id) for staged_id in work.failures()]
        for (_, shard), names in zip(
            failing, (yield [command("HGET", key, "slabs") for key, _ in failing]), strict=True
        ):
            self._add(shard, _cut(names or b""))

    def add_roots(self, roots: Roots) -> None:
        """Adds the slabs of roots, in all sections of their line."""
        for section in range(1, roots.sections + 1) if self.core.config.ackers else ():
            names = ids.split(roots.slabs(section))[0]
            shards = ids.shards_of(names, self.core.config.ackers)
            for name, shard in zip(_cut(names.astype(">u8").tobytes()), shards.tolist(), strict=True):
                self._add(shard, [name])

    def _add_vectors(self, places: Sequence[VectorKey]) -> Operation[None]:
        replies = yield [vectors.head(key) for key, _ in places]
        for (key, shard), reply in zip(places, replies, strict=True):
            for state, names in vectors.chunks(key, reply):
                if state != "2":
                    self._add(shard, names)

    def _add(self, shard: int, names: Iterable[bytes]) -> None:
        self.by_shard.setdefault(shard, set()).update(names)


def _cut(names: bytes) -> Iterator[bytes]:
    return (names[at : at + ids.SLAB_BYTES] for at in range(0, len(names), ids.SLAB_BYTES))
