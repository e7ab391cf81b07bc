"""Segments that tasks have staged, and a commit emits: their rows are in the transport by then.

A task stages a segment's vectors for the subscriptions of that moment, under a random token. The commit
announces the segments of winners before it emits them: for the subscriptions among them that are still there.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

import redis

from acker.errors import StreamFull
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import Bounds, Count, HexId, Name, Record
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import HOLD_TTL
from acker.streams.staging import staging, vectors
from acker.streams.staging.external import scripts
from acker.streams.staging.external.declaring import MARGIN, MOST_BYTES, MOST_SEGMENTS
from acker.streams.staging.external.segments import Stamped, announced_of
from acker.streams.staging.vectors import CommitProgress, VectorKey

LOST = 1 << 40
"""Work that no shard holds: with it, nothing that the commit has read is acked."""
_TOGETHER, _KEYS = 500, 256
_log = logging.getLogger(__name__)


class NeedsLook(Exception):
    """A chain has stopped: the rest of the commit depends on replies of the store."""


@dataclass(frozen=True, slots=True)
class Sending(Record, label="segments to send"):
    """Segments of an external stream whose stamps have one key.

    Attributes:
        stream: The stream.
        number: The number of the key.
        key: The key.
        segments: Each with the time at which it was begun, in Unix seconds.
    """

    stream: Name
    number: Annotated[int, Bounds(0, 255)]
    key: HexId
    segments: tuple[tuple[Segment, Count], ...]


@dataclass(frozen=True, slots=True)
class Written(Record, label="the sent segments of a write"):
    """The segments that a run of a batch has sent by one write.

    Attributes:
        sent: The segments.
        inputs: A digest of the inputs of that run; "" if they are unknown, or belong to that run alone.
        unanchored: Rows that have lost their anchors.
        treeless: Rows that have 0 for an anchor.
    """

    sent: tuple[Sending, ...]
    inputs: Annotated[str, Bounds(0, 64)] = ""
    unanchored: Count = 0
    treeless: Count = 0


def stage(core: Core, sent: Stamped, slots: tuple[int, ...]) -> tuple[Segment, list[Request]]:
    """The record of a segment, and the requests that stage its vectors for some slots."""
    ackers, ttl, requests = core.config.ackers, core.config.stamp_ttl, list[Request]()
    here = sent.shards(ackers)
    for slot in slots:
        for shard, chunks in sent.vectors(slot, ackers).items():
            key = core.shards[shard].staged(sent.token, slot)
            fields = staging.staged_fields(key, chunks, "0", len(sent.anchors))
            fields |= here[shard].fields(len(sent.lengths), ttl)
            requests.append(scripts.send(key, ttl, (sent.begun + ttl) * 1000, fields))
    shards = tuple(sorted(here))
    return Segment(sent.token, len(sent.lengths), sent.seed, sent.weight(), shards, slots), requests


def places(core: Core, sent: Sequence[Sending]) -> list[VectorKey]:
    """The keys of all that was staged of segments, with their shards."""
    return [
        place
        for sending in sent
        for segment, _ in sending.segments
        for place in vectors.keys_of(core, segment)
    ]


def hold(core: Core, sent: Sequence[Sending], *also: Request) -> Operation[bool]:
    """Gives staged segments a long time to live; False if one is gone in a shard.

    also: Requests that are sent with it.
    """
    requests = [scripts.hold_external([key], HOLD_TTL) for key, _ in places(core, sent)]
    replies = (yield [*requests, *also]) if requests or also else []
    return all(reply == 1 for reply in replies[: len(requests)])


def release(core: Core, sent: Sequence[Sending]) -> Operation[None]:
    """Gives held segments that nobody sends the time to live of staged ones again."""
    requests = [command("EXPIRE", key, core.config.stamp_ttl, "LT") for key, _ in places(core, sent)]
    if requests:
        yield requests


def end(core: Core, sent: Sequence[Sending]) -> Operation[None]:
    """Shortens the life of notes that segments were announced, when their commit is done.

    Until then a run of the commit may announce them again, however late. From then on the notes only tell
    subscriptions that join later which segments are not for them, as long as their stamps are not too old.
    """
    ttl, name = core.config.stamp_ttl + MARGIN, core.config.name
    requests = [
        command("EXPIRE", keys.Stream(name, one.stream).announced(segment.id), ttl, "LT")
        for one in sent
        for segment, _ in one.segments
    ]
    if requests:
        yield requests


def hold_requests(sent: Sequence[bytes], *, together: bool) -> list[Request]:
    """Requests that give staged segments a long time to live; together: on one server, many in a call."""
    size = _KEYS if together else 1
    return [scripts.hold_external(sent[at : at + size], HOLD_TTL) for at in range(0, len(sent), size)]


def announce(core: Core, sent: Sequence[Sending], progress: CommitProgress) -> Operation[list[VectorKey]]:
    """Announces segments; returns what is to be emitted.

    A stream that the store has lost, or whose key has gone, takes no segments: nothing that the commit has
    read is acked then. Raises StreamFull.
    """
    parts = list(_parts(sent))
    if not parts:
        return []
    replies = yield [_request(core, sending, part) for sending, part in parts]
    emitted = list[VectorKey]()
    for (sending, part), reply in zip(parts, replies, strict=True):
        if isinstance(reply, redis.ResponseError):
            _check_room(sending.stream, str(reply))
            _log.error(
                "%s: the store has lost stream %r or a subscription of it, or its key was rotated twice: "
                "nothing is acked of what the commit of its rows has read",
                core.config.name, sending.stream,
            )  # fmt: skip
            progress.needed.update(dict.fromkeys(range(core.config.ackers), LOST))
            continue
        for (segment, _), slots in zip(part, reply[1:], strict=True):
            present = set(map(int, filter(None, slots.decode().split(","))))
            for slot in segment.slots:
                vector_keys = vectors.keys_of(core, segment, slot)
                if slot in present:
                    emitted += vector_keys
                else:
                    progress.needed.subtract(Counter(shard for _, shard in vector_keys))
    return emitted


def announce_all(core: Core, sent: Sequence[Sending]) -> tuple[list[Request], Callable[[list[Reply]], None]]:
    """The requests that announce segments in a chain, and a check of their replies.

    The check raises NeedsLook unless each segment is for all slots that it was staged for.
    """
    parts = list(_parts(sent))

    def check(replies: list[Reply]) -> None:
        if len(replies) < len(parts):
            raise NeedsLook
        for (_, part), reply in zip(parts, replies, strict=True):
            slots = ",".join(map(str, part[0][0].slots)).encode()
            if isinstance(reply, redis.ResponseError) or any(one != slots for one in reply[1:]):
                raise NeedsLook

    return [_request(core, sending, part) for sending, part in parts], check


def _parts(sent: Sequence[Sending]) -> Iterator[tuple[Sending, list[tuple[Segment, int]]]]:
    """Segments that one call announces: of a stream and a key, staged for the same slots."""
    for sending in sent:
        ordered = sorted(sending.segments, key=lambda member: member[0].slots)
        for _, group in groupby(ordered, key=lambda member: member[0].slots):
            members = list(group)
            for at in range(0, len(members), _TOGETHER):
                yield sending, members[at : at + _TOGETHER]


def _request(core: Core, sending: Sending, part: Sequence[tuple[Segment, int]]) -> Request:
    slots = ",".join(map(str, part[0][0].slots))
    return scripts.announce(
        core.config, keys.Stream(core.config.name, sending.stream),
        [announced_of(segment, begun) for segment, begun in part],
        number=sending.number, key=sending.key, ttl=HOLD_TTL, margin=MARGIN, most=MOST_SEGMENTS,
        most_bytes=MOST_BYTES, known_slots=slots, among=slots,
    )  # fmt: skip


def _check_room(stream: str, error: str) -> None:
    if error.startswith(("ACKER FULL", "ACKER HEAVY")):
        raise StreamFull(
            f"stream {stream!r} has open segments, or bytes of them, of {error.split()[2]}, its most: the "
            "batch goes on where it was, when it runs again and its consumers have gone on"
        )
