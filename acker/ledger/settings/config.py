"""A topology's configuration, and the rules for names and values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict, cast

from acker.errors import ValidationError, shown
from acker.ledger.ids import SLAB_TREES
from acker.ledger.settings.settings import choice, number, of
from acker.ledger.settings.suggestions import meant
from acker.store.records import NAME

SCHEMA_VERSION = 6
MESSAGE_ID_BYTES = 1024
REASON_BYTES = 1024
MAX_SPOUTS = 64
DEAD_LETTERS = 100_000
"""Dead letters of a spout from which on outcomes wait until some are replayed or discarded."""
WAY_OUT = (
    "replay or discard some. `acker dead-letters {0} --groups` shows them by reason, "
    "`acker replay {0} --cause ...` and `acker discard {0} --cause ... --yes` take those of one"
)
"""What to do where a spout has its most dead letters; to be filled in with the topology."""
STREAM_MAX_AGE = 7 * 86400.0
"""Seconds that a stream keeps a segment at most, by default: as long as a message timeout can be."""
STREAM_MAX_BYTES = 16 << 30
"""Bytes of payload that a stream holds at most, by default."""

_NAMED = re.compile(NAME)


def is_name(name: object) -> bool:
    """Whether something is a name: 1 to 64 of A-Z a-z 0-9 . _ -, and not "." or ".."."""
    return isinstance(name, str) and _NAMED.match(name) is not None


def check_name(name: object, what: str) -> str:
    """`name`, if it is 1 to 64 of A-Z a-z 0-9 . _ -, and not "." or ".."; else ValidationError."""
    if not isinstance(name, str) or not is_name(name):
        besides = ", and not only dots" if isinstance(name, str) and name in (".", "..") else ""
        raise ValidationError(f"{what}: expected 1 to 64 of A-Z a-z 0-9 . _ -{besides}, got {shown(name)}")
    return name


def check_text(text: str, what: str) -> bytes:
    """A text as UTF-8 bytes, which cannot hold half of a pair of surrogates; else ValidationError."""
    try:
        return str.encode(text)  # not the encoding of a class of its own
    except UnicodeEncodeError:
        raise ValidationError(
            f"{what}: expected text of whole characters, got {shown(text)}, which UTF-8 cannot hold"
        ) from None


def check_message_id(message_id: object) -> bytes:
    """A message id as bytes (a str is UTF-8), if it is at most 1 KiB; else ValidationError."""
    if isinstance(message_id, str):
        message_id = check_text(message_id, "message id")
    if not isinstance(message_id, bytes):
        raise ValidationError(f"message id: expected bytes or str, got {shown(message_id)}")
    if bytes.__len__(message_id) > MESSAGE_ID_BYTES:
        raise ValidationError(
            f"message id: expected at most {MESSAGE_ID_BYTES} bytes, got {bytes.__len__(message_id)}: "
            f"{shown(message_id)}"
        )
    return b"".join([message_id])  # of plain bytes these, of a class of its own a copy


def check_reason(reason: object) -> bytes:
    """A reason as UTF-8 bytes, if it is a str of at most 1 KiB; else ValidationError."""
    if not isinstance(reason, str):
        raise ValidationError(f"reason: expected str, got {shown(reason)}")
    encoded = str.encode(reason, "utf-8", "replace")
    if len(encoded) > REASON_BYTES:
        raise ValidationError(f"reason: expected at most {REASON_BYTES} bytes of UTF-8, got {len(encoded)}")
    return encoded


def bounded_reason(reason: str, most: int = REASON_BYTES) -> str:
    """A reason cut to 1 KiB of UTF-8, or `most` bytes: for texts that are not the caller's own."""
    encoded = reason.encode("utf-8", "replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - 3].decode("utf-8", "ignore") + "..."


class Settings(TypedDict, total=False):
    """The settings of a topology as keyword arguments (PEP 692); `TopologyConfig` tells what each is.

    What is left out, or None, is taken as it is stored, or from the default.
    """

    ackers: int | None
    message_timeout: float | None
    high_water_mark: int | None
    slab_limit: int | None
    outcomes_kept: int | None
    waiting_bytes: int | None
    downtime: int | None
    marks: str | None
    traces: int | None
    wait_replicas: int | None
    wait_fsync: int | None


@dataclass(frozen=True, slots=True)
class TopologyConfig:
    """The configuration of a topology, the same for everyone who opens it.

    docs/store.md tells what `wait_replicas` and `wait_fsync` are good for.
    Raises ValidationError that names the value and what was expected.
    """

    name: str
    ackers: int = number(
        4, 0, 1024, "Shards of the ledger, for its life; 0 turns tracking off (Storm's "
        "topology.acker.executors)."
    )  # fmt: skip
    message_timeout: float = number(
        30.0, 1.0, 7 * 86400.0, "Seconds, to the millisecond, until a tree that is not done expires: 1.0 to "
        "1.5 times that (Storm's topology.message.timeout.secs)."
    )  # fmt: skip
    high_water_mark: int = number(
        20_000_000, 1, 10**9, "Most trees that are in flight or have an outcome not yet confirmed, at least "
        "one for each shard. Each shard holds an equal share, and rejects what is tracked beyond it."
    )  # fmt: skip
    slab_limit: int = number(1024, 1, SLAB_TREES, "Most trees in a slab that acker makes by itself.")
    outcomes_kept: int = number(
        10_000, 1, 100_000, "How many of its latest failed or expired trees each shard keeps for people "
        "to look at, confirmed or not. Trees that ended with the oldest, up to a slab, are kept, too."
    )  # fmt: skip
    waiting_bytes: int = number(
        64 << 20, 0, 1 << 40, "Most bytes of messages that wait in each shard for the track of their tree. "
        "Messages beyond that are dropped and counted as orphaned, and their trees will expire."
    )  # fmt: skip
    downtime: int = number(
        86400, 0, 28 * 86400, "Seconds for which a row waits while no job works on it: the clock of its tree "
        "stands still while no job has taken it from its stream, or the query that took it has ended. With 0 "
        "that clock never stands still."
    )  # fmt: skip
    marks: str = choice(
        ("slabs", "off"), "Whether the ledger notes which step has acked tuples of a slab, when and in which "
        "batch, and counts for each step. off: neither."
    )  # fmt: skip
    traces: int = number(
        0, 0, 10**9, "One tree in so many, chosen by its anchor, keeps what became of it, event by event, "
        "for a day; 0: none."
    )  # fmt: skip
    wait_replicas: int = number(
        0, 0, 16, "How many replicas of its server have a track, a commit, the configuration or the name of "
        "a spout before it counts as done (WAIT)."
    )  # fmt: skip
    wait_fsync: int = number(
        0, 0, 1, "1: its server has what `wait_replicas` names in its append-only file on the disk by then "
        "(WAITAOF, which takes Valkey or Redis 7.2)."
    )  # fmt: skip
    schema: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        check_name(self.name, "topology")
        for setting, can_be in SETTINGS.items():
            if setting == "high_water_mark":
                can_be = replace(can_be, low=max(can_be.low, self.ackers))  # each shard holds a tree at least
            can_be.check(getattr(self, setting), setting)

    @property
    def settings(self) -> Settings:
        """All settings, in their order."""
        return cast(Settings, {setting: getattr(self, setting) for setting in SETTINGS})

    @property
    def wait(self) -> tuple[int, int]:
        """What `acker.store.operation.Request.wait` is for calls that are safe when they are answered."""
        return self.wait_fsync, self.wait_replicas

    @property
    def timeout_ms(self) -> int:
        """The message timeout in milliseconds."""
        return round(self.message_timeout * 1000)

    @property
    def tick_ms(self) -> int:
        """Milliseconds between two ticks: half the message timeout, so that three buckets make 1.0 to 1.5."""
        return -(-self.timeout_ms // 2)

    @property
    def tick_limit(self) -> float:
        """Seconds by which a tick is late before nobody seems to tick: half a tick period, but 5 to 60."""
        return min(60.0, max(5.0, self.tick_ms / 2000))

    @property
    def shard_limit(self) -> int:
        """Most trees that one shard holds."""
        return self.high_water_mark // max(1, self.ackers)

    @property
    def slab_trees(self) -> int:
        """Most trees in a slab that acker makes: the slab limit, or less where a shard holds less."""
        return min(self.slab_limit, self.shard_limit)

    def rejection(self, letter: str) -> str:
        """Why a track is rejected, which was answered with R or W (lua/ledger/calls/track.lua)."""
        if letter == "R":
            return f"topology {self.name!r} is over its high-water mark of {self.high_water_mark:,} trees"
        return (
            f"topology {self.name!r} does not hold the message ids of the slab, which are sent ahead of it: "
            f"there was no room for them within waiting_bytes ({self.waiting_bytes:,} bytes a shard), or "
            f"they waited for a message timeout"
        )


SETTINGS = of(TopologyConfig)
"""The settings of a topology, in their order."""


def check_settings(asked: Settings) -> dict[str, int | float]:
    """The settings that are asked for, so all but None, each within its range by itself.

    Raises ValidationError that names the value and what was expected, TypeError for what is no setting.
    """
    for setting in asked:
        if setting not in SETTINGS:
            near = meant(setting, SETTINGS)
            raise TypeError(f"{setting!r} is no setting of a topology{near}; known are {', '.join(SETTINGS)}")
    values = cast(Mapping[str, int | float | None], asked)
    given = {setting: value for setting, value in values.items() if value is not None}
    for setting, value in given.items():
        SETTINGS[setting].check(value, setting)
    return given
