"""A commit of external rows: the sent and the worked rows of one flush of a plain program.

It takes two exchanges with one server. Each step is there for a reason, and takes effect only where the shard
holds what came before it, so no order of the requests on their way, no copy and no cut makes a false ack:

1. The streams learn of the segments, and tell which subscriptions they are for: a tuple's id depends on that.
   Along with it the streams of received rows are asked for their epochs, because one that was made anew has
   another, and the vectors of received segments for their trees, which their ack has to declare.
2. In this order: vectors are staged; each shard emits them, and notes that; one script of each shard takes
   the bits and fails of received rows, if the shard has noted all emits of the commit; the progress of the
   subscriptions is noted, if all shards have taken theirs (a chain); tuples that were taken over are acked,
   on the same condition as bits; and segments are acked that are full by now. Others stay as they are.

A further exchange is needed where segments are full as soon as they are emitted, where a call takes only a
part of the fails, and in a cluster for the progress, because its nodes run no script together. The notes of a
commit are dropped by the first exchange of the next one: a flight whose reply was lost is sent again.

Each call takes effect once however often it is sent. So a commit that was cut can be carried out again by the
process that has it in memory. No other process finishes it: its inputs come again then, and its emitted rows
are acked like any other, because they are in the transport.

Terms: a tree is all that comes of one record; a chunk is a piece of a vector, applied by one call.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import redis

from acker.errors import StoreError, StreamLost
from acker.ledger import ids
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import ATTEMPTS, Core
from acker.store import keys
from acker.store.flight import refusal_of, refused
from acker.store.operation import Operation, Reply, Request, chain, command
from acker.streams.log import kinds
from acker.streams.staging import vectors
from acker.streams.staging.external import receiving, scripts, subscribed, voiding
from acker.streams.staging.external.announcing import Announcements
from acker.streams.staging.external.contents import ExternalCommit
from acker.streams.staging.external.declaring import longest_ttl, lost, stored_ttl
from acker.streams.staging.external.emitting import Emits
from acker.streams.staging.external.receiving import Part
from acker.streams.staging.vectors import CommitProgress, StagedVectors, VectorKey

_ATTEMPTS = 4
_log = logging.getLogger(__name__)

_End: TypeAlias = Literal["done", "again", "lost"]


@dataclass(frozen=True, slots=True)
class Flushed:
    """The end of a commit: the server's time (ms) or 0, and keys that the next commit is to drop."""

    now: int
    spent: Sequence[bytes]


def carry_out(core: Core, commit: ExternalCommit, spent: Sequence[bytes] = ()) -> Operation[Flushed]:
    """Carries a commit out; the same call again goes on where it was cut.

    spent: Keys that an earlier commit of the process has left, to be dropped; this commit's are not.

    Raises:
        StampsExpired: A segment is too old.
        StreamLost: A sent stream has another key than its stamps, a received one another epoch, or the store
            has lost emitted tuples.
        StreamFull: A bound is reached.
        UnknownSubscription: The subscription was dropped.
    """
    running = _Running(core, commit)
    yield from running.announce(spent)
    running.withhold((yield from _fail_unheard(core, commit)))
    losses, end = 0, "again"
    for _ in range(ATTEMPTS + _ATTEMPTS):
        end = yield from running.fly()
        losses += end == "lost"
        if end == "done" or losses == _ATTEMPTS:
            break
    if end != "done":
        raise StreamLost(
            f"topology {core.config.name}: the store has repeatedly lost the tuples that a flush emitted: "
            "none of its inputs is acked there. Start the process again from its committed offsets"
        )
    yield from running.end()
    return Flushed(running.now, running.notes)


