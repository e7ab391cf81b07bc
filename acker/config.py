"""A topology's configuration, and the rules for names and values."""

import re
from dataclasses import dataclass

from acker.errors import ValidationError
from acker.ids import SLAB_TREES

SCHEMA_VERSION = 2
MESSAGE_ID_BYTES = 1024
REASON_BYTES = 1024
MAX_ACKERS = 1024
MAX_SPOUTS = 64
OUTCOMES_KEPT = 10_000
"""How many of its latest outcomes a shard keeps for people, by default."""
STREAM_MAX_AGE = 7 * 86400.0
"""Seconds that a stream keeps a segment at most, by default: as long as a message timeout can be."""
STREAM_MAX_BYTES = 16 << 30
"""Bytes of payload that a stream holds at most, by default."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


def check_name(name: object, what: str) -> str:
    """`name`, if it is 1 to 64 of A-Z a-z 0-9 . _ -; else ValidationError."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValidationError(f"{what}: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {name!r}")
    return name


def check_message_id(message_id: object) -> bytes:
    """A message id as bytes (a str is UTF-8), if it is at most 1 KiB; else ValidationError."""
    if isinstance(message_id, str):
        message_id = message_id.encode()
    if not isinstance(message_id, bytes):
        raise ValidationError(f"message id: expected bytes or str, got {message_id!r}")
    if len(message_id) > MESSAGE_ID_BYTES:
        raise ValidationError(
            f"message id: expected at most {MESSAGE_ID_BYTES} bytes, got {len(message_id)}: "
            f"{message_id[:32]!r}..."
        )
    return message_id


def check_reason(reason: object) -> bytes:
    """A reason as UTF-8 bytes, if it is a str of at most 1 KiB; else ValidationError."""
    if not isinstance(reason, str):
        raise ValidationError(f"reason: expected str, got {reason!r}")
    encoded = reason.encode("utf-8", "replace")
    if len(encoded) > REASON_BYTES:
        raise ValidationError(f"reason: expected at most {REASON_BYTES} bytes of UTF-8, got {len(encoded)}")
    return encoded


def bounded_reason(reason: str) -> str:
    """A reason cut to 1 KiB of UTF-8: for texts that are not the caller's own, as those of exceptions."""
    encoded = reason.encode("utf-8", "replace")
    if len(encoded) <= REASON_BYTES:
        return encoded.decode()
    return encoded[: REASON_BYTES - 3].decode("utf-8", "ignore") + "..."


def parse_flag(text: str) -> bool:
    """true or false"""  # noqa: D403, D415 - what is expected, for messages
    known = {"true": True, "false": False}
    if text.lower() not in known:
        raise ValueError(f"expected true or false, got {text!r}")
    return known[text.lower()]


def check_number(value: object, what: str, low: float, high: float, kind: type[int] | type[float]) -> None:
    """Raises ValidationError unless `value` is a number of that kind, from `low` to `high`."""
    numeric = isinstance(value, int) if kind is int else isinstance(value, (int, float))
    if not numeric or isinstance(value, bool) or not low <= value <= high:  # type: ignore[operator]
        raise ValidationError(f"{what}: expected {kind.__name__} from {low:,} to {high:,}, got {value!r}")


@dataclass(frozen=True, slots=True)
class TopologyConfig:
    """The configuration of a topology, the same for everyone who opens it.

    ackers: shards of the ledger, 0 to 1,024; 0 turns tracking off (Storm's topology.acker.executors).
    message_timeout: seconds, 1 to 7 days, to the millisecond (Storm's topology.message.timeout.secs).
    high_water_mark: most trees that are in flight or have an outcome not yet confirmed, 1 to 10^9. Each
        shard holds an equal share, so it is never exceeded.
    slab_limit: most trees in a slab that acker makes by itself, 1 to 4,096.
    outcomes_kept: how many of its latest failed or expired trees each shard keeps for people to look at,
        confirmed or not, 1 to 100,000: so those of the topology are among them wherever they fell. What
        ended with the oldest of them, up to a slab, is kept too.
    wait_replicas: how many replicas of its shard's server have a track before it is told to be tracked, 0 to
        16 (WAIT). wait_fsync: 1 where that server has it in its append-only file on the disk by then
        (WAITAOF, which takes Valkey or Redis 7.2), else 0. docs/durability.md tells what they are good for.
    Raises ValidationError that names the value and what was expected.
    """

    name: str
    ackers: int = 4
    message_timeout: float = 30.0
    high_water_mark: int = 20_000_000
    slab_limit: int = 1024
    outcomes_kept: int = OUTCOMES_KEPT
    wait_replicas: int = 0
    wait_fsync: int = 0
    schema: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        check_name(self.name, "topology")
        check_number(self.ackers, "ackers", 0, MAX_ACKERS, int)
        check_number(self.message_timeout, "message_timeout", 1.0, 7 * 86400.0, float)
        check_number(self.high_water_mark, "high_water_mark", max(1, self.ackers), 10**9, int)
        check_number(self.slab_limit, "slab_limit", 1, SLAB_TREES, int)
        check_number(self.outcomes_kept, "outcomes_kept", 1, 100_000, int)
        check_number(self.wait_replicas, "wait_replicas", 0, 16, int)
        check_number(self.wait_fsync, "wait_fsync", 0, 1, int)

    @property
    def timeout_ms(self) -> int:
        """The message timeout in milliseconds."""
        return round(self.message_timeout * 1000)

    @property
    def tick_ms(self) -> int:
        """Milliseconds between two ticks: half the message timeout, so that three buckets make 1.0 to 1.5."""
        return -(-self.timeout_ms // 2)

    @property
    def shard_limit(self) -> int:
        """Most trees that one shard holds."""
        return self.high_water_mark // max(1, self.ackers)

    @property
    def slab_trees(self) -> int:
        """Most trees in a slab that acker makes: the slab limit, or less where a shard holds less."""
        return min(self.slab_limit, self.shard_limit)
