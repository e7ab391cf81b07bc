"""Drops: segments that streams dropped before they were acked: their trees expire, or were failed.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Instant, Name
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import pairs, seconds
from acker.streams.upkeep import scripts

MOST_DROPS = scripts.MOST_DROPS
"""Of each stream: the latest ones."""
_STREAMS = 64


@dataclass(frozen=True, slots=True)
class Drop:
    """Segments that a stream has dropped at once."""

    stream: Name
    at: Instant
    segments: Count
    rows: Annotated[Count, "Of these segments, acked or not."]
    why: Annotated[str, "Over which limit they were, or which subscription was dropped."]

    def text(self) -> Annotated[str, "The drop, for people."]:
        """The drop, for people."""
        at = datetime.fromtimestamp(self.at, UTC).strftime("%H:%M:%S UTC")
        what = f"{self.segments:,} segment{'s' * (self.segments != 1)} ({self.rows:,} rows)"
        return f"stream {self.stream} dropped {what} at {at}: {self.why}"


def drops(core: Core, streams: Iterable[str] | None = None, most: int = MOST_DROPS) -> Operation[list[Drop]]:
    """The latest drops of streams, or of all: 1,000 at most, and `most` of each stream; the latest first."""
    names = list(streams) if streams is not None else None
    if names is None:
        [stored] = yield [command("SMEMBERS", keys.streams(core.config.name))]
        names = sorted(name.decode("utf-8", "replace") for name in stored)
    dropped: list[Drop] = []
    for first in range(0, len(names), _STREAMS):
        part = names[first : first + _STREAMS]
        own = [keys.Stream(core.config.name, name).drops for name in part]
        replies = yield [command("XREVRANGE", key, "+", "-", "COUNT", most) for key in own]
        for name, entries in zip(part, replies, strict=True):
            dropped += [one for entry, values in entries if (one := _parse(name, entry, values)) is not None]
        dropped = sorted(dropped, key=lambda one: (-one.at, one.stream))[:MOST_DROPS]
    return dropped


def since(core: Core, streams: Iterable[str], age: float | None) -> Operation[Drop | None]:
    """The latest drop of some streams within so many seconds, if there is one."""
    found = yield from drops(core, streams, 1)
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    return found[0] if found and age is not None and found[0].at >= seconds(instant) - age else None


def _parse(stream: str, entry: bytes, values: Sequence[bytes]) -> Drop | None:
    """An entry; None where it cannot be read."""
    fields = pairs(values)
    segments, rows = fields.get(b"segments", b""), fields.get(b"rows", b"")
    if not (segments.isdigit() and rows.isdigit()):
        return None
    at = int(entry.partition(b"-")[0]) / 1000
    return Drop(stream, at, int(segments), int(rows), fields.get(b"why", b"").decode("utf-8", "replace"))
