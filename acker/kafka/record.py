"""Records: messages of Kafka with their tuples, alone or as a batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, overload

from confluent_kafka import Message

from acker.collectors.tuples import Tuple, TupleVector
from acker.errors import ValidationError

Headers: TypeAlias = list[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """The row of a replayed dead letter, with the methods of confluent-kafka's Message.

    The client's own class cannot be made by others, but for tests.
    """

    row: dict[str, Any]

    def __len__(self) -> int:
        """The length of the value, as of the client's messages."""
        return len(self.row["value"] or b"")

    def topic(self) -> str:
        """The topic."""
        return str(self.row["topic"])

    def partition(self) -> int:
        """The partition."""
        return int(self.row["partition"])

    def offset(self) -> int:
        """The offset that the record had in its partition."""
        return int(self.row["offset"])

    def key(self) -> bytes | None:
        """The key."""
        return self.row["key"]  # type: ignore[no-any-return]

    def value(self) -> bytes | None:
        """The value."""
        return self.row["value"]  # type: ignore[no-any-return]

    def headers(self) -> Headers | None:
        """The headers; None without any."""
        return [(header["key"], header["value"]) for header in self.row["headers"]] or None

    def timestamp(self) -> tuple[int, int]:
        """Kind and milliseconds, as the client tells them; the kind is not kept."""
        at = round(self.row["timestamp"].timestamp() * 1000)
        return (1 if at else 0), at

    def error(self) -> None:
        """Returns None: a record carries no error, unlike the client's message."""


class KafkaRecord(NamedTuple):
    """A message of Kafka that a KafkaSpout has emitted.

    message: as the client gives it, or of a replay. tuple: to be acked or failed, or handed on. attempt: 1
    for the first.
    """

    message: Message | KeptMessage
    tuple: Tuple
    attempt: int

    @property
    def value(self) -> bytes | None:
        """The value; None for a tombstone."""
        return self.message.value()

    @property
    def key(self) -> bytes | None:
        """The key."""
        return self.message.key()

    @property
    def headers(self) -> Headers:
        """The headers, a new list. Raises ValidationError if the client cannot read them."""
        try:
            headers = self.message.headers()
        except SystemError as error:
            raise ValidationError(
                f"record {self.message_id}: its headers cannot be read: the key of one is no UTF-8"
            ) from error
        return list(headers.items()) if isinstance(headers, dict) else list(headers or ())

    @property
    def message_id(self) -> str:
        """The message id of its tree: `topic/partition@offset`."""
        return f"{self.message.topic()}/{self.message.partition()}@{self.message.offset()}"


class KafkaBatch(Sequence[KafkaRecord]):
    """Records that a KafkaSpout has emitted together: a sequence of KafkaRecords, which are made on demand.

    Attributes:
        messages: Their messages, in order.
        tuples: Their tuples, for `Bolt.ack_many`.
        attempts: Place -> attempt, of records that are not tried for the first time.
    """

    __slots__ = ("attempts", "messages", "tuples")

    def __init__(
        self,
        messages: Sequence[Message | KeptMessage],
        tuples: TupleVector,
        attempts: dict[int, int],
    ) -> None:
        self.messages, self.tuples, self.attempts = messages, tuples, attempts

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, place: int) -> KafkaRecord: ...

    @overload
    def __getitem__(self, place: slice) -> list[KafkaRecord]: ...

    def __getitem__(self, place: int | slice) -> KafkaRecord | list[KafkaRecord]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        return KafkaRecord(self.messages[place], self.tuples[place], self.attempts.get(place, 1))

    def __iter__(self) -> Iterator[KafkaRecord]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self):,} records>"