def _fail_unheard(core: Core, commit: ExternalCommit) -> Operation[set[int]]:
    """Fails undelivered rows of segments that no subscription waits for, before their inputs are acked.

    Returns the shards in which some found no room to wait for their track.
    """
    segments = [sent for out in commit.out.values() for sent in out.segments if not sent.slots]
    fails = [
        (anchor, cause)
        for sent in segments
        for position, cause in dict(sent.unsent).items()
        for anchor in (sent.anchors_of(position) if cause else ())
    ]
    if (yield from fail_rows(core, fails)):
        return set()
    return {ids.shard_of_anchor(anchor, core.config.ackers) for anchor, _ in fails}


def fail_rows(core: Core, fails: Sequence[tuple[int, bytes]]) -> Operation[bool]:
    """Fails trees of rows that were not delivered, which may wait for their track as long as bits do.

    It comes before any bit of these rows: a bit may complete a tree that is to fail. Trees that are over look
    like trees that are not tracked yet, so there may be more than have room to wait, however often the flush
    is called: the flush goes on then.

    Returns:
        False if some found no room, which is logged: no bit of these rows, or of their inputs, may be set, so
        their trees expire.
    """
    if not fails:
        return True
    anchors = np.array([anchor for anchor, _ in fails], np.int64)
    failing = core.fail_each(anchors, [cause for _, cause in fails], stay=1000 * core.config.stamp_ttl)
    orphaned = (yield from idempotence.send(core, failing)).orphaned
    if orphaned:
        _log.error(
            "%s: %d trees of rows that were not delivered found no room to wait for their track, so they do "
            "not fail, and expire. Where no subscription waits for the rows, all that this flush has worked "
            "on in their shards expires with them",
            core.config.name, orphaned,
        )  # fmt: skip
    return not orphaned


@dataclass(frozen=True, slots=True)
class _Ack:
    """A call that acks segments where they are full."""

    call: Call
    places: list[VectorKey]


