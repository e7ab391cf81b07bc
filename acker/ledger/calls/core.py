"""Operations of a ledger, without I/O (`acker.store.operation`).

Operations that change it are submissions: their calls take effect once (acker/ledger/calls/idempotence.py).

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a vector has a number for each tree, the XOR of tuple ids; a delta is the XOR of the
ids that a call adds to a tree; the nursery is the first of three time buckets, through which a tree goes
until it expires.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import redis

from acker.errors import StoreError, UnknownTopology, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.calls import encoding, scripts
from acker.ledger.calls.calls import HORIZON, Call, Failed, Submission, Updated, Writers, sums
from acker.ledger.calls.marks import Mark
from acker.ledger.ids import Ids
from acker.ledger.settings import pauses, topologies
from acker.ledger.settings.config import MAX_SPOUTS, Settings, TopologyConfig, check_name, spout_of
from acker.ledger.slabs import registries, sections
from acker.ledger.slabs import slabs as packing
from acker.ledger.slabs.ages import Ages
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys
from acker.store.operation import NOTHING, Operation, Reply, Request, abreast, command

FLIGHT_SHARDS = 64
"""Most shards in one batch of requests."""
ATTEMPTS = 5 + MAX_SPOUTS
"""Most sends of a call that is refused each time: others may add as many spouts to a shard meanwhile."""
_SPOUTS, _REMOVED = "SPOUTS ", "REMOVED"


@dataclass(slots=True)
class Core:
    """A topology for operations: its configuration, keys, writers, and the spouts known so far."""

    config: TopologyConfig
    spouts: frozenset[str] = frozenset()
    writers: Writers = field(default_factory=Writers)
    ages: Ages = field(default_factory=Ages, compare=False)
    shards: list[keys.Shard] = field(init=False)
    registries: dict[int, bytes] = field(default_factory=dict)
    """The spouts of a shard, by its last answer (acker/ledger/slabs/registries.py)."""
    _declared: dict[int, tuple[bytes | None, list[bytes]]] = field(default_factory=dict, compare=False)
    """The keys that each call of a shard declares first, and the spouts that they are for."""
    removals: bytes = field(default=b"", compare=False)
    """The last removal of the topology, or a function of it, as this process has seen it (owned.lua)."""
    paused: dict[str, bytes] = field(default_factory=dict, compare=False)
    """The records of pauses of spouts, as rejected tracks had them (acker/ledger/settings/pauses.py)."""
    read_by: dict[str, object] = field(default_factory=dict, compare=False)
    """The readers of a stream with several, by its last answer (acker/streams/log/known_readers.py)."""
    externals: dict[str, object] = field(default_factory=dict, compare=False)
    """External streams that batches have received lately, by name (acker/spark/external/receiving.py)."""
    waits: object = field(default=None, compare=False)
    """The waits of all slabs, if it takes long to read them (acker/streams/downtime.py)."""
    one_server: bool | None = field(default=None, compare=False)
    """True if the store is one server, False if it is a cluster.

    None if that is not known yet (acker/streams/commits/run.py).
    """

    def __post_init__(self) -> None:
        ackers = self.config.ackers
        self.shards = [keys.Shard(self.config.name, number, ackers) for number in range(ackers)]

    @property
    def horizon(self) -> float:
        """Least seconds for which the store remembers a silent writer."""
        return max(HORIZON, self.config.message_timeout)

    def request(self, call: Call) -> Request:
        """The request of a call: with the shard's keys and spouts first."""
        registry = self.registries.get(call.shard, b"")  # once: another thread may be learning of a spout
        named, declared = self._declared.get(call.shard, (None, []))
        if named != registry:
            declared = self.shards[call.shard].declared(name for _, name in registries.spouts(registry))
            self._declared[call.shard] = registry, declared
        stamp = call.stamp or ()
        return Request(
            declared[0],
            [registry, *stamp, *call.args],
            call.script,
            [*declared, *call.keys],
            self.config.wait if call.waits else NOTHING,
        )

    def note_spouts(self, shard: int, reply: Reply) -> bool:
        """Notes a shard's spouts if it refused a call for its declared spouts; returns True if it did.

        Raises UnknownTopology if the topology was removed, and UnreadableRecord if the spouts cannot be read.
        """
        if not isinstance(reply, redis.ResponseError):
            return False
        if str(reply) == _REMOVED:
            raise UnknownTopology.for_name(self.config.name, ": it was removed, so nothing has changed")
        if not str(reply).startswith(_SPOUTS):
            return False
        registry = str(reply)[len(_SPOUTS) :].encode()
        if not registries.readable(registry):
            raise UnreadableRecord(f"the spouts of shard {shard} of {self.config.name!r}: {registry!r:.200}")
        self.registries[shard] = registry
        return True

    def note_tracked(self, call: Call, declared: bytes) -> None:
        """Adds a spout to a shard's declared spouts, after the shard has tracked for it."""
        # Another thread may have learned of more spouts meanwhile.
        if self.registries.get(call.shard, b"") == declared:
            self.registries[call.shard] = registries.with_spout(declared, call.tracks)

    def ask(self, calls: Sequence[Call]) -> Operation[list[Reply]]:
        """The replies of calls without a stamp, which are resent only if they declared too few streams."""
        replies = yield [self.request(call) for call in calls]
        for _ in range(ATTEMPTS):
            refused = [
                number for number, reply in enumerate(replies) if self.note_spouts(calls[number].shard, reply)
            ]
            if not refused:
                break
            again = yield [self.request(calls[number]) for number in refused]
            for number, reply in zip(refused, again, strict=True):
                replies[number] = reply
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                raise StoreError(str(reply))
        return replies

    def name_stream(self, stream: str, *also: Request) -> Operation[list[Reply]]:
        """Notes a stream among the streams of the topology.

        also: Requests that are sent with it. Returns their replies.
        """
        return (yield from self.make(partial(topologies.name_stream, self.config.name, stream), *also))[1:]

    def make(self, call: Callable[[bytes], Request], *also: Request) -> Operation[list[Reply]]:
        """Sends a call that makes something beside the shards, again where the topology was removed before.

        call: Gets `removals`: a late copy of it makes nothing in a topology that was removed since. also:
        Requests that are sent with it. Returns all replies.
        """
        replies = yield [call(self.removals), *also]
        for _ in range(topologies.ATTEMPTS):
            if not topologies.is_late(replies[0]):
                return replies
            [removals] = yield [command("GET", keys.removals(self.config.name))]
            self.removals = removals or b""
            replies = (yield [call(self.removals)]) + replies[1:]
        raise topologies.removed_again(self.config.name)

    # Submissions

    def track(
        self,
        slabs: Sequence[NewSlab],
        spout: str,
        limit: int | None = None,
        how: str = "",
        staged: Mapping[int, bytes] = MappingProxyType({}),
        emitted: int = 0,
    ) -> Submission[list[str]]:
        """Tracks slabs; the result has for each, in order: A, D, C, R, W, P or U (`track.lua`).

        limit: most trees of a shard, if that is not its share of the high-water mark. how, staged: for roots,
        once or again, and the keys of their staged vectors, by shard. emitted: tuples that the caller has
        emitted into trees since its last call with a number.
        """
        check_name(spout, "spout")
        limit = self.config.shard_limit if limit is None else limit
        by_shard: dict[int, list[int]] = {}
        names = []
        for place, slab in enumerate(slabs):
            slab.check()
            name = ids.slab_of(int(slab.anchors[0]))
            names.append(name)
            by_shard.setdefault(ids.shard_of(name, self.config.ackers), []).append(place)
        if len(set(names)) < len(names):
            raise ValidationError("slabs: expected each slab (the trees of one track) once, got one twice")
        ahead: list[tuple[int, Call]] = []
        calls: list[Call] = []
        order: list[int] = []
        for shard, places in by_shard.items():
            keep = partial(
                scripts.track, self.config, self.shards[shard], spout,
                limit=limit, how=how, staged=staged[shard] if how else None,
            )  # fmt: skip
            part: list[tuple[bytes, bytes, bytes]] = []
            trees = size = 0
            for place in places:
                slab = slabs[place]
                packed = packing.pack_message_ids(slab.message_ids)
                full = trees + len(slab.anchors) > encoding.CALL_WORDS or size >= encoding.CALL_BYTES
                if part and (full or len(part) == encoding.CALL_SLABS):
                    calls.append(keep(part, emitted=0 if calls else emitted))
                    part, trees, size = [], 0, 0
                if cut := packing.pieces(packed, len(slab.anchors)):
                    pausable = "" if how else spout  # a pause holds up roots before their rows are kept
                    ahead += [(place, one) for one in self._ids_calls(shard, pausable, limit, slab, cut)]
                    packed = b""
                part.append((names[place], slab.values.astype("<i8", copy=False).tobytes(), packed))
                trees += len(slab.anchors)
                size += len(packed)
                order.append(place)
            calls.append(keep(part, emitted=0 if calls else emitted))
        if ahead:
            for call in calls:
                call.turn = 1

        def result(calls: list[Call]) -> list[str]:
            letters = ""
            for call in calls[len(ahead) :]:
                tracked, _, record = (call.reply or b"").partition(b" ")
                letters += tracked.decode()
                if record:
                    self.paused[spout_of(spout)] = record
            in_order = [letter for _, letter in sorted(zip(order, letters, strict=True))]
            for place, call in ahead:
                if call.reply in (b"C", b"U"):
                    in_order[place] = call.reply.decode()
            return in_order

        return Submission([call for _, call in ahead] + calls, result)

    def _ids_calls(
        self, shard: int, spout: str, limit: int, slab: NewSlab, pieces: Sequence[bytes]
    ) -> Iterator[Call]:
        """The calls that send a slab's message ids ahead of its track, in pieces."""
        name, count = ids.slab_of(int(slab.anchors[0])), len(slab.anchors)
        for number, piece in enumerate(pieces):
            yield scripts.stage_ids(
                self.config, self.shards[shard], spout, name,
                limit=limit, count=count, number=number, piece=piece,
            )  # fmt: skip

    def rejection(self, letter: str, spout: str) -> str:
        """The reason of a rejected track, by the letter R, W or P (lua/ledger/calls/track.lua)."""
        if letter == "P":
            return pauses.refusal(self.config.name, spout_of(spout), self.paused.get(spout_of(spout), b""))
        return self.config.rejection(letter)

    def read_pause(self, spout: str) -> Operation[None]:
        """Notes whether a spout is paused in a shard."""
        field = pauses.FIELD + spout_of(spout)
        records = yield [command("HGET", shard.counters, field) for shard in self.shards]
        self.paused.pop(spout_of(spout), None)
        self.paused |= {spout_of(spout): record for record in records if record}

    def update(
        self,
        anchors: Ids | list[int],
        deltas: Ids | list[int],
        emitted: int = 0,
        by: Mark | None = None,
        acked: int = 0,
    ) -> Submission[Updated]:
        """XORs a delta into the ack value of each named tree; deltas of one tree are folded first.

        emitted: see `track`. by: the acking step. acked: its acked tuples. The results of `update`, `fail`
        and `reset_timeout` raise UnreadableRecord if unreadable slabs were passed over; the rest was done.
        """
        calls = []
        for call in encoding.update_calls(anchors, deltas, max(1, self.config.ackers)):
            calls.append(scripts.update(self.config, self.shards[call.shard], call, emitted, by, acked))
            emitted = acked = 0
        return Submission(calls, lambda calls: Updated(*sums(calls, 2)))

    def fail(self, anchors: Ids, cause: bytes, by: Mark | None = None) -> Submission[Failed]:
        """Fails trees, for one cause (`acker.ledger.slabs.causes`). by: the failing step."""
        return self.fail_each(anchors, [cause], by)

    def fail_each(
        self, anchors: Ids, causes: Sequence[bytes], by: Mark | None = None, stay: int = 0
    ) -> Submission[Failed]:
        """Fails trees, each for a separate cause.

        stay: ms for which fails wait for the track of their trees; 0 for three rotations.
        """
        calls = [
            scripts.fail(self.config, self.shards[call.shard], call, by=by, stay=stay)
            for call in encoding.fail_calls(anchors, causes, max(1, self.config.ackers))
        ]
        return Submission(calls, lambda calls: Failed(*sums(calls, 3)))

    def reset_timeout(self, anchors: Ids, lines: Mapping[int, int] | None = None) -> Submission[int]:
        """Sends the slabs of trees back to the nursery; the result is the number of slabs.

        A tree of a line stands for its request: its slabs of all sections go back. lines: see
        `sections.everywhere`. Without lines all sections of each possible slab of a line are named, which
        costs calls and does no harm: one of four kept slabs (acker/streams/spouts) looks like such a slab.
        """
        calls = [
            scripts.reset_timeout(self.shards[call.shard], call)
            for call in encoding.reset_calls(sections.everywhere(anchors, lines), max(1, self.config.ackers))
        ]
        return Submission(calls, lambda calls: sums(calls, 1)[0])

    def resetting(self, anchors: Ids) -> Operation[Submission[int]]:
        """Resets with the topology's lines, which are read if an anchor may belong to a line."""
        if not sections.lines(anchors).any():
            return self.reset_timeout(anchors)
        # No process knows an anchor of a line before the line is declared.
        [stored] = yield [command("HVALS", keys.lines(self.config.name))]
        return self.reset_timeout(anchors, sections.counted(stored))

    def count_unreadable(self, records: int) -> Submission[None]:
        """Counts unreadable records, in any of the shards."""
        call = scripts.count_unreadable(secrets.choice(self.shards), records)
        return Submission([call], lambda _: None)

    # Spouts

    def refresh_spouts(self) -> Operation[bool]:
        """Reads the topology's spouts; returns True if the store holds the topology."""
        stored = yield from topologies.spouts(self.config.name)
        self.spouts = stored or self.spouts
        return stored is not None

    def restore(self) -> Operation[None]:
        """Stores the configuration and the spouts again in a store that lost all data.

        Raises TopologyConfigError if the topology was opened with another configuration since.
        """
        stored = yield from topologies.register_again(self.config)
        for spout in sorted(self.spouts - stored.spouts):
            yield from topologies.register_spout(self.config, spout)
        self.spouts |= stored.spouts

    def register_spout(self, name: str, ask: bool = False) -> Operation[None]:
        """Registers a spout of the topology, unless this process has registered it.

        ask: True to register it in any case, because the store may have lost it since. A store that lost the
        topology's configuration gets it again, with all its spouts. Raises SpoutsFull if the topology has 64
        other spouts.
        """
        spout = spout_of(check_name(name, "spout"))
        if ask or spout not in self.spouts:
            yield from self.register_spouts({spout})

    def register_spouts(self, names: Collection[str]) -> Operation[None]:
        """Registers spouts, like `register_spout` with `ask`."""
        registered = self.spouts.union(names)
        notes: list[Operation[Any]] = [topologies.register_spout(self.config, name) for name in sorted(names)]
        *_, there = yield from abreast([*notes, self.refresh_spouts()])
        self.spouts = self.spouts.union(names) if there else registered
        if not there:
            yield from self.restore()


def open_topology(name: str, asked: Settings, create: bool = True) -> Operation[Core]:
    """Opens a topology.

    Has the arguments and errors of `acker.ledger.settings.topologies.register`.
    """
    stored = yield from topologies.register(name, asked, create)
    return Core(stored.config, stored.spouts, removals=stored.removals)
