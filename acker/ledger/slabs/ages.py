"""The age of the last rotation of each shard, measured by this process's monotonic clock.

No clock of a server tells the age for sure: it may be set, and a promoted replica has another clock. A
ticker's own measurement is sure. Each ticker reports its measurement to the shard, the shard keeps the
largest (lua/ledger/tick/rotate.lua), and the next ticker goes on from there.
"""

import time


class Ages:
    """For each visited shard, a rotation and the latest possible time of it.

    A pickled copy starts empty: the monotonic clock of another machine has another time.
    """

    def __init__(self) -> None:
        self._since: dict[int, tuple[bytes, float]] = {}

    def last_rotation(self, shard: int) -> tuple[bytes, int] | None:
        """The stamp of the last known rotation, and its least age in ms; None for a new shard."""
        known = self._since.get(shard)
        return None if known is None else (known[0], int((time.monotonic() - known[1]) * 1000))

    def learn(self, shard: int, stamp: bytes, age: int) -> None:
        """Takes a shard's answer: the stamp of its last rotation, and its age in ms."""
        since = time.monotonic() - age / 1000
        known = self._since.get(shard)
        if known is not None and known[0] == stamp:
            since = min(since, known[1])  # the round trip counts
        self._since[shard] = stamp, since

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, _: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]
