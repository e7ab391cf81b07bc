"""The spout's records: those without a final outcome, and the numbers of ended trees."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(slots=True)
class Status:
    """Counts of the spout so far.

    lines: records emitted. acked, failed, expired: outcomes of their trees. replays: records given another
    tree. dead: records given up. in_flight: records without final outcome. unknown: outcomes that no record
    waited for (any is an error).
    """

    lines: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0
    replays: int = 0
    dead: int = 0
    in_flight: int = 0
    unknown: int = 0

    @property
    def trees(self) -> int:
        """Trees of all attempts."""
        return self.lines + self.replays


class Records:
    """Notes which attempt of each record is under way, as many as are in flight, and takes their outcomes."""

    def __init__(self) -> None:
        self.status = Status()
        self._attempts: dict[bytes, int] = {}
        self._taken: set[int] = set()

    def emitted(self, message_ids: Iterable[str]) -> None:
        """Notes new records."""
        for message_id in message_ids:
            self._attempts[message_id.encode()] = 1
            self.status.lines += 1
        self.status.in_flight = len(self._attempts)

    def take(self, outcomes: pa.Table) -> None:
        """Takes outcomes (`acker.streams.spouts.replays.OUTCOMES`).

        The outcomes of the previous call may come again, because it may not have been settled.
        """
        before, self._taken = self._taken, set(outcomes["anchor"].to_pylist())
        names = ("anchor", "message_id", "attempt", "status", "final")
        rows = zip(*(outcomes[name].to_pylist() for name in names), strict=True)
        for anchor, message_id, attempt, status, final in rows:
            if anchor in before:
                continue
            if self._attempts.get(message_id) != attempt:
                self.status.unknown += 1
                continue
            setattr(self.status, status, getattr(self.status, status) + 1)
            if final:
                del self._attempts[message_id]
                self.status.dead += status != "acked"
            else:
                self._attempts[message_id] += 1
                self.status.replays += 1
        self.status.in_flight = len(self._attempts)
