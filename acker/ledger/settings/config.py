"""A topology's configuration, and the rules for names and values.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict, cast

from acker.errors import ValidationError, shown
from acker.ledger.ids import SLAB_TREES
from acker.ledger.settings.settings import choice, number, settings_of
from acker.ledger.settings.suggestions import meant
from acker.store.records import NAME

SCHEMA_VERSION = 6
MESSAGE_ID_BYTES = 1024
REASON_BYTES = 1024
MAX_SPOUTS = 64
DEAD_LETTERS = 100_000
"""Dead letters of a spout at which outcomes wait until some are replayed or discarded."""
WAY_OUT = (
    "replay or discard some. `acker dead-letters {0} --groups` shows them by reason, "
    "`acker replay {0} --cause ...` and `acker discard {0} --cause ... --yes` take the letters of one"
)
"""Advice for a spout with its most dead letters; to be formatted with the topology."""
STREAM_MAX_AGE = 7 * 86400.0
"""Most seconds that a stream keeps a segment, by default: the longest message timeout."""
STREAM_MAX_BYTES = 16 << 30
"""Most bytes of payload in a stream, by default."""

OBSERVED = ".observed"
"""The end of the names of observing spouts: ticks confirm their outcomes, which no program takes."""

_NAMED = re.compile(NAME)
_MEMBER = re.compile(r"\.member-[0-9]{1,3}\Z")


def is_name(name: object) -> bool:
    """True if a value is a name: 1 to 64 of A-Z a-z 0-9 . _ -, and not "." or ".."."""
    return isinstance(name, str) and _NAMED.match(name) is not None


def check_name(name: object, label: str) -> str:
    """Returns `name` if `is_name` is True; raises ValidationError if not."""
    if not isinstance(name, str) or not is_name(name):
        besides = ", and not only dots" if isinstance(name, str) and name in (".", "..") else ""
        raise ValidationError(f"{label}: expected 1 to 64 of A-Z a-z 0-9 . _ -{besides}, got {shown(name)}")
    return name


def check_spout(name: object) -> str:
    """Returns the name of a spout that takes its outcomes; raises ValidationError for another value."""
    named = check_name(name, "spout")
    if named.endswith(OBSERVED):
        raise ValidationError(
            f"spout: expected a name without {OBSERVED} at its end, which only observing spouts have, got "
            f"{shown(named)}"
        )
    if _MEMBER.search(named):
        raise ValidationError(
            "spout: expected a name without .member- and a number at its end, which only members of a group "
            f"have, got {shown(named)}"
        )
    return named


def member_name(spout: str, place: int) -> str:
    """The name in the store of a member of a spout (`acker.ledger.outcomes.members`), by its place from 1 on.

    Raises ValidationError if it is too long.
    """
    return spout if place == 1 else check_name(f"{spout}.member-{place}", "spout, with .member- and a number")


def spout_of(name: str) -> str:
    """The name of a spout as people see it, for a name in the store, which may be of one of its members."""
    return _MEMBER.sub("", name)


def check_text(text: str, label: str) -> bytes:
    """A text as UTF-8 bytes; raises ValidationError for half of a pair of surrogates, which UTF-8 lacks."""
    try:
        return str.encode(text)  # not the encoding of a subclass
    except UnicodeEncodeError:
        raise ValidationError(
            f"{label}: expected text of whole characters, got {shown(text)}, which UTF-8 cannot hold"
        ) from None


def check_message_id(message_id: object) -> bytes:
    """A message id as bytes (a str is UTF-8); raises ValidationError above 1 KiB."""
    if isinstance(message_id, str):
        message_id = check_text(message_id, "message id")
    if not isinstance(message_id, bytes):
        raise ValidationError(f"message id: expected bytes or str, got {shown(message_id)}")
    if bytes.__len__(message_id) > MESSAGE_ID_BYTES:
        raise ValidationError(
            f"message id: expected at most {MESSAGE_ID_BYTES} bytes, got {bytes.__len__(message_id)}: "
            f"{shown(message_id)}"
        )
    return b"".join([message_id])  # plain bytes themselves, or a copy of a subclass


def check_reason(reason: object) -> bytes:
    """A reason as UTF-8 bytes; raises ValidationError if it is no str of at most 1 KiB."""
    if not isinstance(reason, str):
        raise ValidationError(f"reason: expected str, got {shown(reason)}")
    encoded = str.encode(reason, "utf-8", "replace")
    if len(encoded) > REASON_BYTES:
        raise ValidationError(f"reason: expected at most {REASON_BYTES} bytes of UTF-8, got {len(encoded)}")
    return encoded


def bounded_reason(reason: str, most: int = REASON_BYTES) -> str:
    """A reason cut to 1 KiB of UTF-8, or `most` bytes: for texts of others than the caller."""
    encoded = reason.encode("utf-8", "replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - 3].decode("utf-8", "ignore") + "..."


class Settings(TypedDict, total=False):
    """The settings of a topology as keyword arguments (PEP 692); `TopologyConfig` describes each.

    An omitted setting, or None, is the stored value, or the default.
    """

    ackers: int | None
    message_timeout: float | None
    high_water_mark: int | None
    slab_limit: int | None
    outcomes_kept: int | None
    waiting_bytes: int | None
    stamp_ttl: int | None
    external_waiting_bytes: int | None
    downtime: int | None
    marks: str | None
    traces: int | None
    wait_replicas: int | None
    wait_fsync: int | None


@dataclass(frozen=True, slots=True)
class TopologyConfig:
    """The configuration of a topology, the same for all its programs.

    docs/store.md describes `wait_replicas` and `wait_fsync`. Raises ValidationError, which names the value
    and the expected one.
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
        20_000_000, 1, 10**9, "Most trees that are in flight or have an unconfirmed outcome, at least "
        "one for each shard. Each shard holds an equal share, and rejects further tracks."
    )  # fmt: skip
    slab_limit: int = number(1024, 1, SLAB_TREES, "Most trees in a slab that acker makes itself.")
    outcomes_kept: int = number(
        10_000, 1, 100_000, "How many of its latest failed or expired trees each shard keeps for people "
        "to look at, confirmed or not. Trees that ended with the oldest, up to a slab, are kept, too."
    )  # fmt: skip
    waiting_bytes: int = number(
        64 << 20, 0, 1 << 40, "Most bytes of messages that wait in each shard for the track of their tree. "
        "Messages beyond that are dropped and counted as orphaned, and their trees will expire."
    )  # fmt: skip
    stamp_ttl: int = number(
        3600, 600, 7 * 86400, "Most seconds from a row's stamp in an external stream to the flush of its "
        "sender, and for which acks of such rows wait for it. Lower only without open external segments."
    )  # fmt: skip
    external_waiting_bytes: int = number(
        64 << 20, 0, 1 << 40, "Most bytes of acks and fails of external rows that wait in each shard for the "
        "flush of their sender. Beyond that a flush raises StreamFull, and changes nothing."
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
                can_be = replace(can_be, low=max(can_be.low, self.ackers))  # a tree for each shard
            can_be.check(getattr(self, setting), setting)

    @property
    def settings(self) -> Settings:
        """All settings, in their order."""
        return cast(Settings, {setting: getattr(self, setting) for setting in SETTINGS})

    @property
    def wait(self) -> tuple[int, int]:
        """`acker.store.operation.Request.wait` of calls that are safe after their answer."""
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
        """Seconds of delay of a tick that suggest a missing ticker: half a tick period, within 5 to 60."""
        return min(60.0, max(5.0, self.tick_ms / 2000))

    @property
    def shard_limit(self) -> int:
        """Most trees of one shard."""
        return self.high_water_mark // max(1, self.ackers)

    @property
    def slab_trees(self) -> int:
        """Most trees in a slab that acker makes: `slab_limit`, or a shard's share of trees if less."""
        return min(self.slab_limit, self.shard_limit)

    def rejection(self, letter: str) -> str:
        """The reason of a rejected track, by the letter R or W (lua/ledger/calls/track.lua)."""
        if letter == "R":
            return f"topology {self.name!r} is over its high-water mark of {self.high_water_mark:,} trees"
        return (
            f"topology {self.name!r} does not hold the message ids of the slab, which are sent ahead of it: "
            f"there was no room for them within waiting_bytes ({self.waiting_bytes:,} bytes a shard), or "
            f"they waited for a message timeout"
        )


SETTINGS = settings_of(TopologyConfig)
"""The settings of a topology, in their order."""


def check_settings(asked: Settings) -> dict[str, int | float]:
    """The given settings without None, each checked for its range.

    Raises ValidationError, which names the value and the expected one, or TypeError for an unknown setting.
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
