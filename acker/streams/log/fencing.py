"""What a reader took is bound to the commit that acks it, or taken back for others of its subscription."""

from collections.abc import Sequence
from typing import NamedTuple

from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import passing_over, reading
from acker.store.replies import pairs, seconds, whole
from acker.streams.log import scripts
from acker.streams.log.subscriptions import HOLD_TTL, MOST_GIVEN, Range, taken

UNLOGGED = 60.0
"""Seconds after which a reader whose first batch was never logged is taken for dead."""
MOST_DEATHS = 3
"""Readers that die at one record until that is not begun again."""


class Bound(NamedTuple):
    """A commit that has segments of a reader: a field of `bound` and its value.

    See lua/streams/log/bind_reader.lua.
    """

    commit: str
    place: str

    @classmethod
    def to(cls, writer: str, number: int, end: int, attempt: str) -> "Bound":
        """That of a commit's attempt, with the number of the last segment that it acks."""
        return cls(f"{writer} {number}", f"{end} {attempt}")

    @property
    def writer(self) -> str:
        """Whose commit it is."""
        return self.commit.rpartition(" ")[0]

    @property
    def number(self) -> int:
        """Its number. Raises UnreadableRecord."""
        return whole(self.commit.rpartition(" ")[2].encode(), f"number of the commit {self.commit!r:.100}")

    @property
    def attempt(self) -> str:
        """What tells it from another that is stored under the same number, after it was dropped."""
        return self.place.partition(" ")[2]


def binding(core: Core, ranges: Sequence[Range], writer: str, number: int, attempt: str) -> list[Request]:
    """Requests that bind ranges to a commit; answered 0 where segments of a reader were given back."""
    made = []
    ends: dict[bytes, int] = {}
    for one in ranges:
        key = keys.Stream(core.config.name, one.stream).bound(one.slot, one.reader)
        ends[key] = max(one.end, ends.get(key, 0))
    for one in ranges:
        key = keys.Stream(core.config.name, one.stream).bound(one.slot, one.reader)
        what = Bound.to(writer, number, ends[key], attempt)
        made.append(scripts.bind_reader(core.config, key, what.commit, what.place, HOLD_TTL, one.start))
    return made


def bound_to(core: Core, ranges: Sequence[Range], writer: str, number: int) -> tuple[list[bytes], str]:
    """The keys of what readers of ranges are bound to, and the field of a commit there."""
    name, field = core.config.name, Bound.to(writer, number, 0, "").commit
    return [keys.Stream(name, one.stream).bound(one.slot, one.reader) for one in ranges], field


def take_back(
    core: Core,
    stream: str,
    slot: int,
    reader: str,
    *,
    unlogged: bool = False,
    ended: Sequence[Bound] = (),
    died: str = "",
) -> Operation[tuple[int, list[Bound]]]:
    """Takes from a reader what it did not ack and no commit has; returns how many segments, and the commits.

    unlogged: not where Spark has logged a batch of it meanwhile. ended: commits that have nothing any more.
    died: what the reader was at when it died, as lua/streams/log/return_segments.lua takes it; "-": nobody
    knows; "": it has not died.
    """
    own = keys.Stream(core.config.name, stream)
    back, start, more, bound, most = 0, 0, True, list[Bound](), str(MOST_DEATHS) if died else ""
    while more:
        found = yield from taken(core, Range(stream, slot, reader, start, 2**53))
        [(number, *left)] = yield [
            scripts.return_segments(
                core.config, own, slot, reader, unlogged, HOLD_TTL, most, died, ended, found
            )
        ]
        back += int(number)
        texts = [text.decode("utf-8", "replace") for text in left]
        bound += [Bound(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]
        more = len(found) == MOST_GIVEN
        start = found[-1].number if found else start
    yield [command("UNLINK", own.holder(slot, reader))]
    return back, list(dict.fromkeys(bound))


def readers(core: Core, stream: str, slot: int) -> Operation[dict[str, tuple[bool, float]]]:
    """The readers of a subscription -> whether a batch of theirs was logged, and seconds since they asked.

    A reader whose record cannot be read is passed over and logged: it keeps what it has taken.
    """
    key = keys.Stream(core.config.name, stream).readers(slot)
    [found, instant] = yield [command("HGETALL", key), Request(key, ["TIME"])]
    now = seconds(instant)
    known = {}
    for name, text in pairs(found).items():
        where = f"stream {stream}, reader {name!r:.100}"
        with passing_over(where), reading(repr(text)):
            logged, seen = text.split(b" ")
            if logged not in (b"0", b"1"):
                raise ValueError("expected 0 or 1 first")
            known[name.decode()] = (logged == b"1", max(0.0, now - whole(seen, "when it was seen") / 1000))
    return known


def recover(core: Core, stream: str, slot: int) -> Operation[int]:
    """Takes back what dead readers hold that Spark never logged a batch of; returns how many segments.

    Such a reader's driver died between taking its first segments and noting so: nobody will ask for them.
    Readers that were silent for so long that nothing of theirs is kept are forgotten.
    """
    back = 0
    known = yield from readers(core, stream, slot)
    for name, (logged, silent) in known.items():
        if silent > (HOLD_TTL if logged else UNLOGGED):
            found, _ = yield from take_back(core, stream, slot, name, unlogged=not logged)
            back += found
    return back
