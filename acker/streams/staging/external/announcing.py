"""Announcing segments: their streams learn of them, and the sender of the subscriptions that they are for.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

import time
from collections.abc import Mapping

import redis

from acker.errors import StoreError, StreamFull
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request
from acker.streams.staging.external import scripts, subscribed
from acker.streams.staging.external.contents import Out
from acker.streams.staging.external.declaring import MARGIN, MOST_BYTES, MOST_SEGMENTS, expired, lost
from acker.streams.staging.external.segments import Sent

_TOGETHER, _KNOWN = 500, 512
_NAMED = 60.0
"""Seconds after which the names of subscriptions are read again."""


class Announcements:
    """The announcements of a commit. Each is one call for up to 500 segments of a stream and a key."""

    def __init__(self, core: Core, out: Mapping[str, Out]) -> None:
        self.core, self.out = core, out
        self.parts = [
            (stream, number, segments[first : first + _TOGETHER])
            for stream, one in out.items()
            for number, segments in _by_key(one).items()
            for first in range(0, len(segments), _TOGETHER)
        ]

    def requests(self) -> list[Request]:
        """The calls."""
        return [self._request(*part) for part in self.parts]

    def _request(self, stream: str, number: int, part: list[Sent]) -> Request:
        config, external = self.core.config, self.out[stream].external
        announced = [one.announced(sorted(one.shards(config.ackers))) for one in part]
        return scripts.announce(
            config, keys.Stream(config.name, stream), announced,
            number=number, key=external.stamp_keys[number].hex(), ttl=config.stamp_ttl, margin=MARGIN,
            most=MOST_SEGMENTS, most_bytes=MOST_BYTES,
            known_slots=",".join(map(str, sorted(external.seen)[:_KNOWN])),
        )  # fmt: skip

    def take(self, replies: list[Reply]) -> Operation[int]:
        """Gives each segment the subscriptions that it is for; returns the server's time (ms), or 0.

        Raises:
            StreamLost: A stream has another key than its stamps, or has lost subscriptions.
            StampsExpired: A segment is too old.
            StreamFull: A stream has too many open segments.
        """
        now = 0
        for (stream, _, part), reply in zip(self.parts, replies, strict=True):
            external = self.out[stream].external
            if subscribed.is_forgotten(reply):
                yield from subscribed.restore(self.core, stream, external.seen)
                raise lost(stream)
            _check(self.core, stream, len(self.out[stream].segments), reply)
            now = max(now, int(reply[0]))
            for sent, slots in zip(part, reply[1:], strict=True):
                sent.slots = tuple(map(int, filter(None, slots.decode().split(","))))
            present = {slot for sent in part for slot in sent.slots or ()}
            new = present - external.seen.keys()
            external.seen.update((yield from subscribed.names(self.core, stream, new)))
            # The store forgets at last that some were dropped, and others are renamed.
            if external.seen.keys() - present or time.monotonic() - external.named[0] > _NAMED:
                yield from subscribed.refresh(self.core, stream, external.seen)
                external.named[0] = time.monotonic()
        return now


def _by_key(out: Out) -> dict[int, list[Sent]]:
    """The segments by the number of their stamps' key: a rotation looks at it as long as they are open."""
    by_key = dict[int, list[Sent]]()
    for sent in out.segments:
        by_key.setdefault(out.external.number if sent.key is None else sent.key, []).append(sent)
    return by_key


def _check(core: Core, stream: str, segments: int, reply: Reply) -> None:
    if not isinstance(reply, redis.ResponseError):
        return
    text = str(reply).removeprefix("ACKER ")
    if text == "LOST":
        raise lost(stream)
    if text == "LATE":
        raise expired(core, stream)
    if text.startswith("FULL"):
        raise StreamFull(
            f"stream {stream!r} has {int(text.split()[1]):,} open segments, and a flush with {segments:,} "
            "would bring it over its most_segments: a part of the flush may have taken effect. Flush again "
            "when its consumers have gone on: it goes on then. If the flush alone has more, raise "
            "most_segments"
        )
    if text.startswith("HEAVY"):
        raise StreamFull(
            f"stream {stream!r} has open segments with {int(text.split()[1]):,} bytes of vectors, and a "
            "flush would bring it over its most_bytes: a part of the flush may have taken effect. Flush "
            "again when its consumers have gone on: it goes on then. If the flush alone has more, raise "
            "most_bytes"
        )
    raise StoreError(text)
