"""Fencing: binds a reader's segments to the commit that acks them, or takes them back for other readers.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a slot is the random number
of a subscription.
"""

from collections.abc import Sequence
from typing import NamedTuple

from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import passing_over, reading
from acker.store.replies import pairs, seconds, whole
from acker.streams.log import scripts
from acker.streams.log.subscriptions import HOLD_TTL, MOST_GIVEN, Range, delivered

UNLOGGED = 60.0
"""Seconds after which a reader without a logged batch is taken for dead."""
MOST_DEATHS = 3
"""A record at which so many readers have died is not begun again."""


class Fence(NamedTuple):
    """A commit that has segments of a reader: a field of `fences` and its value.

    See lua/streams/log/bind_reader.lua.
    """

    commit: str
    value: str

    @classmethod
    def of_commit(cls, writer: str, number: int, end: int, attempt: str) -> "Fence":
        """The fence of a commit's attempt, with the number of the last segment that it acks."""
        return cls(f"{writer} {number}", f"{end} {attempt}")

    @property
    def writer(self) -> str:
        """The writer of the commit."""
        return self.commit.rpartition(" ")[0]

    @property
    def number(self) -> int:
        """The number of the commit. Raises UnreadableRecord."""
        return whole(self.commit.rpartition(" ")[2].encode(), f"number of the commit {self.commit!r:.100}")

    @property
    def attempt(self) -> str:
        """The attempt of the commit. It changes if the commit is dropped and stored again."""
        return self.value.partition(" ")[2]


def bind_requests(
    core: Core, ranges: Sequence[Range], writer: str, number: int, attempt: str
) -> list[Request]:
    """Requests that bind ranges to a commit. The reply is 0 if segments of a reader were given back."""
    requests = []
    ends: dict[bytes, int] = {}
    for read_range in ranges:
        key = keys.Stream(core.config.name, read_range.stream).fences(read_range.slot, read_range.reader)
        ends[key] = max(read_range.end, ends.get(key, 0))
    for read_range in ranges:
        key = keys.Stream(core.config.name, read_range.stream).fences(read_range.slot, read_range.reader)
        what = Fence.of_commit(writer, number, ends[key], attempt)
        requests.append(
            scripts.bind_reader(core.config, key, what.commit, what.value, HOLD_TTL, read_range.start)
        )
    return requests


def keys_of(core: Core, ranges: Sequence[Range], writer: str, number: int) -> tuple[list[bytes], str]:
    """The keys with the fences of ranges' readers, and the field of a commit in them."""
    name, field = core.config.name, Fence.of_commit(writer, number, 0, "").commit
    return [keys.Stream(name, one.stream).fences(one.slot, one.reader) for one in ranges], field


def take_back(
    core: Core,
    stream: str,
    slot: int,
    reader: str,
    *,
    unlogged: bool = False,
    ended: Sequence[Fence] = (),
    died: str = "",
) -> Operation[tuple[int, list[Fence]]]:
    """Takes the segments back that a reader did not ack and that are in no commit.

    Args:
        core: The ledger.
        stream: The stream.
        slot: The slot of the subscription.
        reader: The reader.
        unlogged: True to take nothing if Spark has logged a batch of the reader meanwhile.
        ended: Fences of commits that no longer have segments.
        died: The record at which the reader died, in the form of lua/streams/log/return_segments.lua; "-" if
            it is unknown, "" if the reader has not died.

    Returns:
        The number of segments that were taken back, and the fences of commits that have segments.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    back, start, more, bound, most = 0, 0, True, list[Fence](), str(MOST_DEATHS) if died else ""
    while more:
        segments = yield from delivered(core, Range(stream, slot, reader, start, 2**53))
        [(number, *left)] = yield [
            scripts.return_segments(
                core.config, stream_keys, slot, reader, unlogged, HOLD_TTL, most, died, ended, segments
            )
        ]
        back += int(number)
        texts = [text.decode("utf-8", "replace") for text in left]
        bound += [Fence(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]
        more = len(segments) == MOST_GIVEN
        start = segments[-1].number if segments else start
    yield [command("UNLINK", stream_keys.holder(slot, reader))]
    return back, list(dict.fromkeys(bound))


def readers(core: Core, stream: str, slot: int) -> Operation[dict[str, tuple[bool, float]]]:
    """The readers of a subscription, with True if a batch was logged, and seconds since the last claim.

    A reader whose record cannot be read is passed over and logged: it keeps its segments.
    """
    key = keys.Stream(core.config.name, stream).readers(slot)
    [stored, instant] = yield [command("HGETALL", key), Request(key, ["TIME"])]
    now = seconds(instant)
    last_claims = {}
    for name, text in pairs(stored).items():
        where = f"stream {stream}, reader {name!r:.100}"
        with passing_over(where), reading(repr(text)):
            logged, seen = text.split(b" ")
            if logged not in (b"0", b"1"):
                raise ValueError("expected 0 or 1 first")
            last_claims[name.decode()] = (
                logged == b"1",
                max(0.0, now - whole(seen, "when it was seen") / 1000),
            )
    return last_claims


def recover(core: Core, stream: str, slot: int) -> Operation[int]:
    """Takes segments back from dead readers without a logged batch; returns their number.

    The driver of such a reader died after it had taken its first segments, and before it noted that: it will
    not ask for them again. A reader that was silent until all its data has expired is forgotten.
    """
    back = 0
    known = yield from readers(core, stream, slot)
    for name, (logged, silent) in known.items():
        if silent > (HOLD_TTL if logged else UNLOGGED):
            found, _ = yield from take_back(core, stream, slot, name, unlogged=not logged)
            back += found
    return back