@dataclass(slots=True)
class _Running:
    core: Core
    commit: ExternalCommit
    now: int = 0
    ttl: int = 0
    """Seconds for which rows wait whose segment is not emitted yet."""
    progress: CommitProgress = field(init=False)
    emits: Emits = field(init=False)
    parts: list[Part] = field(default_factory=list)
    acks: list[_Ack] = field(default_factory=list)
    noted: bool = False
    """True if the progress of the subscriptions is noted."""
    looks: dict[VectorKey, str] = field(default_factory=dict)
    """The shards' replies about segments (lua/streams/staging/external/receive.lua), without acked ones."""

    def __post_init__(self) -> None:
        self.progress = CommitProgress(self.commit.name, Counter())
        self.ttl = self.core.config.stamp_ttl

    @property
    def notes(self) -> list[bytes]:
        """The keys at which shards note the commit's emits."""
        return [self.progress.key(self.core, shard) for shard, count in self.progress.needed.items() if count]

    # The first exchange

    def announce(self, spent: Sequence[bytes]) -> Operation[None]:
        """Announces the segments, and reads what the second exchange needs."""
        core, name, announcements = (
            self.core,
            self.core.config.name,
            Announcements(self.core, self.commit.out),
        )
        calls = announcements.requests()
        streams = {stream: received.external for (stream, _), received in self.commit.received.items()}
        asked = [command("HGET", keys.Stream(name, stream).subscriptions, "epoch") for stream in streams]
        if streams:
            asked.append(stored_ttl(core))
        new = receiving.bits_of(receiving.parts_of(core, self.commit, ()))
        places = list(new)[: receiving.MOST_HEADS]
        heads = [receiving.head(key) for key, _ in places]
        kept = {self.progress.key(core, shard) for shard in range(core.config.ackers)}
        drops = [command("UNLINK", key) for key in spent if key not in kept]
        replies = yield [*calls, *asked, *heads, *drops]
        for (stream, external), reply in zip(streams.items(), replies[len(calls) :], strict=False):
            if reply != external.epoch:
                raise lost(stream)
        if streams:
            self.ttl = longest_ttl(core, replies[len(calls) + len(streams)])
        self.now = yield from announcements.take(replies[: len(calls)])
        self.emits = Emits(core, self.commit, self.progress)
        self.parts = receiving.parts_of(core, self.commit, self.emits.places)
        head_replies = replies[len(calls) + len(asked) :]
        self.acks = self._acks(
            {
                place: staged
                for place, reply in zip(places, head_replies, strict=False)
                if (staged := receiving.filled(place[0], reply, new[place])) is not None
            }
        )

    def _acks(self, staged: dict[VectorKey, StagedVectors]) -> list[_Ack]:
        """The calls that ack segments by their vectors, each with its places."""
        by_key = {place[0]: place for place in staged}
        found = {key: staged[place] for key, place in by_key.items()}
        calls = vectors.calls_of(self.core, list(staged), found, "2", None)
        return [_Ack(call, [by_key[key] for key in call.keys if key in by_key]) for call, _ in calls]

    def withhold(self, shards: set[int]) -> None:
        """Acks nothing in shards whose trees could not fail: they expire."""
        if not shards:
            return
        self.parts = [part for part in self.parts if part.shard not in shards]
        self.emits.alone = [call for call in self.emits.alone if call.shard not in shards]

    # The second exchange

    def fly(self) -> Operation[_End]:
        """Emits, receives and acks, in one flight."""
        core, emits = self.core, self.emits
        calls = [receiving.call_of(core, part, self.progress, self.ttl) for part in self.parts]
        receives, notes = self._requests(calls), self._notes()
        chained = bool(core.one_server is not False and receives and notes and receiving.few(self.parts))
        middle = [chain([*receives, *notes])] if chained else receives or notes
        emitting = [call for call, _ in emits.calls]
        acking = [*emits.alone, *(ack.call for ack in self.acks)]
        ttls = [command("EXPIRE", key, 2 * self.core.config.stamp_ttl) for key in self.notes]
        requests = [emits.staging, self._requests(emitting), middle, self._requests(acking), ttls]
        staged, emitted, taken, acked, _ = yield from _in_order(requests)
        emits.check_staged(staged)
        if chained:
            core.one_server = taken[0] is not None
            taken = _members([*receives, *notes], taken[0] or ())
        received, noted = taken[: len(receives)], taken[len(receives) :]
        answered = [*emitting, *calls[: len(received)], *acking]
        if not self._known(answered, [*emitted, *received, *acked]) or (chained and not core.one_server):
            return "again"
        looked = emits.take(emitted)
        self.looks = {}
        if receives:
            pending = self._take_letters(self.parts, received)
            if pending is None:
                return "lost"
            looked += pending
        if chained or not receives:
            yield from self._take_notes(noted)
        self._take_acks(self.acks, acked[len(emits.alone) :])
        if (yield from self._look_again(looked)) and (yield from self._holds(acked[: len(emits.alone)])):
            return "done"
        return "lost"

    def _requests(self, calls: Sequence[Call]) -> list[Request]:
        return [self.core.request(call) for call in calls]

    def _known(self, calls: Sequence[Call], replies: Sequence[Reply]) -> bool:
        """False if a shard has refused a call for its spouts, which are known now."""
        refusals = [
            self.core.note_spouts(call.shard, reply) for call, reply in zip(calls, replies, strict=True)
        ]
        if any(refusals):
            return False
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                text = str(reply)
                raise receiving.full(self.core, text) if text.startswith("FULL") else StoreError(text)
        return True

    def _take_letters(self, parts: Sequence[Part], replies: Sequence[Reply]) -> list[VectorKey] | None:
        """Notes the shards' letters; returns places with further fails, None if a shard has lost emits."""
        more = list[VectorKey]()
        for part, reply in zip(parts, replies, strict=False):
            letters = bytes(reply).partition(b" ")[0].decode()
            if letters.startswith("l"):
                return None
            if letters.startswith("d"):
                _log.error(
                    "%s: tuples that a flush had emitted waited too long for the track of their trees: "
                    "nothing that it read is acked in shard %d, and its trees expire",
                    self.core.config.name,
                    part.shard,
                )
            self.looks.update(zip(part.places(), letters, strict=True))
            more += [place for place, letter in zip(part.places(), letters, strict=True) if letter == "m"]
        return more

    def _take_acks(self, acks: Sequence[_Ack], replies: Sequence[Reply]) -> None:
        """Drops the letters of segments that are acked: a call says how many of its chunks were not full."""
        left = {
            place
            for ack, reply in zip(acks, replies, strict=True)
            for place in ack.places
            if int(bytes(reply).split()[4])
        }
        for ack in acks:
            for place in ack.places:
                if place not in left and self.looks.get(place) == "f":
                    del self.looks[place]

    def _look_again(self, places: Sequence[VectorKey]) -> Operation[bool]:
        """Has shards take further fails, and say what has become of segments that they emitted.

        Returns False if a shard has lost emitted tuples.
        """
        left: list[VectorKey] | None = list(places)
        while left:
            parts = receiving.looks_of(left)
            acks = self._acks(
                {place: self.emits.vectors(place) for place in left if place in self.emits.chunks}
            )
            calls = [receiving.call_of(self.core, part, self.progress, self.ttl) for part in parts]
            replies = yield from self.core.ask([*calls, *(ack.call for ack in acks)])
            left = self._take_letters(parts, replies[: len(parts)])
            self._take_acks(acks, replies[len(parts) :])
        return left is not None

    def _holds(self, replies: Sequence[Reply]) -> Operation[bool]:
        """False if tuples that were taken over are not acked, because a shard has lost emitted tuples."""
        if not sum(int(bytes(reply).split()[3]) for reply in replies):
            return True
        shards = [(shard, number) for shard, number in self.progress.needed.items() if number]
        counts = yield [self.progress.counting(self.core, shard) for shard, _ in shards]
        return all(int(count or 0) >= number for count, (_, number) in zip(counts, shards, strict=True))

    # The end

    def end(self) -> Operation[None]:
        """Acks other full segments, fails the trees of void ones, and notes the subscriptions' progress."""
        yield from voiding.finish(self.core, self.looks)
        if not self.noted:
            yield from self._take_notes((yield self._notes()))

    def _notes(self) -> list[Request]:
        config, requests = self.core.config, list[Request]()
        for (stream, slot), received in self.commit.received.items():
            counted = received.counted + Counter(rows=received.usual)
            counts = [(f"seen_{counter}", count) for counter, count in counted.items()]
            stream_keys, name = keys.Stream(config.name, stream), f"{self.commit.name}:{slot}"
            requests.append(
                scripts.note_received(
                    config, stream_keys, name, slot, received.newest, config.stamp_ttl, counts
                )
            )
        return requests

    def _take_notes(self, replies: Sequence[Reply]) -> Operation[None]:
        for ((stream, slot), received), reply in zip(self.commit.received.items(), replies, strict=False):
            if isinstance(reply, redis.ResponseError):
                stream_keys = keys.Stream(self.core.config.name, stream)
                [kind] = yield [command("HGET", stream_keys.subscriptions, kinds.FIELD)]
                if kind is None:
                    raise lost(stream)
                raise (yield from subscribed.missing(self.core, stream, received.external.seen, slot))
        self.noted = len(replies) == len(self.commit.received)


def _in_order(groups: Sequence[Sequence[Request]]) -> Operation[list[list[Reply]]]:
    """Sends groups of requests, in one batch; returns the replies to each."""
    replies = iter((yield [request for group in groups for request in group]))
    return [[next(replies) for _ in group] for group in groups]


def _members(requests: Sequence[Request], replies: Sequence[Reply]) -> list[Reply]:
    """The replies of the scripts of a chain that ran, with errors in place of their text."""
    results = list[Reply]()
    for request, reply in zip(requests, replies, strict=False):
        if isinstance(reply, bytes) and reply.startswith(b"!"):
            error = redis.ResponseError(reply[1:].decode("utf-8", "replace"))
            if refused(error):
                raise refusal_of(request, error)
            results.append(error)
        else:
            results.append(reply)
    return results
