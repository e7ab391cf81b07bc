"""The contents of a commit of external rows: what one flush sends, and what it has received.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together; a slot is the random number of a subscription.
"""

import secrets
from collections import Counter
from dataclasses import dataclass, field

from acker.ledger.calls.core import Core
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.segments import Sent, Worked, unsent_of


@dataclass(slots=True)
class Out:
    """The segments that a commit sends to a stream."""

    external: External
    segments: list[Sent]


@dataclass(slots=True)
class In:
    """The rows that a commit has received from a stream for a subscription.

    Attributes:
        worked: By token and shard, the rows that were worked on.
        newest: The time at which the newest of their segments was begun, in Unix seconds.
        counted: Facts that the rows carried, counted by name.
        usual: Further rows, which carried nothing else.
    """

    external: External
    worked: dict[tuple[str, int], Worked] = field(default_factory=dict)
    newest: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    usual: int = 0


@dataclass(slots=True)
class ExternalCommit:
    """The work of one flush. It no longer changes after it was first sent.

    Attributes:
        name: Random, 32 hexadecimal digits.
        out: By stream.
        received: By stream and slot.
        taken: Trees, and the XOR of the ids of their tuples that were taken over.
        taken_at: The time at which the first of these was taken over, in Unix seconds of the store.
        unsent: By token, slot and shard, rows of earlier commits that did not reach the transport.
        fails: Trees of rows whose segments are no longer known, and their causes.
    """

    name: str = field(default_factory=lambda: secrets.token_hex(16))
    out: dict[str, Out] = field(default_factory=dict)
    received: dict[tuple[str, int], In] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    taken_at: int = 0
    unsent: dict[tuple[str, int, int], Worked] = field(default_factory=dict)
    fails: list[tuple[tuple[int, ...], bytes]] = field(default_factory=list)

    def add_unsent(
        self, core: Core, sent: Sent, position: int, cause: bytes
    ) -> list[tuple[tuple[int, ...], bytes]]:
        """Adds a row that was not delivered; returns what is to be failed where its segment is for nobody."""
        if not sent.slots:
            return [(sent.anchors_of(position), cause)] if cause else []
        for shard in sent.shards(core.config.ackers):
            for slot in sent.slots:
                worked = unsent_of(core, sent, shard, {position: cause})
                kept = self.unsent.setdefault((sent.token, slot, shard), worked)
                kept.positions |= worked.positions
                kept.fails |= worked.fails
        return []
