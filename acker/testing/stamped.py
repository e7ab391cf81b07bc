"""Stamped rows for a test, and what became of their records."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from acker.collectors.topology import Topology
from acker.streams.log import subscriptions
from acker.testing.messages import Message

if TYPE_CHECKING:
    from acker.collectors.outcome import Outcome


Value: TypeAlias = bytes | str | tuple[bytes | str, list[tuple[str, bytes]]]
"""A row for a test: its value, or a pair of its value and its headers."""
_ROW = re.compile(r" \(row '[^']*'\)$")


class Sending(Protocol):
    """The part of a `Transport` that stamped rows use."""

    def _append(self, topic: str, value: object, key: object, headers: object) -> object: ...

    def sent(self, topic: str) -> list[Message]:
        """The messages of a topic."""


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row whose record has failed.

    Attributes:
        value: The row.
        reason: The step's reason, without the name of the row, or the cause of an expiration.
    """

    value: bytes
    reason: str


class Stamped:
    """Rows that `Transport.stamped` has sent. Its properties ask the store for what became of them.

    Args:
        topology: The topology.
        stream: The external stream.
        subscription: The step's subscription.
        values: The rows.
        spout: The name of the spout of their records.
        transport: Their transport.
        topic: Their topic.
    """

    def __init__(
        self,
        topology: Topology,
        stream: str,
        subscription: str,
        values: Iterable[Value],
        spout: str,
        transport: Sending,
        topic: str,
    ) -> None:
        self._topology, self._transport = topology, transport
        rows = [value if isinstance(value, tuple) else (value, []) for value in values]
        self._values = [value.encode() if isinstance(value, str) else value for value, _ in rows]
        self._spout, out = topology.spout(spout), topology.outgoing(stream)
        ledger = topology.ledger
        ledger.run(subscriptions.subscribe(ledger.core, stream, subscription, "external"))
        self._places: dict[int, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        for place, (value, (_, headers)) in enumerate(zip(self._values, rows, strict=True)):
            [tracked] = self._spout.emit(f"{place}")
            self._places |= dict.fromkeys(tracked.anchors, place)
            transport._append(topic, value, None, tuple(out.inject(headers, tracked)))
        topology.flush()

    def __repr__(self) -> str:
        return f"<{len(self._values):,} stamped rows>"

    @property
    def acked(self) -> list[bytes]:
        """The rows whose records are done, in the order in which they were sent."""
        return [self._values[place] for place, one in self._ended() if one.status == "acked"]

    @property
    def failed(self) -> list[FailedRow]:
        """The rows whose records the step has failed, or which were not delivered, or have expired."""
        return [
            FailedRow(self._values[place], _ROW.sub("", one.reason))
            for place, one in self._ended()
            if one.status != "acked"
        ]

    @property
    def waiting(self) -> list[bytes]:
        """The rows whose records are in flight: they were lost, or the step has not worked on them."""
        ended = dict(self._ended())
        return [value for place, value in enumerate(self._values) if place not in ended]

    def sent(self, stream: str, topic: str = "") -> list[tuple[bytes, list[bytes]]]:
        """The rows that a step has sent, each with the rows that it was made of: a lost anchor shows here.

        Args:
            stream: The external stream that the step sends to.
            topic: Its topic; without it, the stream's name.
        """
        from acker.streams.staging.external.rows import carriers
        from acker.streams.staging.external.rows.stamps import Stamp

        seal, sent_rows = self._topology.outgoing(stream)._seal, list[tuple[bytes, list[bytes]]]()
        for message in self._transport.sent(topic or stream):
            stamp = seal.read(carriers.find(message.headers())) if seal is not None else None
            anchors = stamp.anchors if isinstance(stamp, Stamp) else ()
            places = sorted({self._places[anchor] for anchor in anchors if anchor in self._places})
            sent_rows.append((message.value() or b"", [self._values[place] for place in places]))
        return sent_rows

    def _ended(self) -> "list[tuple[int, Outcome]]":
        """The outcomes that are there by now, by place."""
        for outcome in self._spout.outcomes():
            self._outcomes[int(outcome.message_id)] = outcome
            self._spout.confirm(outcome)
        return sorted(self._outcomes.items())
