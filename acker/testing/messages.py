"""Messages of a transport in memory, as clients of Kafka give them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Pairs = list[tuple[str, Any]]


class Partition(NamedTuple):
    """A partition of a topic; a transport in memory has one of each."""

    topic: str
    partition: int = 0


@dataclass(slots=True)
class TopicPartition:
    """A partition of a topic and an offset, as confluent-kafka has it."""

    topic: str
    partition: int = 0
    offset: int = -1001


@dataclass(frozen=True, slots=True)
class Record:
    """A message with attributes, as aiokafka has it."""

    topic: str
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, Any]]
    partition: int = 0


class Fault:
    """An error of a consumer, as confluent-kafka has it: a broker that is away for a moment."""

    def __str__(self) -> str:
        return "a broker is away"

    def name(self) -> str:
        """The name of the error."""
        return "_TRANSPORT"

    def code(self) -> int:
        """The number of the error."""
        return -195

    def fatal(self) -> bool:
        """False: the consumer goes on."""
        return False

    def retriable(self) -> bool:
        """False: the error does not ask for another attempt."""
        return False


class Message:
    """A message with methods, as confluent-kafka has it."""

    __slots__ = ("_fault", "record")

    def __init__(self, record: Record, fault: Fault | None = None) -> None:
        self.record, self._fault = record, fault

    def __repr__(self) -> str:
        return f"<message {self.record.topic}@{self.record.offset}: {self.record.value!r}>"

    def topic(self) -> str:
        """The topic of the message."""
        return self.record.topic

    def partition(self) -> int:
        """The partition of the message: 0."""
        return self.record.partition

    def offset(self) -> int:
        """The offset of the message, from 0: its place among the messages that its group was given."""
        return self.record.offset

    def value(self) -> bytes | None:
        """The value of the message."""
        return self.record.value

    def key(self) -> bytes | None:
        """The key of the message."""
        return self.record.key

    def headers(self) -> Pairs | None:
        """The headers of the message; None where it has none."""
        return list(self.record.headers) or None

    def error(self) -> Fault | None:
        """The error that came in place of a row, whose text is the value then; otherwise None."""
        return self._fault


def pairs_of(headers: Any) -> tuple[tuple[str, Any], ...]:
    """Headers as pairs."""
    return tuple(headers.items() if isinstance(headers, dict) else headers or ())
