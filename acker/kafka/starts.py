"""The start of a partition: the offset from which it is read when it is assigned.

A commit carries a note: the id of the topic, and the time of the store. The id tells a topic that was made
anew under its name. The time tells a commit of this run of the group, so that `earliest` and `latest` hold
for the first assignment of a run, and for no rebalance after it. The note also has the attempts of records
that have failed, so that a restart or a rebalance does not count them anew.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from acker.streams.sources.spout_options import MOST_ATTEMPTS

NOTE_BYTES = 3_000
"""Most bytes of attempts in a note: some 400 records. A broker takes 4,096 bytes of note by default."""
_NO_ID = "A" * 22
"""The id that an old broker tells of each topic: zero."""
BY_RUN = ("earliest", "latest")
"""Policies under which the time of a commit tells its run."""
_NOTE = re.compile(r"acker ([A-Za-z0-9+/=_-]{0,64}) ([0-9]{1,16})((?: [0-9]{1,19}:[0-9]{1,4})*)\Z")


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a partition, with its note.

    topic_id: "" if it is not known. at: milliseconds of the store's clock; 0 if the commit has no note.
    attempts: offset -> number of attempts that have failed.
    """

    offset: int
    topic_id: str = ""
    at: int = 0
    attempts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> "Committed | None":
        """The commit that a broker tells of; None if there is none."""
        if offset < 0:
            return None
        match = _NOTE.match(metadata or "")
        if match is None:
            return cls(offset)
        pairs = (pair.split(":") for pair in match[3].split())
        tried = {offset + int(far): min(max(1, int(one)), MOST_ATTEMPTS) for far, one in pairs}
        return cls(offset, match[1], int(match[2]), tried)

    def attempts_of(self, topic_id: str, first: int) -> Mapping[int, int]:
        """The attempts, if the partition that begins at an offset has the same records."""
        same = self.topic_id == topic_id if self.topic_id and topic_id else first >= self.offset
        return {offset: tried for offset, tried in self.attempts.items() if offset >= first} if same else {}


def topic_id_of(told: object) -> str:
    """The id of a topic as a broker tells it; "" if it tells none."""
    text = str(told or "")
    return "" if text == _NO_ID else text


def note(topic_id: str, at: int, offset: int, attempts: Mapping[int, int], most: int = NOTE_BYTES) -> str:
    """The note of a commit of an offset.

    attempts: as of `Committed`. Where there is no room for all, the most tried records are noted: so each
    restart brings some to their end.
    """
    text = f"acker {topic_id} {at}"
    left = most
    for one, tried in sorted(attempts.items(), key=lambda item: (-item[1], item[0])):
        pair = f" {one - offset}:{tried}"
        if (left := left - len(pair)) < 0:
            break
        text += pair
    return text


def first_offset(
    policy: str, committed: Committed | None, low: int, high: int, topic_id: str, started: int
) -> int:
    """The first offset to be read.

    Args:
        policy: `first_poll` of `KafkaOptions`.
        committed: The commit of the group, if there is one.
        low: The first offset that the partition still has.
        high: The offset after its last one.
        topic_id: The id of the topic, "" if it is not known.
        started: When the run of the group has started, in milliseconds of the store's clock.
    """
    begin = low if policy.endswith("earliest") else high
    if committed is None:
        return begin
    if committed.topic_id and topic_id and committed.topic_id != topic_id:
        return low  # the topic was made anew: nobody has read any of its records
    if policy in BY_RUN and committed.at < started:
        return begin
    if committed.offset > high:
        # Its last records are lost. Without ids it may also be a new topic, none of whose records was read.
        return high if committed.topic_id and topic_id else low
    return max(committed.offset, low)
