"""The options of a KafkaSpout, and the settings of the consumers that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acker.errors import ValidationError, shown
from acker.ledger.settings.settings import choice, flag, number, settings_of
from acker.streams.sources.spout_options import LONGEST_BACKOFF, MOST_ATTEMPTS

FIRST_POLLS = ("uncommitted_earliest", "uncommitted_latest", "earliest", "latest")
STRATEGY = "partition.assignment.strategy"
_FIXED = ("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "auto.offset.reset")
_CONNECTION = (
    "bootstrap.servers", "metadata.broker.list", "client.", "security.", "sasl.", "ssl.", "enable.ssl.",
    "broker.", "socket.", "api.", "reconnect.", "retry.backoff", "debug", "log",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The options of a KafkaSpout. `OPTIONS` has their words and ranges. Raises ValidationError."""

    attempts: int = number(3, 1, MOST_ATTEMPTS, "How often a record is tried until it is a dead letter.")
    backoff: float = number(
        1.0, 0.0, LONGEST_BACKOFF, "Seconds from the end of a record's first attempt to its second, doubled "
        "for each further one; it waits for half of that or more, at random."
    )  # fmt: skip
    max_backoff: float = number(300.0, 0.0, LONGEST_BACKOFF, "Seconds of the longest such wait.")
    max_uncommitted: int = number(
        100_000, 1, 10**7, "Most records of a partition from the first one in flight on, done or not; a "
        "partition that has them is paused."
    )  # fmt: skip
    commit_every: float = number(5.0, 0.0, 3600.0, "Seconds between two commits of offsets.")
    first_poll: str = choice(
        FIRST_POLLS, "Where a partition begins: at the committed offset and, without one, at the earliest or "
        "latest record; or there in any case, when the spout starts."
    )  # fmt: skip
    null_values: bool = flag(True, "Whether records without a value are emitted, or passed over.")

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            option.check(getattr(self, name), name)


OPTIONS = settings_of(KafkaOptions)
"""The options, in their order."""


def check_topics(topics: object) -> list[str]:
    """The topics as a list: names, or patterns that begin with `^`. Raises ValidationError."""
    names = [topics] if isinstance(topics, str) else topics
    good = isinstance(names, list | tuple) and names and all(isinstance(name, str) and name for name in names)
    if not good:
        raise ValidationError(
            f"topics: expected the name of a topic, a pattern that begins with '^', or a list of them, "
            f"got {shown(topics)}"
        )
    return list(names)  # type: ignore[call-overload, no-any-return]


def consumer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the consumer that is a member of the group. Raises ValidationError."""
    if not given.get("group.id"):
        raise ValidationError("consumer: expected a setting group.id, which names who commits, got none")
    for name in _FIXED:
        if name in given:
            raise ValidationError(
                f"consumer: {name} is set by the spout: leave it out, got {shown(given[name])}"
                + (". See first_poll" if name == "auto.offset.reset" else "")
            )
    # By this one, members keep the partitions that stay with them, and the records in flight of these.
    strategy = {} if given.get("group.protocol") == "consumer" else {STRATEGY: "cooperative-sticky"}
    return {
        **strategy,
        **given,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }


def reader_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the consumer that reads failed records again, which joins no group."""
    left_out = ("on_commit", "group.instance.id", "group.protocol", "group.remote.assignor", "stats_cb")
    return {
        **{name: value for name, value in consumer_settings(given).items() if name not in left_out},
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50,
        "queued.max.messages.kbytes": 4_096,
    }


def admin_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the admin client, which asks for the ids of topics."""
    return {name: value for name, value in given.items() if name.startswith(_CONNECTION)}
