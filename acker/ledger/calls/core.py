"""What can be done to a ledger, as operations without I/O (`acker.store.operation`).

Operations that change it are submissions, whose calls take effect once (acker/ledger/calls/idempotence.py).
"""

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import redis

from acker.errors import StoreError, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.calls import encoding, scripts
from acker.ledger.calls.calls import HORIZON, Call, Failed, Submission, Updated, Writers, sums
from acker.ledger.calls.marks import Mark
from acker.ledger.ids import Ids
from acker.ledger.settings import topologies
from acker.ledger.settings.config import MAX_SPOUTS, Settings, TopologyConfig, check_name
from acker.ledger.slabs import registries, sections
from acker.ledger.slabs import slabs as packing
from acker.ledger.slabs.ages import Ages
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys
from acker.store.operation import NOTHING, Operation, Reply, Request, abreast, command

FLIGHT_SHARDS = 64
"""Most shards that one batch of requests asks something of."""
ATTEMPTS = 5 + MAX_SPOUTS
"""How often a call is sent that is refused each time: others may bring a shard as many spouts meanwhile."""
_SPOUTS = "SPOUTS "


@dataclass(slots=True)
class Core:
    """A topology as operations need it: its configuration, keys, writers, and the spouts known so far."""

    config: TopologyConfig
    spouts: frozenset[str] = frozenset()
    writers: Writers = field(default_factory=Writers)
    ages: Ages = field(default_factory=Ages, compare=False)
    shards: list[keys.Shard] = field(init=False)
    registries: dict[int, bytes] = field(default_factory=dict)
    """The spouts that a shard tells outcomes to, as it has said last (acker/ledger/slabs/registries.py)."""
    read_by: dict[str, object] = field(default_factory=dict, compare=False)
    """Who reads a stream, as it has said last, where several do (acker/streams/log/known_readers.py)."""
    one_server: bool | None = field(default=None, compare=False)
    """True if the store is one server, False if it is a cluster.

    None where nobody has learned that yet (acker/streams/commits/run.py).
    """

    def __post_init__(self) -> None:
        ackers = self.config.ackers
        self.shards = [keys.Shard(self.config.name, number, ackers) for number in range(ackers)]

    @property
    def horizon(self) -> float:
        """Seconds for which the store remembers a silent writer, at least."""
        return max(HORIZON, self.config.message_timeout)

    def request(self, call: Call) -> Request:
        """A call as it is sent: the shard's keys first, its spouts first."""
        registry = self.registries.get(
            call.shard, b""
        )  # read once: another thread may be learning of a spout
        declared = self.shards[call.shard].declared(name for _, name in registries.spouts(registry))
        stamp = call.stamp or ()
        return Request(
            declared[0],
            [registry, *stamp, *call.args],
            call.script,
            [*declared, *call.keys],
            self.config.wait if call.waits else NOTHING,
        )

    def note_spouts(self, shard: int, reply: Reply) -> bool:
        """Whether a shard refused a call for the spouts it declared, as other ones; notes which it has.

        Raises UnreadableRecord where that cannot be read.
        """
        if not isinstance(reply, redis.ResponseError) or not str(reply).startswith(_SPOUTS):
            return False
        registry = str(reply)[len(_SPOUTS) :].encode()
        if not registries.readable(registry):
            raise UnreadableRecord(f"the spouts of shard {shard} of {self.config.name!r}: {registry!r:.200}")
        self.registries[shard] = registry
        return True

    def note_tracked(self, call: Call, declared: bytes) -> None:
        """Notes that a shard, with those spouts declared, has tracked for a spout: it has that one, too."""
        # Another thread may have learned of more of them meanwhile.
        if self.registries.get(call.shard, b"") == declared:
            self.registries[call.shard] = registries.with_spout(declared, call.tracks)

    def ask(self, calls: Sequence[Call]) -> Operation[list[Reply]]:
        """The replies of calls that carry no stamp: sent again only where they declared too few streams."""
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
        """Tracks slabs; the result has for each, in order: A, D, C, R, W or U (lua/ledger/calls/track.lua).

        limit: most trees that a shard may hold, where that is not its share of the high-water mark. how,
        staged: of roots, once or again, and the keys of their staged vectors, by shard. emitted: how many
        tuples the caller has emitted into trees since it said so last.
        """
        check_name(spout, "spout")
        limit = self.config.shard_limit if limit is None else limit
        by_shard: dict[int, list[int]] = {}
        named = []
        for place, slab in enumerate(slabs):
            slab.check()
            name = ids.slab_of(int(slab.anchors[0]))
            named.append(name)
            by_shard.setdefault(ids.shard_of(name, self.config.ackers), []).append(place)
        if len(set(named)) < len(named):
            raise ValidationError("slabs: one is named twice")
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
                    ahead += [(place, one) for one in self._ids_calls(shard, limit, named[place], slab, cut)]
                    packed = b""
                part.append((named[place], slab.values.astype("<i8", copy=False).tobytes(), packed))
                trees += len(slab.anchors)
                size += len(packed)
                order.append(place)
            calls.append(keep(part, emitted=0 if calls else emitted))
        if ahead:
            for call in calls:
                call.turn = 1

        def result(calls: list[Call]) -> list[str]:
            letters = "".join((call.reply or b"").decode() for call in calls[len(ahead) :])
            found = [letter for _, letter in sorted(zip(order, letters, strict=True))]
            for place, call in ahead:
                if call.reply in (b"C", b"U"):
                    found[place] = call.reply.decode()
            return found

        return Submission([call for _, call in ahead] + calls, result)

    def _ids_calls(
        self, shard: int, limit: int, name: bytes, slab: NewSlab, pieces: Sequence[bytes]
    ) -> Iterator[Call]:
        """The calls that send a slab's message ids ahead of its track, in pieces."""
        for number, piece in enumerate(pieces):
            count, own = len(slab.anchors), self.shards[shard]
            yield scripts.stage_ids(
                self.config, own, name, limit=limit, count=count, number=number, piece=piece
            )

    def update(
        self,
        anchors: Ids | list[int],
        deltas: Ids | list[int],
        emitted: int = 0,
        by: Mark | None = None,
        acked: int = 0,
    ) -> Submission[Updated]:
        """XORs a delta into the ack value of each tree named; several of one tree are folded first.

        emitted: as of `track`. by: who acks, and `acked` how many tuples.
        The result of this, of `fail` and of `reset_timeout` raises UnreadableRecord where slabs were passed
        over, for their record cannot be read; all else was done.
        """
        calls = []
        for call in encoding.update_calls(anchors, deltas, max(1, self.config.ackers)):
            calls.append(scripts.update(self.config, self.shards[call.shard], call, emitted, by, acked))
            emitted = acked = 0
        return Submission(calls, lambda calls: Updated(*sums(calls, 2)))

    def fail(self, anchors: Ids, cause: bytes, by: Mark | None = None) -> Submission[Failed]:
        """Fails trees, for one cause (`acker.ledger.slabs.causes`). by: who fails them."""
        return self.fail_each(anchors, [cause], by)

    def fail_each(self, anchors: Ids, causes: Sequence[bytes], by: Mark | None = None) -> Submission[Failed]:
        """Fails trees, each for its own cause."""
        calls = [
            scripts.fail(self.config, self.shards[call.shard], call, by=by)
            for call in encoding.fail_calls(anchors, causes, max(1, self.config.ackers))
        ]
        return Submission(calls, lambda calls: Failed(*sums(calls, 3)))

    def reset_timeout(self, anchors: Ids, lines: Mapping[int, int] | None = None) -> Submission[int]:
        """Sends the slabs of trees back to the nursery; the result is how many slabs.

        A tree of a line stands for its request: its slabs of all sections go back. lines: as of
        `sections.everywhere`. Without them all sections are named of whatever may be of a line, which costs
        calls and does no harm: of kept slabs (acker/streams/spouts) each fourth looks so.
        """
        calls = [
            scripts.reset_timeout(self.shards[call.shard], call)
            for call in encoding.reset_calls(sections.everywhere(anchors, lines), max(1, self.config.ackers))
        ]
        return Submission(calls, lambda calls: sums(calls, 1)[0])

    def resetting(self, anchors: Ids) -> Operation[Submission[int]]:
        """The same, with the lines that the topology has: asked for where an anchor may be of one."""
        if not sections.lines(anchors).any():
            return self.reset_timeout(anchors)
        # An anchor of a line is known to nobody before the line is declared.
        [stored] = yield [command("HVALS", keys.lines(self.config.name))]
        return self.reset_timeout(anchors, sections.counted(stored))

    def count_unreadable(self, records: int) -> Submission[None]:
        """Counts records that could not be read, in any of the shards."""
        call = scripts.count_unreadable(secrets.choice(self.shards), records)
        return Submission([call], lambda _: None)

    # Spouts

    def refresh_spouts(self) -> Operation[bool]:
        """Reads which spouts the topology has; returns whether the store knows the topology at all."""
        stored = yield from topologies.spouts(self.config.name)
        self.spouts = stored or self.spouts
        return stored is not None

    def restore(self) -> Operation[None]:
        """Stores the configuration and the spouts again, in a store that lost everything.

        TopologyConfigError where the topology was opened with another configuration since.
        """
        stored = yield from topologies.register_again(self.config)
        for spout in sorted(self.spouts - stored.spouts):
            yield from topologies.register_spout(self.config, spout)
        self.spouts |= stored.spouts

    def register_spout(self, name: str, ask: bool = False) -> Operation[None]:
        """Notes a spout among those of its topology, where that was not done by this process.

        ask: also where it was: the store may have lost it since. A store that lost the topology's
        configuration gets that again, with all its spouts.
        AckerError where the topology has 64 other spouts.
        """
        check_name(name, "spout")
        if ask or name not in self.spouts:
            yield from self.register_spouts({name})

    def register_spouts(self, names: Collection[str]) -> Operation[None]:
        """As `register_spout` with `ask`, for several."""
        known = self.spouts.union(names)
        notes: list[Operation[Any]] = [topologies.register_spout(self.config, name) for name in sorted(names)]
        *_, there = yield from abreast([*notes, self.refresh_spouts()])
        self.spouts = self.spouts.union(names) if there else known
        if not there:
            yield from self.restore()


def open_topology(name: str, asked: Settings, create: bool = True) -> Operation[Core]:
    """Opens a topology.

    Takes what `acker.ledger.settings.topologies.register` takes, and raises what that raises.
    """
    stored = yield from topologies.register(name, asked, create)
    return Core(stored.config, stored.spouts)
