"""Commits under way: none of the trees that they are about expires, however long they take.

Who carries out a commit registers it with its first request, and its heartbeat says that it goes on. While
that is young, the slabs of the commit are sent back to the nursery before a shard rotates, and again before
what a rotation has set aside expires. A process that dies ends that with its third missed heartbeat.

When a commit has ended, the clock of the trees that it has tracked starts anew.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from acker.errors import StoreError, UnreadableRecord
from acker.ledger import ids
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds, pairs
from acker.streams.commits import scripts
from acker.streams.commits.contents import Commit
from acker.streams.log import heartbeats, subscriptions
from acker.streams.sources.roots import Roots
from acker.streams.staging import staging, vectors
from acker.streams.staging.vectors import VectorKey
from acker.streams.upkeep import scripts as upkeep_scripts

_TTL = 86400
"""Seconds for which a commit that nobody carries out any more is known: it tells where its trees were."""
_SLABS, _TREES = 500, 16_384
"""Slabs of a call of lua/streams/upkeep/keep_waiting.lua, and trees after which it stops."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A commit that is registered: whose it is, what it does, and seconds since its last heartbeat."""

    writer: str
    number: int
    text: bytes
    age: float


def begun(core: Core, writer: str, number: int, text: str) -> list[Request]:
    """Requests that register a commit; the last is its heartbeat, while whoever has sent it goes on."""
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
    for one in tracked:
        found, most = _Slabs(core), max(1, _TREES // one.slab)
        found.add_roots(one)
        calls += [call for part in found.by_shard.items() for call in _moving(core, *part, 1, most)]
    replies = yield [*(core.request(call) for call in calls), forgetting(core, writer, number)]
    again = [call for call, reply in zip(calls, replies, strict=False) if core.note_spouts(call.shard, reply)]
    yield from core.ask(again)


def all_of(core: Core) -> Operation[list[UnderWay]]:
    """The commits that are registered. One that cannot be read is passed over, and logged."""
    key = keys.committing(core.config.name)
    [stored, instant] = yield [command("HGETALL", key), Request(key, ["TIME"])]
    fields, found = pairs(stored), list[UnderWay]()
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
        found.append(UnderWay(writer.decode("utf-8", "replace"), int(number), text, age))
    return found


def slabs(core: Core) -> Operation[dict[int, set[bytes]]]:
    """The slabs, by shard, that commits under way are about.

    A commit that cannot be read is passed over, and logged: its trees expire as if nobody carried it out.
    """
    found = _Slabs(core)
    for one in (yield from all_of(core)):
        if one.age >= heartbeats.MISSED * heartbeats.period(core):
            continue
        try:
            yield from found.add(Commit.load(one.text))
        except (StoreError, UnreadableRecord) as error:
            _log.error("%s, commit %d of %s: %s", core.config.name, one.number, one.writer, error)
    return found.by_shard


def send_back(core: Core, by_shard: dict[int, set[bytes]], rotations: int) -> Operation[int]:
    """Sends slabs back to the nursery that were put into it so many rotations ago, or more; how many."""
    moved = 0
    for shard, names in sorted(by_shard.items()):
        left = sorted(names)
        while left:
            [(looked, sent)] = yield from core.ask(_moving(core, shard, left[:_SLABS], rotations))
            moved += int(sent)
            del left[: max(1, int(looked))]
    return moved


def _moving(core: Core, shard: int, names: Iterable[bytes], rotations: int, most: int = _SLABS) -> list[Call]:
    """The calls that move slabs to the nursery, so many each."""
    members, most = sorted(names), min(most, _SLABS)
    return [
        upkeep_scripts.keep_waiting(core.shards[shard], members[at : at + most], rotations)
        for at in range(0, len(members), most)
    ]


@dataclass(slots=True)
class _Slabs:
    """Slabs of commits, by shard."""

    core: Core
    by_shard: dict[int, set[bytes]] = field(default_factory=dict)

    def add(self, what: Commit) -> Operation[None]:
        """Adds what a commit tracks, emits into, fails and acks, as far as that is not done."""
        core = self.core
        for one in what.roots():
            self.add_roots(one)
        places = [place for _, segment in what.segments() for place in vectors.keys_of(core, segment)]
        places += [place for segment in what.gates for place in vectors.keys_of(core, segment)]
        for taken in what.ranges():
            pieces = yield from subscriptions.all_taken(core, taken)
            places += [
                place for piece in pieces for place in vectors.keys_of(core, piece.segment, taken.slot)
            ]
        yield from self._add_vectors(places)
        failing = [staging.failing(core, token) for token in what.failures()]
        for (_, shard), names in zip(
            failing, (yield [command("HGET", key, "slabs") for key, _ in failing]), strict=True
        ):
            self._add(shard, _cut(names or b""))

    def add_roots(self, one: Roots) -> None:
        """Adds the slabs of roots, in all sections of their line."""
        for section in range(1, one.sections + 1) if self.core.config.ackers else ():
            names = ids.split(one.slabs(section))[0]
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
