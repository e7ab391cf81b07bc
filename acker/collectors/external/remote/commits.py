"""A client's commit: the rows that it acked and failed, and the rows that it sent, as one.

Its name comes from its idempotency key and its content, so every server that is asked the same carries out
one commit, whose calls take effect once. The key's record says when it is done.

Terms: a segment is the rows of an external stream that one sender stamped together; a slot is the random
number of a subscription.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from acker.collectors.external.remote import sealed, stamping
from acker.collectors.external.remote.rows import find, seal_of
from acker.errors import KeyConflict, StreamLost, TooLarge, ValidationError, shown
from acker.ledger import ids
from acker.ledger.calls import idempotency_keys
from acker.ledger.calls.core import Core
from acker.ledger.calls.idempotency_keys import KEY_SECONDS, Key
from acker.ledger.slabs import causes
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import passing_over
from acker.store.replies import milliseconds
from acker.streams.staging.external import commit as commits
from acker.streams.staging.external import declaring, serving
from acker.streams.staging.external.bits import MOST_POSITIONS
from acker.streams.staging.external.contents import ExternalCommit, In, Out
from acker.streams.staging.external.rows.stamps import Seal, Stamp
from acker.streams.staging.external.segments import Worked

MOST_ACKED = 100_000
"""Rows that a commit acks at most."""
MOST_SENT = 10_000
"""Rows that a commit fails, or sends, at most."""
_LAST_SECONDS = 60
"""Seconds before a key's end in which no commit begins under it."""


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that a client has failed: name of its segment, stamp, reason."""

    segment: str
    stamp: str
    reason: str = ""
    retry: bool = True


@dataclass(frozen=True, slots=True)
class ReceivedRows:
    """Rows of a subscription that a client has worked on.

    Attributes:
        acked: Names of segments, each with the first and the last position of ranges.
        step: The name of the step; by default the subscription's.
        shared: True if the step shares the subscription with steps of other names.
    """

    stream: str
    subscription: str
    acked: Sequence[tuple[str, Sequence[tuple[int, int]]]] = ()
    failed: Sequence[FailedRow] = ()
    step: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class SentRows:
    """Rows that a client has written: their stamps, and the subscriptions that came with these."""

    stream: str
    stamps: Sequence[str | None]
    subscriptions: Mapping[int, str]


@dataclass(slots=True)
class Plan:
    """A commit that was checked, and positions that it names.

    Attributes:
        now: The store's time in Unix seconds.
        served: Subscriptions, with their numbers.
        highest: By stream, slot, token and shard, the highest acked position, where no row that high was read
            with the segment's name.
    """

    key: str
    text: str
    commit: ExternalCommit
    now: int
    served: list[tuple[int, ReceivedRows]] = field(default_factory=list)
    highest: dict[tuple[str, int, str, int], int] = field(default_factory=dict)


def plan(
    core: Core,
    key: str,
    text: str,
    received: Sequence[ReceivedRows],
    sent: Sequence[SentRows],
    acks: Sequence[tuple[int, int]] = (),
) -> Operation[Plan]:
    """Checks a commit. Nothing is changed by that.

    Args:
        core: The topology.
        key: The client's idempotency key.
        text: The commit as text: the same for the same commit.
        received: Rows that were worked on.
        sent: Rows that were made of them, or of tuples.
        acks: Trees, and the XOR of the ids of their tuples that rows were made of.

    Raises:
        UnknownSubscription: A stream has no such subscription.
        StreamKindError: A stream is managed.
        ValidationError: A text is damaged, ranges are none, or rows were stamped for another commit.
        StreamLost: A text is of a stream that the store has lost.
        TooLarge: It has too many rows.
    """
    name = hashlib.blake2b(f"{core.config.name}\0{key}\0{text}".encode(), digest_size=16)
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    planned = Plan(key, text, ExternalCommit(name.hexdigest()), milliseconds(instant) // 1000)
    for anchor, value in acks if core.config.ackers else ():
        if not anchor & 1:
            raise ValidationError(f"anchor: expected an odd number, got {anchor}")
        planned.commit.taken[anchor] = planned.commit.taken.get(anchor, 0) ^ value
    acked, failed, stamps = 0, 0, 0
    for rows in received:
        external, slot = yield from find(core, rows.stream, rows.subscription)
        reading = _Reading(core, rows, seal_of(core, rows.stream, external), planned, slot)
        planned.served.append((slot, rows))
        into = planned.commit.received.setdefault((rows.stream, slot), In(external))
        failed += len(rows.failed)
        acked += reading.add_acked(into, MOST_ACKED - acked)
        reading.add_failed(into)
    for out in sent:
        stamps += len(out.stamps)
        if max(failed, stamps) > MOST_SENT:
            break
        external = yield from declaring.declare(core, out.stream)
        for slot, subscription in out.subscriptions.items():
            external.seen.setdefault(slot, subscription)
        seal = seal_of(core, out.stream, external)
        segments = stamping.sent_segments(out.stream, seal, external, key, out.stamps)
        if segments:
            before = planned.commit.out.get(out.stream)
            if before is not None:
                raise ValidationError(f"sent: expected each stream once, got {out.stream!r} twice")
            planned.commit.out[out.stream] = Out(external, segments)
    if max(failed, stamps) > MOST_SENT:
        raise TooLarge(f"expected at most {MOST_SENT:,} rows that failed, and that were sent, in a commit")
    return planned


@dataclass(slots=True)
class _Reading:
    """Reads the worked rows of a subscription."""

    core: Core
    rows: ReceivedRows
    seal: Seal
    plan: Plan
    slot: int

    def add_acked(self, into: In, most: int) -> int:
        """Adds the acked rows; returns how many."""
        count = 0
        for name, ranges in self.rows.acked:
            segment = self._segment(name)
            for first, last in ranges:
                if not 0 <= first <= last < MOST_POSITIONS:
                    raise ValidationError(
                        f"positions: expected a first and a last one below {MOST_POSITIONS:,}, got "
                        f"{shown([first, last])}"
                    )
                count += last - first + 1
                if count > most:
                    raise TooLarge(f"expected at most {MOST_ACKED:,} acked rows in a commit")
                if last > segment.position:
                    self._note_highest(segment, last)
                for worked in self._worked(into, segment):
                    worked.positions.update(range(first, last + 1))
        return count

    def add_failed(self, into: In) -> None:
        """Adds the failed rows. A row that was acked, too, has failed."""
        for row in self.rows.failed:
            segment, stamp = self._segment(row.segment), self.seal.read(row.stamp)
            if not isinstance(stamp, Stamp) or stamp.token != segment.token:
                raise ValidationError(
                    f"failed: expected the stamp of a row of the segment, got {shown(row.stamp)}"
                )
            cause = causes.checked(row.reason, self.rows.subscription, retry=row.retry)
            shards = map(self._shard, segment.anchors)
            for shard, worked in zip(shards, self._worked(into, segment), strict=True):
                trees = tuple(anchor for anchor in stamp.anchors if self._shard(anchor) == shard)
                if not trees:
                    raise ValidationError(
                        f"failed: expected the name of the segment that position {stamp.position} came with, "
                        "got another name of it"
                    )
                worked.positions.add(stamp.position)
                worked.fails.setdefault(stamp.position, (trees, cause))

    def _segment(self, name: str) -> Stamp:
        stamp = sealed.read_segment_name(self.seal, name)
        if stamp == "foreign":
            raise sealed.foreign(self.rows.stream, "the name of a segment")
        if not isinstance(stamp, Stamp):
            raise ValidationError(f"segment: expected the name that a row came with, got {shown(name)}")
        return stamp

    def _note_highest(self, segment: Stamp, position: int) -> None:
        for shard in map(self._shard, segment.anchors):
            place = self.rows.stream, self.slot, segment.token, shard
            self.plan.highest[place] = max(position, self.plan.highest.get(place, 0))

    def _worked(self, into: In, segment: Stamp) -> list[Worked]:
        """The bitmaps of a segment, in the shards of its name."""
        into.newest = max(into.newest, segment.sent)
        shards = map(self._shard, segment.anchors)
        return [into.worked.setdefault((segment.token, shard), Worked()) for shard in shards]

    def _shard(self, anchor: int) -> int:
        return ids.shard_of(ids.slab_of(anchor), self.core.config.ackers)


def unknown_positions(core: Core, planned: Plan) -> Operation[list[str]]:
    """Names the positions of a commit that their segments do not have, as far as the store has the segments.

    A segment that is not sent yet has any: the flush of its sender leaves out what it does not have. So has a
    commit that was begun before: it has passed this check.
    """
    if not planned.highest or (yield from idempotency_keys.is_taken(core, planned.key)):
        return []
    places = list(planned.highest.items())
    replies = yield [
        command("HGET", core.shards[shard].staged(token, slot), "rows")
        for (_, slot, token, shard), _ in places
    ]
    unknown = dict[str, None]()
    for ((stream, _, token, _), highest), numbers in zip(places, replies, strict=True):
        size = MOST_POSITIONS
        if numbers is not None:
            with passing_over(core.config.name, f"the number of rows of segment {token}"):
                size = int(numbers.split()[3])  # external.lua
        if highest >= size:
            unknown[f"stream {stream!r}: segment {token} has {size:,} rows, got position {highest:,}"] = None
    return list(unknown)


def carry_out(core: Core, planned: Plan) -> Operation[None]:
    """Carries a commit out: any number of times, by any number of servers, it takes effect once.

    Raises:
        KeyConflict: The key was used for another commit, or is about to expire.
        SubscriptionInUse: A live step of another name serves a subscription.
        StampsExpired: Rows were stamped over an hour ago.
        StreamLost: The store has lost a stream, or tuples that the commit has emitted.
        StreamFull: A bound is reached.
        UnknownSubscription: The subscription was dropped meanwhile.
    """
    life = max(KEY_SECONDS, core.config.stamp_ttl)  # rows of the key may be sent as long
    taken = yield from idempotency_keys.take(core, planned.key, planned.text, life)
    if _is_done(planned, taken):
        return
    if taken.seconds < _LAST_SECONDS:
        raise KeyConflict(
            f"the idempotency key is about to expire (it is kept for {life:,} s): use a new key"
        )
    for slot, rows in planned.served:
        yield from serving.serve(
            core, rows.stream, slot, rows.subscription, rows.step or rows.subscription, shared=rows.shared
        )
    planned.commit.taken_at = planned.now - (life - taken.seconds)  # when the key was taken
    try:
        spent = (yield from commits.carry_out(core, planned.commit)).spent
    except StreamLost:
        # Another server that was asked the same may have ended it meanwhile, and dropped its notes.
        again = yield from idempotency_keys.take(core, planned.key, planned.text, life)
        if not _is_done(planned, again):
            raise
        spent = ()
    yield taken.noting(_answer(planned))
    if spent:
        yield [command("UNLINK", key) for key in spent]


def _answer(planned: Plan) -> int:
    """The note that this commit is done, and no other one that has taken its key since."""
    return int(planned.commit.name[:15], 16)


def _is_done(planned: Plan, taken: Key) -> bool:
    if taken.answer is None:
        return False
    if taken.answer != str(_answer(planned)).encode():
        raise KeyConflict("the key was used for another call")
    return True
