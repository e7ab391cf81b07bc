"""A tree that failed or expired, and how a shard keeps it (lua/ledger/includes/recent.lua).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from acker.ledger import ids
from acker.ledger.fields import HIDDEN, SPREAD, Examples, Id, Instant, MessageId, Name, Seconds, Whole
from acker.ledger.outcomes.outcomes import split_reasons
from acker.ledger.settings.config import check_name, spout_of
from acker.ledger.slabs import slabs
from acker.ledger.slabs.causes import Cause
from acker.store.operation import Reply
from acker.store.records import passing_over
from acker.store.replies import pairs

Ended: TypeAlias = Literal["failed", "expired"]

_LATEST = 253_402_300_799_000  # the end of the year 9999, in ms: the limit of dates
_SLAB = struct.Struct("<8sIHH")
_NAMES = struct.Struct("<HI")


@dataclass(frozen=True, slots=True)
class TreeOutcome:
    """The end of a tree."""

    status: Literal["acked", "failed", "expired"]
    cause: Annotated[Cause, SPREAD]
    at: Annotated[Instant | None, "When it ended; null where that is not kept."]
    age: Annotated[Seconds | None, "Seconds from its track to its end; null where that is not kept."]


ACKED = TreeOutcome("acked", Cause(), None, None)


@dataclass(frozen=True, slots=True)
class Failure:
    """A tree that failed or expired.

    number, offset: its entry in its shard, and its place there. message_id: None where it is not kept.
    """

    shard: Whole
    number: Annotated[int, HIDDEN]
    offset: Annotated[int, HIDDEN]
    status: Ended
    cause: Annotated[Cause, SPREAD]
    at: Instant
    age: Annotated[Seconds, "Seconds from its track to its end."]
    anchor: Id
    spout: Name | None
    message_id: MessageId

    @property
    def id(self) -> Annotated[str, Examples("2-1041-0"), "Names it among the outcomes of its topology."]:
        """The name of the failure in its topology."""
        return f"{self.shard}-{self.number}-{self.offset}"

    @property
    def outcome(self) -> TreeOutcome:
        """The outcome of the tree."""
        return TreeOutcome(self.status, self.cause, self.at, self.age)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry: trees that ended together, of one status and spout.

    why: the cause of each, by its number in `causes`; empty where all have the first.
    """

    shard: int
    number: int
    status: Ended
    causes: tuple[Cause, ...]
    at: int
    spout: str | None
    packed: bytes
    why: tuple[int, ...] = ()

    def trees(self, message_id: bytes | None = None) -> list[Failure]:
        """The trees of the entry, or only trees with a message id; none where they cannot be read."""
        if message_id is not None:  # few entries have it: the others need not be taken apart
            found = self.trees() if message_id in self.packed else []
            return [tree for tree in found if tree.message_id == message_id]
        with passing_over(f"shard {self.shard}", f"failure {self.number}"):
            return list(self._trees())
        return []

    def count(self) -> int:
        """The number of trees of the stored failure."""
        with passing_over(f"shard {self.shard}", f"failure {self.number}"):
            return sum(len(indexes) for _, _, indexes, *_ in self._slabs())
        return 0

    def steps(self) -> Counter[str]:
        """The number of its failed trees by step."""
        if not self.why:
            return Counter({self.causes[0].step: self.count()})
        return Counter(self.causes[number].step for number in self.why)

    def _trees(self) -> Iterator[Failure]:
        offset = 0
        for slab, ms, indexes, named, packed in self._slabs():
            names = _names(packed, named)
            for place, index in enumerate(indexes):
                name = None if not names else names[index if len(names) > len(indexes) else place]
                anchor = ids.anchor_at(slab, index)
                cause = self.causes[self.why[offset] if self.why else 0]
                yield Failure(
                    self.shard, self.number, offset, self.status, cause, self.at / 1000, ms / 1000,
                    anchor, self.spout, name,
                )  # fmt: skip
                offset += 1

    def _slabs(self) -> Iterator[tuple[bytes, int, Sequence[int], int, bytes]]:
        """Yields for each slab its name, ms from track to end, indexes, and its message ids.

        Before the ids comes their number: of these trees, or of the whole slab; 0 if none are kept.
        """
        at, packed = 0, self.packed
        while at < len(packed):
            slab, ms, count, n = _SLAB.unpack_from(packed, at)
            at += _SLAB.size
            indexes = struct.unpack_from(f"<{n}H", packed, at) if n else range(count)
            at += 2 * n
            named, size = _NAMES.unpack_from(packed, at)
            at += _NAMES.size + size
            yield slab, ms, indexes, named if named in (count, len(indexes)) else 0, packed[at - size : at]


def _names(packed: bytes, count: int) -> list[bytes]:
    """Message ids; none where they cannot be read."""
    with passing_over("a failure", "message ids"):
        return slabs.unpack_message_ids(packed, count)
    return []


def parse(shard: int, reply: Reply) -> Entry:
    """Parses an entry; an unreadable one has no trees, and the latest possible time."""
    entry_id, fields = reply
    number = int(entry_id.split(b"-")[0])
    with passing_over(f"shard {shard}", f"failure {number}"):
        values = pairs(fields)
        status = values[b"status"].decode()
        if status not in ("failed", "expired"):
            raise ValueError(status)
        return Entry(
            shard,
            number,
            status,  # type: ignore[arg-type]
            tuple(Cause.decode(said) for said in split_reasons(values[b"reasons"])),
            min(_LATEST, max(0, int(values[b"at"]))),
            spout_of(check_name(values[b"spout"].decode(), "spout")),
            values[b"trees"],
            tuple(number for (number,) in struct.iter_unpack("<H", values[b"why"])),
        )
    return Entry(shard, number, "failed", (Cause(),), _LATEST, None, b"")
